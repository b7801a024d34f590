// Rng draws numbers that depend on (seed, stream, number) alone: never on who drew before, on which
// thread or when.
//
// Philox4x32-10 of Salmon et al. (2011): a block cipher in counter mode, 128 bits a block.
// Uses: std. Threads: a value; each owner has its own.
#pragma once

#include <array>
#include <cstdint>

namespace starling {

// One block of Philox4x32-10: the counter enciphered under the key.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Spreads all bits of x over all bits of the result; a bijection (the finalizer of splitmix64).
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class Rng {
 public:
  // `stream` separates uses (a table, a shuffle), `number` separates items of one use (a key, a
  // block).
  Rng(uint64_t seed, uint64_t stream, uint64_t number);

  uint32_t next_u32();
  uint64_t next_u64();
  // In [0, 1), 24 bits.
  float uniform_float();
  // In [0, 1), 53 bits.
  double uniform();
  // In [0, bound), without bias; bound > 0.
  uint64_t below(uint64_t bound);
  // Standard normal, by Box and Muller.
  double normal();

  // For std::shuffle and std distributions.
  using result_type = uint64_t;
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return UINT64_MAX; }
  uint64_t operator()() { return next_u64(); }

 private:
  std::array<uint32_t, 2> key_;
  uint64_t number_;
  uint64_t block_ = 0;
  std::array<uint32_t, 4> out_{};
  int left_ = 0;
};

}  // namespace starling
