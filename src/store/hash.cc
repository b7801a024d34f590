#include "store/hash.h"

// The dispatching functions look once which of SSE2, AVX2 and AVX-512 there are. All give the same
// bits.
#ifdef __x86_64__
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include "base/check.h"

namespace starling {

uint64_t xxh3(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

struct Xxh3::State {
  State() : xxh(XXH3_createState()) {
    STARLING_CHECK(xxh != nullptr, "out of memory");
    XXH3_64bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  XXH3_state_t* const xxh;
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) {}
Xxh3::~Xxh3() = default;

void Xxh3::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
  bytes_ += bytes.size();
}

uint64_t Xxh3::digest() const { return XXH3_64bits_digest(state_->xxh); }

}  // namespace starling
