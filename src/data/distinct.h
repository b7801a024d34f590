// DistinctKeys numbers the keys of a batch in the order of their first use, and finds their owners.
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
    const size_t slots = std::bit_ceil(keys_max * 2 + 2);
    slots_.assign(slots, 0);
    mask_ = slots - 1;
    size_ = 0;
    keys_.cut(0);
    shards_.cut(0);
    // One more, as every key is written behind the last before it is known to be a new one.
    keys_.room(keys_max + 1);
    shards_.room(keys_max + 1);
  }

  // Writes each key's number to ids (keys). All keys lie in the placement.
  void add(std::span<const Key> keys, const Placement& placement,
           std::span<const uint32_t> owner_of_bucket, uint32_t* ids) {
    Key* const distinct = keys_.data();
    uint32_t* const shards = shards_.data();
    for (const Key key : keys) {
      const uint64_t hash = mixed_hash(key);
      size_t slot = hash & mask_;
      uint32_t id = slots_[slot];
      // Whether a key is new is a toss, so it decides no jump; whether its slot is taken by another
      // is rare.
      while (id != 0 && distinct[id - 1] != key) [[unlikely]] {
          slot = (slot + 1) & mask_;
          id = slots_[slot];
        }
      const bool is_new = id == 0;
      distinct[size_] = key;
      shards[size_] = owner_of_bucket[placement.bucket(key, hash)];
      size_ += is_new ? 1 : 0;
      id = is_new ? size_ : id;
      slots_[slot] = id;
      *ids++ = id - 1;
    }
  }

  size_t size() const { return size_; }
  std::span<const Key> keys() const { return {keys_.data(), size_}; }
  std::span<const uint32_t> shards() const { return {shards_.data(), size_}; }

 private:
  Tail<Key> keys_;
  Tail<uint32_t> shards_;
  std::vector<uint32_t> slots_;  // open addressing: number + 1
  size_t mask_ = 0;
  uint32_t size_ = 0;
};

}  // namespace starling
