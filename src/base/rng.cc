#include "base/rng.h"

#include <cmath>
#include <numbers>

namespace starling {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return c;
}

Rng::Rng(uint64_t seed, uint64_t stream, uint64_t number) : number_(number) {
  const uint64_t key = mix64(mix64(seed) ^ stream);
  key_ = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

uint32_t Rng::next_u32() {
  if (left_ == 0) {
    out_ = philox4x32({static_cast<uint32_t>(block_), static_cast<uint32_t>(block_ >> 32),
                       static_cast<uint32_t>(number_), static_cast<uint32_t>(number_ >> 32)},
                      key_);
    ++block_;
    left_ = 4;
  }
  return out_[static_cast<size_t>(4 - left_--)];
}

uint64_t Rng::next_u64() {
  const uint64_t low = next_u32();
  return low | (uint64_t{next_u32()} << 32);
}

float Rng::uniform_float() { return static_cast<float>(next_u32() >> 8) * 0x1p-24f; }

double Rng::uniform() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }

uint64_t Rng::below(uint64_t bound) {
  // Lemire's method: the high half of a product, with the few biased low halves drawn again.
  unsigned __int128 product = static_cast<unsigned __int128>(next_u64()) * bound;
  if (static_cast<uint64_t>(product) < bound) {
    const uint64_t threshold = -bound % bound;
    while (static_cast<uint64_t>(product) < threshold) {
      product = static_cast<unsigned __int128>(next_u64()) * bound;
    }
  }
  return static_cast<uint64_t>(product >> 64);
}

double Rng::normal() {
  // 1 - u lies in (0, 1], so the logarithm is finite.
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

}  // namespace starling
