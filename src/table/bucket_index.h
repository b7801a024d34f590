// From a key's hash to its row: one small open-addressing index per bucket, one cache line per
// probe.
//
// A bucket's index is a run of groups. A group is one cache line: 12 tags, which slots are used,
// how many keys that belong here or before live further on, and 12 row numbers. Keys are compared
// in their rows. A bucket grows alone, by a quarter, so no operation ever waits for more than one
// small rehash. docs/design/table-index.md has the numbers. Uses: base. Threads: shard-local, as
// the table that owns it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/ids.h"
#include "table/hash.h"
#include "table/pages.h"
#include "table/rows.h"

namespace starling {

inline constexpr uint32_t kGroupSlots = 12;

struct alignas(64) IndexGroup {
  uint8_t tags[kGroupSlots];
  uint16_t used;  // bit i: slot i holds a row
  uint16_t
      overflow;  // keys that passed this group by because it was full; sticks at its largest value
  RowNumber rows[kGroupSlots];  // kNoRow where unused
};
static_assert(sizeof(IndexGroup) == 64);

struct IndexBucket {
  IndexGroup* groups = nullptr;
  uint32_t group_count = 1;
  uint32_t rows = 0;
};

// Runs of groups from huge pages, by size class. A slab that becomes empty serves another class or
// goes back, so the sizes that all buckets have left behind cost nothing.
class GroupPool {
 public:
  // The smallest legal count >= wanted.
  static uint32_t round_up(uint32_t wanted);
  // Zeroed.
  IndexGroup* take(uint32_t count);
  void give(IndexGroup* groups, uint32_t count);
  // Makes a huge page present that one of the next slabs will be, where there are not enough.
  // False: nothing to do.
  bool prepare();
  size_t bytes() const;

 private:
  struct Slab {
    Pages pages;  // of a chunk; empty for a slab inside a chunk
    std::byte* data = nullptr;
    uint32_t runs = 0;   // that fit
    uint32_t fresh = 0;  // first run never given out
    uint32_t used = 0;
    IndexGroup* free = nullptr;  // given back; linked through their first bytes
  };
  struct SizeClass {
    std::map<std::byte*, Slab> slabs;  // by their start
    std::vector<std::byte*> open;      // with room; may name slabs that have none any more
  };

  Slab make_slab(size_t run_bytes);
  void drop_slab(Slab slab, size_t run_bytes);
  static size_t slab_bytes(size_t run_bytes);

  std::map<uint32_t, SizeClass> classes_;
  std::vector<Pages> small_chunks_;     // cut into small slabs
  std::vector<std::byte*> small_free_;  // slabs of small chunks that nobody uses
  std::vector<Pages> spare_chunks_;     // a few, so that growth does not map and unmap in turn
};

class BucketIndex {
 public:
  explicit BucketIndex(const RowSlabs& rows);
  BucketIndex(const BucketIndex&) = delete;
  BucketIndex& operator=(const BucketIndex&) = delete;

  // The key's row, or kNoRow. `bucket` is the placement's of the key.
  RowNumber find(uint32_t bucket, uint64_t hash, Key key) const;
  // The key must not be there.
  void insert(uint32_t bucket, uint64_t hash, RowNumber row);
  // Room for `rows` more, so that inserting them moves nothing.
  void reserve(uint32_t bucket, uint32_t rows);
  // The row must be there.
  void erase(uint32_t bucket, uint64_t hash, RowNumber row);
  void replace(uint32_t bucket, uint64_t hash, RowNumber from, RowNumber to);
  // Forgets all rows of a bucket and gives its memory back.
  void drop(uint32_t bucket);
  // Gives back what a bucket does not need any more.
  void shrink(uint32_t bucket);
  // Makes memory present that the next bucket to grow may need, at most one huge page. False:
  // nothing to do.
  bool prepare() { return pool_.prepare(); }

  uint32_t rows_in(uint32_t bucket) const { return buckets_[bucket].rows; }
  // Calls visit(row) for every row of the bucket, in no order. The index must not change meanwhile.
  template <class Visit>
  void for_each(uint32_t bucket, Visit&& visit) const {
    const IndexBucket& entry = buckets_[bucket];
    for (uint32_t g = 0; g < entry.group_count; ++g) {
      const IndexGroup& group = entry.groups[g];
      for (uint32_t used = group.used; used != 0; used &= used - 1) {
        visit(group.rows[std::countr_zero(used)]);
      }
    }
  }

  const IndexBucket* buckets() const { return buckets_.data(); }
  size_t bytes() const;

 private:
  struct Slot {
    IndexGroup* group;
    uint32_t slot;
  };
  Slot slot_of(uint32_t bucket, uint64_t hash, RowNumber row) const;
  static void put(IndexBucket& bucket, uint64_t hash, RowNumber row);
  void resize(IndexBucket& bucket, uint32_t group_count);

  const RowSlabs& rows_;
  GroupPool pool_;
  std::vector<IndexBucket> buckets_;
  // What buckets without rows point at: a probe needs no branch for them.
  IndexGroup empty_{};
};

}  // namespace starling
