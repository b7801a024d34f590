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
    size_ = 0;
    keys_.cut(0);
    shards_.cut(0);
    // One before the first, and one behind the last: see add().
    keys_.room(keys_max + 2);
    shards_.room(keys_max + 2);
  }

  // Writes each key's number to ids (keys). All keys lie in the placement.
  void add(std::span<const Key> keys, const Placement& placement,
           std::span<const uint32_t> owner_of_bucket, uint32_t* ids) {
    if (placement.by_range()) {
      add_by<true>(keys, placement, owner_of_bucket.data(), ids);
    } else {
      add_by<false>(keys, placement, owner_of_bucket.data(), ids);
    }
  }

  size_t size() const { return size_; }
  std::span<const Key> keys() const { return {keys_.data() + 1, size_}; }
  std::span<const uint32_t> shards() const { return {shards_.data() + 1, size_}; }

 private:
  // Key number n stands at n + 1, and the key looked for at 0, where an empty slot points. Whether
  // a key is new is a toss, so no jump depends on it: every key is written behind the last and
  // counted when it is new. Only a slot that another key has taken is rare enough to be a jump.
  template <bool kByRange>
  void add_by(std::span<const Key> keys, const Placement& placement, const uint32_t* owner,
              uint32_t* __restrict ids) {
    Key* const distinct = keys_.data();
    uint32_t* const __restrict shards = shards_.data();
    uint32_t* const __restrict slots = slots_.data();
    const size_t mask = slots_.size() - 1;
    uint32_t size = size_;
    for (const Key key : keys) {
      const uint64_t hash = mixed_hash(key);
      size_t slot = hash & mask;
      uint32_t id = slots[slot];
      distinct[0] = key;
      while (distinct[id] != key) [[unlikely]] {
          slot = (slot + 1) & mask;
          id = slots[slot];
        }
      const uint32_t is_new = id == 0 ? 1 : 0;
      distinct[size + 1] = key;
      shards[size + 1] = owner[kByRange ? placement.bucket(key, hash) : bucket_bits(hash)];
      size += is_new;
      id += is_new * size;
      slots[slot] = id;
      *ids++ = id - 1;
    }
    size_ = size;
  }

  Tail<Key> keys_;
  Tail<uint32_t> shards_;
  std::vector<uint32_t> slots_;  // open addressing: number + 1
  uint32_t size_ = 0;
};

}  // namespace starling
