// A snapshot's books: which buckets are out, and copies of rows that changed before their bucket
// was.
//
// Uses: base. Threads: shard-local, as the table that owns it; BucketRows is a value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/ids.h"
#include "table/pages.h"
#include "table/rows.h"
#include "table/statistics.h"

namespace starling {

// Which rows an image takes.
struct RowFilter {
  SaveFilter save = SaveFilter::kAll;
  // Only rows touched after this operation; 0: all. It must be within the reach of changed_since().
  uint64_t since = 0;
};

// Where a snapshot asks for memory to copy rows to: its first use takes time, which others may have
// while the table's owner has not.
class ChunkSource {
 public:
  virtual ~ChunkSource() = default;
  // RowCopies::kChunkBytes, present; empty when none is ready.
  virtual Pages take() = 0;
};

struct SnapshotOptions {
  RowFilter filter;
  // When copies of rows reach this, the bucket of the next row that would be copied is handed out
  // at once.
  size_t copy_bytes_max = size_t{64} << 20;
  // Where copies lie, as far as it goes; else in pages that are made when they are needed. Must
  // outlive the snapshot.
  ChunkSource* chunks = nullptr;
  // Where rows that are handed out lie; none: the allocator. Must outlive the snapshot.
  BufferPool* pool = nullptr;
};

// The rows of one bucket, copied from the table. Any thread may make an image of them: sorting is
// no work for the thread that trains.
struct BucketRows {
  BucketId bucket{};
  RowLayout layout;
  Buffer rows;                       // (size(), layout.stride), in no order
  std::vector<std::byte> admission;  // the state of the bucket
  size_t size() const { return rows.size() / layout.stride; }
  // Sets `image` to what export_bucket() would have made when the snapshot began; its memory is
  // used again.
  void make_image(std::vector<std::byte>& image) const;
};

class SnapshotSink {
 public:
  virtual ~SnapshotSink() = default;
  // One bucket as it was when the snapshot began.
  virtual void bucket(BucketRows rows) = 0;
};

// Copies of rows by bucket, in blocks out of chunks of huge pages.
class RowCopies {
 public:
  // What tables that are larger than this take at a time.
  static constexpr size_t kChunkBytes = kHugePageBytes;

  // `rows_bytes`: of all rows that there are to copy.
  RowCopies(size_t stride, size_t rows_bytes, size_t bytes_max, ChunkSource* source);

  // False when there is no room.
  bool add(uint32_t bucket, const std::byte* row);
  template <class Visit>
  void for_each(uint32_t bucket, Visit&& visit) const {
    uint32_t rows = lists_[bucket].rows;
    for (uint32_t block = lists_[bucket].last; block != kNone; block = next_[block]) {
      // Only the block that was begun last may have room left.
      const uint32_t here = (rows - 1) % kBlockRows + 1;
      for (uint32_t i = 0; i < here; ++i) visit(at(block, i));
      rows -= here;
    }
  }
  uint32_t rows_in(uint32_t bucket) const { return lists_[bucket].rows; }
  // Its blocks may be used again.
  void drop(uint32_t bucket);

  size_t used_bytes() const { return used_blocks_ * block_bytes_; }
  size_t bytes() const;  // with what is not used now

 private:
  // Few: the first pushes of a snapshot begin a block in every bucket.
  static constexpr uint32_t kBlockRows = 4;
  static constexpr uint32_t kNone = UINT32_MAX;
  struct List {
    uint32_t last = kNone;  // block
    uint32_t rows = 0;
  };

  std::byte* at(uint32_t block, uint32_t i) const {
    return chunks_[block / chunk_blocks_].data() + (block % chunk_blocks_) * block_bytes_ +
           i * stride_;
  }
  bool add_chunk();

  const size_t stride_;
  const size_t block_bytes_;
  const size_t chunk_bytes_;
  const uint32_t chunk_blocks_;
  const size_t chunks_max_;
  ChunkSource* const source_;
  std::vector<Pages> chunks_;
  std::vector<uint32_t> next_;  // per block: the one before it in its list, or in the free list
  uint32_t free_ = kNone;
  size_t used_blocks_ = 0;
  std::vector<List> lists_ = std::vector<List>(kBuckets);
};

struct Snapshot {
  Snapshot(const SnapshotOptions& options_in, SnapshotSink& sink_in, RowNumber end_in,
           uint32_t stamp_in, size_t stride)
      : options(options_in),
        sink(sink_in),
        end(end_in),
        stamp(stamp_in),
        settled((size_t{end_in} + 63) / 64),
        copies(stride, end_in * stride, options_in.copy_bytes_max, options_in.chunks) {}

  bool is_settled(RowNumber row) const {
    return row >= end || (settled[row / 64] >> (row % 64) & 1) != 0;
  }
  void settle(RowNumber row) {
    if (row < end) settled[row / 64] |= uint64_t{1} << (row % 64);
  }
  size_t copy_bytes() const { return copies.used_bytes() + admission_bytes; }
  size_t bytes() const;

  const SnapshotOptions options;
  SnapshotSink& sink;
  const RowNumber end;  // rows from here on came later
  // Of the table when it began. A row with a higher one was touched, and so preserved, since.
  const uint32_t stamp;
  // Bit r: the snapshot must not read row r in place; it was copied, or came later.
  std::vector<uint64_t> settled;
  std::vector<uint8_t> out = std::vector<uint8_t>(kBuckets);  // 1: the bucket was handed out
  RowCopies copies;
  std::vector<std::optional<std::vector<std::byte>>> admission =
      std::vector<std::optional<std::vector<std::byte>>>(kBuckets);
  size_t admission_bytes = 0;
  uint32_t next = 0;                       // no bucket before it is left
  std::vector<RowNumber> erased;           // given back when the snapshot ends
  std::vector<const std::byte*> gathered;  // scratch
};

}  // namespace starling
