// DistinctKeys numbers the keys of a batch in the order of their first use.
//
// Uses: base. Threads: one owner.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/placement.h"
#include "data/tail.h"

namespace starling {

class DistinctKeys {
 public:
  // Forgets all; at most `keys_max` keys will be added, repeats counted.
  void start(size_t keys_max) {
    const size_t slots = std::bit_ceil(keys_max * 2 + 1);
    slots_.assign(slots, 0);
    mask_ = slots - 1;
    keys_.cut(0);
    keys_.room(keys_max);
  }
  // Writes each key's number to ids (keys).
  void add(std::span<const Key> keys, uint32_t* ids) {
    for (const Key key : keys) {
      size_t slot = mixed_hash(key) & mask_;
      while (slots_[slot] != 0 && keys_[slots_[slot] - 1] != key) slot = (slot + 1) & mask_;
      if (slots_[slot] == 0) {
        keys_.push(key);
        slots_[slot] = static_cast<uint32_t>(keys_.size());
      }
      *ids++ = slots_[slot] - 1;
    }
  }
  std::span<const Key> keys() const { return keys_.span(); }

 private:
  Tail<Key> keys_;
  std::vector<uint32_t> slots_;  // open addressing: number + 1
  size_t mask_ = 0;
};

}  // namespace starling
