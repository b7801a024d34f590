// Where a key lives: the frozen mix of its bits, and the bucket, tag and slot that are cut from it.
//
// Stored images and the placement of every job depend on these functions: they never change
// (hash_test.cc). Uses: base. Threads: any; all are pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/ids.h"
#include "base/placement.h"
#include "base/rng.h"

namespace starling {

// Of a mixed hash: bits 63-52 bucket (base/placement.h), 51-44 tag, low 32 bits slot.
constexpr uint8_t tag_bits(uint64_t hash) { return static_cast<uint8_t>(hash >> 44); }
// Spreads the low 32 bits over [0, groups) without a division.
constexpr uint32_t slot_bits(uint64_t hash, uint32_t groups) {
  return static_cast<uint32_t>(((hash & 0xffffffff) * groups) >> 32);
}

// A 64-bit number for a name, so that draws of two tables are independent (FNV-1a, then mixed).
constexpr uint64_t name_hash(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return mix64(hash);
}

}  // namespace starling
