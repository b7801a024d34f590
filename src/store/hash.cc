#include "store/hash.h"

#ifdef __x86_64__
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

namespace starling {

uint64_t xxh3(std::span<const std::byte> bytes, uint64_t seed) {
#ifdef __x86_64__
  // Looks once which of SSE2, AVX2 and AVX-512 there are. All give the same bits.
  return XXH3_64bits_withSeed_dispatch(bytes.data(), bytes.size(), seed);
#else
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
#endif
}

}  // namespace starling
