// The 64-bit XXH3 that our formats use, by the widest instructions that this processor has.
//
// Uses: xxhash. Threads: any.
#pragma once

#include <cstdint>
#include <span>

namespace starling {

uint64_t xxh3(std::span<const std::byte> bytes, uint64_t seed);

}  // namespace starling
