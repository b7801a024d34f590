// The 64-bit XXH3 that our formats use, by the widest instructions that this processor has.
//
// Uses: xxhash. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace starling {

uint64_t xxh3(std::span<const std::byte> bytes, uint64_t seed);

// The same with seed 0, of bytes that come piece by piece.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(const Xxh3&) = delete;
  Xxh3& operator=(const Xxh3&) = delete;

  void add(std::span<const std::byte> bytes);
  uint64_t digest() const;
  uint64_t bytes() const { return bytes_; }  // so far

 private:
  struct State;
  const std::unique_ptr<State> state_;
  uint64_t bytes_ = 0;
};

}  // namespace starling
