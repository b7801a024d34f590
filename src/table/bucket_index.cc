#include "table/bucket_index.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace starling {

namespace {

constexpr size_t kSmallSlabBytes = 64 << 10;
constexpr size_t kSmallRunBytesMax = 4 << 10;
// Buckets of two sizes may want a new slab in one operation.
constexpr size_t kSpareChunksMax = 2;
constexpr uint16_t kOverflowMax = 0xffff;
// Rows per group that a bucket may have: half of its slots. Then one key in 500 or fewer live
// outside their own group, where a probe costs two more trips to memory; at 0.75 one in 28 would.
constexpr uint32_t kGroupRowsMax = 6;

// Bit i: byte i of `word` is `tag`. Exact, without a vector unit.
uint32_t equal_bytes(uint64_t word, uint8_t tag) {
  constexpr uint64_t kLow7 = 0x7f7f7f7f7f7f7f7f;
  const uint64_t differs = word ^ (uint64_t{0x0101010101010101} * tag);
  const uint64_t equal = ~(((differs & kLow7) + kLow7) | differs | kLow7);
  // The highest bit of each equal byte, gathered into the top byte.
  return static_cast<uint32_t>(((equal >> 7) * uint64_t{0x0102040810204080}) >> 56);
}

// Bit i: slot i is used and has this tag.
uint32_t fitting_slots(const IndexGroup& group, uint8_t tag) {
  uint64_t first;
  uint32_t rest;
  std::memcpy(&first, group.tags, sizeof first);
  std::memcpy(&rest, group.tags + sizeof first, sizeof rest);
  return (equal_bytes(first, tag) | (equal_bytes(rest, tag) & 0xf) << 8) & group.used;
}

}  // namespace

uint32_t GroupPool::round_up(uint32_t wanted) {
  uint32_t count = 1;
  while (count < wanted) count += (count + 3) / 4;
  return count;
}

