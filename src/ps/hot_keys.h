// HotKeys finds the keys that are used most, in bounded memory: the space-saving counters of
// Metwally et al. over a sample of the uses.
//
// Uses: base. Threads: shard-local.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace starling {

class HotKeys {
 public:
  struct Entry {
    Key key;
    uint64_t uses;  // estimated; exact while there have been few
  };

  // Counts the first kExact uses, then every kSampleth, so that a batch costs next to nothing.
  void count(std::span<const Key> keys);
  // By uses, falling; equal ones by key.
  std::vector<Entry> top(size_t entries_max) const;

 private:
  static constexpr size_t kCounters = 512;
  static constexpr uint64_t kExact = 4096;
  static constexpr uint64_t kSample = 256;

  struct Counter {
    uint64_t key = 0;
    uint64_t uses = 0;
  };

  void count_one(uint64_t key, uint64_t uses);
  // The number of a counter that has been used least; kCounters are there.
  uint32_t least_used();

  std::vector<Counter> counters_;
  absl::flat_hash_map<uint64_t, uint32_t> numbers_;  // key -> its counter
  // No counter is below it. Counters only rise, so that a search for one at the floor goes on
  // where the last one ended, and the floor rises when it has gone around.
  uint64_t floor_ = 1;
  uint32_t next_ = 0;
  uint64_t seen_ = 0;
};

}  // namespace starling
