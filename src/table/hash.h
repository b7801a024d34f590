// Where a key lives: the frozen mix of its bits, and the bucket, tag and slot that are cut from it.
//
// Stored images and the placement of every job depend on these functions: they never change
// (hash_test.cc). Uses: base. Threads: any; all are pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/ids.h"
#include "base/rng.h"

namespace starling {

// Bits 63-52 bucket, 51-44 tag, low 32 bits slot.
constexpr uint64_t mixed_hash(Key key) { return mix64(value(key)); }
constexpr uint32_t bucket_bits(uint64_t hash) { return static_cast<uint32_t>(hash >> 52); }
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

// How a table cuts its keys into buckets: by hash, or by equal ranges of [low, high).
struct Placement {
  uint64_t low = 0;
  uint64_t high = 0;  // 0: by hash

  constexpr bool by_range() const { return high != 0; }
  constexpr bool holds(Key key) const {
    return !by_range() || (value(key) >= low && value(key) < high);
  }
  // `hash` is mixed_hash(key). The key of a range table must lie in the range.
  constexpr uint32_t bucket(Key key, uint64_t hash) const {
    if (!by_range()) return bucket_bits(hash);
    const auto offset = static_cast<unsigned __int128>(value(key) - low);
    return static_cast<uint32_t>(offset * kBuckets / (high - low));
  }
};

}  // namespace starling
