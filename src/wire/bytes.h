// Numbers at offsets of a byte block: what the headers and hellos are written with.
//
// Uses: base. Threads: any. Private to the room.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/bytes.h"

namespace starling::wire_internal {

template <typename T>
void put(std::span<std::byte> out, size_t offset, T value) {
  put_number(out.data() + offset, value);
}

template <typename T>
T take(std::span<const std::byte> in, size_t offset) {
  return number_at<T>(in.data() + offset);
}

inline bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace starling::wire_internal