size_t GroupPool::slab_bytes(size_t run_bytes) {
  if (run_bytes <= kSmallRunBytesMax) return kSmallSlabBytes;
  // At least four runs, so that little is lost at the end of a slab.
  return std::max(kHugePageBytes,
                  (4 * run_bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes);
}

GroupPool::Slab GroupPool::make_slab(size_t run_bytes) {
  const size_t bytes = slab_bytes(run_bytes);
  Slab slab;
  slab.runs = static_cast<uint32_t>(bytes / run_bytes);
  const bool small = bytes == kSmallSlabBytes;
  if (!small || small_free_.empty()) {
    Pages chunk;
    if (bytes <= kHugePageBytes && !spare_chunks_.empty()) {
      chunk = std::move(spare_chunks_.back());
      spare_chunks_.pop_back();
    } else {
      chunk = Pages::map(std::max(bytes, kHugePageBytes));
      STARLING_CHECK(chunk.data() != nullptr, "the system has no room for the index of a table");
      chunk.ensure(bytes);
    }
    if (!small) {
      slab.data = chunk.data();
      slab.pages = std::move(chunk);
      return slab;
    }
    for (size_t at = kHugePageBytes; at > 0; at -= kSmallSlabBytes) {
      small_free_.push_back(chunk.data() + at - kSmallSlabBytes);
    }
    small_chunks_.push_back(std::move(chunk));
  }
  slab.data = small_free_.back();
  small_free_.pop_back();
  return slab;
}

void GroupPool::drop_slab(Slab slab, size_t run_bytes) {
  if (slab.pages.data() == nullptr) {
    small_free_.push_back(slab.data);
    // When no small slab is in use all their chunks go back.
    if (small_free_.size() * kSmallSlabBytes == small_chunks_.size() * kHugePageBytes) {
      small_free_.clear();
      small_chunks_.clear();
    }
  } else if (slab_bytes(run_bytes) == kHugePageBytes && spare_chunks_.size() < kSpareChunksMax) {
    spare_chunks_.push_back(std::move(slab.pages));
  }
}

IndexGroup* GroupPool::take(uint32_t count) {
  const size_t run_bytes = count * sizeof(IndexGroup);
  SizeClass& entry = classes_[count];
  while (!entry.open.empty()) {
    const auto found = entry.slabs.find(entry.open.back());
    if (found != entry.slabs.end() && found->second.used < found->second.runs) break;
    entry.open.pop_back();
  }
  if (entry.open.empty()) {
    Slab made = make_slab(run_bytes);
    entry.open.push_back(made.data);
    entry.slabs.emplace(made.data, std::move(made));
  }
  Slab& slab = entry.slabs.at(entry.open.back());
  ++slab.used;
  IndexGroup* groups = slab.free;
  if (groups != nullptr) {
    std::memcpy(&slab.free, static_cast<const void*>(groups), sizeof(void*));
  } else {
    groups = reinterpret_cast<IndexGroup*>(slab.data + run_bytes * slab.fresh++);
  }
  std::memset(static_cast<void*>(groups), 0, run_bytes);
  return groups;
}

void GroupPool::give(IndexGroup* groups, uint32_t count) {
  const size_t run_bytes = count * sizeof(IndexGroup);
  SizeClass& entry = classes_.at(count);
  auto slab = std::prev(entry.slabs.upper_bound(reinterpret_cast<std::byte*>(groups)));
  std::memcpy(static_cast<void*>(groups), &slab->second.free, sizeof(void*));
  slab->second.free = groups;
  const bool was_full = slab->second.used-- == slab->second.runs;
  if (slab->second.used == 0) {
    Slab empty = std::move(slab->second);
    entry.slabs.erase(slab);
    drop_slab(std::move(empty), run_bytes);
    if (entry.slabs.empty()) classes_.erase(count);
  } else if (was_full) {
    entry.open.push_back(slab->first);
  }
}

bool GroupPool::prepare() {
  if (spare_chunks_.size() >= kSpareChunksMax) return false;
  Pages chunk = Pages::map(kHugePageBytes);
  if (chunk.data() == nullptr) return false;
  chunk.ensure(kHugePageBytes);
  spare_chunks_.push_back(std::move(chunk));
  return true;
}

size_t GroupPool::bytes() const {
  size_t bytes = 0;
  for (const auto& [count, entry] : classes_) {
    for (const auto& [data, slab] : entry.slabs) bytes += slab.pages.present_bytes();
  }
  for (const Pages& chunk : small_chunks_) bytes += chunk.present_bytes();
  for (const Pages& chunk : spare_chunks_) bytes += chunk.present_bytes();
  return bytes;
}

BucketIndex::BucketIndex(const RowSlabs& rows) : rows_(rows), buckets_(kBuckets) {
  for (IndexBucket& bucket : buckets_) bucket.groups = &empty_;
}

RowNumber BucketIndex::find(uint32_t bucket, uint64_t hash, Key key) const {
  const IndexBucket& entry = buckets_[bucket];
  const uint8_t tag = tag_bits(hash);
  uint32_t at = slot_bits(hash, entry.group_count);
  for (uint32_t probes = 0; probes < entry.group_count; ++probes) {
    const IndexGroup& group = entry.groups[at];
    for (uint32_t fits = fitting_slots(group, tag); fits != 0; fits &= fits - 1) {
      const RowNumber row = group.rows[std::countr_zero(fits)];
      if (key_of(rows_.at(row)) == key) return row;
    }
    if (group.overflow == 0) return kNoRow;
    at = at + 1 == entry.group_count ? 0 : at + 1;
  }
  return kNoRow;
}

void BucketIndex::put(IndexBucket& bucket, uint64_t hash, RowNumber row) {
  uint32_t at = slot_bits(hash, bucket.group_count);
  while (true) {
    IndexGroup& group = bucket.groups[at];
    const uint32_t slot = static_cast<uint32_t>(std::countr_one(group.used));
    if (slot < kGroupSlots) {
      group.tags[slot] = tag_bits(hash);
      group.rows[slot] = row;
      group.used = static_cast<uint16_t>(group.used | (1u << slot));
      return;
    }
    if (group.overflow != kOverflowMax) ++group.overflow;
    at = at + 1 == bucket.group_count ? 0 : at + 1;
  }
}

void BucketIndex::resize(IndexBucket& bucket, uint32_t group_count) {
  // The hashes come from the keys in the rows: first all rows are asked for, then each is placed.
  std::vector<RowNumber> moved;
  moved.reserve(bucket.rows);
  for (uint32_t g = 0; g < bucket.group_count; ++g) {
    const IndexGroup& group = bucket.groups[g];
    for (uint32_t used = group.used; used != 0; used &= used - 1) {
      moved.push_back(group.rows[std::countr_zero(used)]);
    }
  }
  if (bucket.groups != &empty_) pool_.give(bucket.groups, bucket.group_count);
  bucket.groups = pool_.take(group_count);
  bucket.group_count = group_count;
  constexpr size_t kAhead = 24;
  for (size_t i = 0; i < moved.size(); ++i) {
    if (i + kAhead < moved.size()) __builtin_prefetch(rows_.at(moved[i + kAhead]));
    put(bucket, mixed_hash(key_of(rows_.at(moved[i]))), moved[i]);
  }
}

void BucketIndex::insert(uint32_t bucket, uint64_t hash, RowNumber row) {
  IndexBucket& entry = buckets_[bucket];
  if (entry.groups == &empty_) {
    entry.groups = pool_.take(1);
  } else if (entry.rows >= entry.group_count * kGroupRowsMax) {
    resize(entry, GroupPool::round_up(entry.group_count + 1));
  }
  put(entry, hash, row);
  ++entry.rows;
}

void BucketIndex::reserve(uint32_t bucket, uint32_t rows) {
  IndexBucket& entry = buckets_[bucket];
  if (rows == 0) return;
  const uint32_t needed =
      GroupPool::round_up((entry.rows + rows + kGroupRowsMax - 1) / kGroupRowsMax);
  if (entry.groups == &empty_ || needed > entry.group_count) resize(entry, needed);
}

BucketIndex::Slot BucketIndex::slot_of(uint32_t bucket, uint64_t hash, RowNumber row) const {
  const IndexBucket& entry = buckets_[bucket];
  uint32_t at = slot_bits(hash, entry.group_count);
  for (uint32_t probes = 0; probes < entry.group_count; ++probes) {
    IndexGroup& group = entry.groups[at];
    for (uint32_t used = group.used; used != 0; used &= used - 1) {
      const auto slot = static_cast<uint32_t>(std::countr_zero(used));
      if (group.rows[slot] == row) return {&group, slot};
    }
    at = at + 1 == entry.group_count ? 0 : at + 1;
  }
  STARLING_CHECK(false, "a row is not in the index of its bucket");
}

void BucketIndex::erase(uint32_t bucket, uint64_t hash, RowNumber row) {
  IndexBucket& entry = buckets_[bucket];
  const Slot found = slot_of(bucket, hash, row);
  found.group->used = static_cast<uint16_t>(found.group->used & ~(1u << found.slot));
  found.group->rows[found.slot] = kNoRow;
  uint32_t at = slot_bits(hash, entry.group_count);
  while (&entry.groups[at] != found.group) {
    if (entry.groups[at].overflow != kOverflowMax) --entry.groups[at].overflow;
    at = at + 1 == entry.group_count ? 0 : at + 1;
  }
  --entry.rows;
}

void BucketIndex::replace(uint32_t bucket, uint64_t hash, RowNumber from, RowNumber to) {
  const Slot found = slot_of(bucket, hash, from);
  found.group->rows[found.slot] = to;
}

void BucketIndex::drop(uint32_t bucket) {
  IndexBucket& entry = buckets_[bucket];
  if (entry.groups != &empty_) pool_.give(entry.groups, entry.group_count);
  entry = IndexBucket{&empty_, 1, 0};
}

void BucketIndex::shrink(uint32_t bucket) {
  IndexBucket& entry = buckets_[bucket];
  if (entry.rows == 0) return drop(bucket);
  const uint32_t needed = GroupPool::round_up((entry.rows + kGroupRowsMax - 1) / kGroupRowsMax);
  // A step of slack, so that a bucket at the border does not grow and shrink in turn.
  if (GroupPool::round_up(needed + 1) < entry.group_count) resize(entry, needed);
}

size_t BucketIndex::bytes() const {
  return pool_.bytes() + buckets_.capacity() * sizeof(IndexBucket);
}

}  // namespace starling
