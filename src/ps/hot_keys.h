// HotKeys finds the keys that are used most, in bounded memory: the space-saving counters of
// Metwally et al. over a sample of the uses.
//
// Uses: base. Threads: shard-local.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"

namespace starling {

class HotKeys {
 public:
  struct Entry {
    Key key;
    uint64_t uses;  // estimated, never too small by more than the sampling's noise
  };

  // Counts every kSampleth use, so that a batch costs next to nothing.
  void count(std::span<const Key> keys);
  // By uses, falling; equal ones by key.
  std::vector<Entry> top(size_t entries_max) const;

 private:
  static constexpr size_t kCounters = 512;
  static constexpr uint64_t kSample = 64;

  std::unordered_map<uint64_t, uint64_t> counters_;  // key -> sampled uses
  uint64_t seen_ = 0;
};

}  // namespace starling
