// Little-endian numbers at fixed places of a byte block: what the headers and hellos are written
// with.
//
// Uses: std. Threads: any. Private to the room.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace starling::wire_internal {

static_assert(std::endian::native == std::endian::little,
              "numbers and tensors are copied to the wire as they lie in memory");

template <typename T>
void put(std::span<std::byte> out, size_t offset, T value) {
  std::memcpy(out.data() + offset, &value, sizeof(T));
}

template <typename T>
T take(std::span<const std::byte> in, size_t offset) {
  T value;
  std::memcpy(&value, in.data() + offset, sizeof(T));
  return value;
}

inline bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace starling::wire_internal
