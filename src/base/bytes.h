// Numbers at places of a byte block, little-endian: what headers of frames and files are written
// with.
//
// Uses: std. Threads: any.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>

namespace starling {

static_assert(std::endian::native == std::endian::little,
              "numbers and tensors are stored and sent as they lie in memory");

template <typename T>
void put_number(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

template <typename T>
T number_at(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

}  // namespace starling
