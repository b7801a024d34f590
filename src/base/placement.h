// Placement says in which bucket a key lives: from the frozen mix of its bits, or by ranges.
//
// Stored images and the placement of every job depend on these functions: they never change
// (table's hash_test.cc). Uses: std. Threads: any; all are pure.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/rng.h"

namespace starling {

// Bits 63-52 bucket; the others are the table's.
constexpr uint64_t mixed_hash(Key key) { return mix64(value(key)); }
constexpr uint32_t bucket_bits(uint64_t hash) { return static_cast<uint32_t>(hash >> 52); }

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
