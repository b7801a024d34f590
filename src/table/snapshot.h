// A snapshot's books: which buckets are out, and copies of rows that changed before their bucket
// was.
//
// Uses: base. Threads: shard-local, as the table that owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "table/rows.h"
#include "table/statistics.h"

namespace starling {

// Which rows an image takes.
struct RowFilter {
  SaveFilter save = SaveFilter::kAll;
  // Only rows touched after this operation; 0: all. It must be within the reach of changed_since().
  uint64_t since = 0;
};

struct SnapshotOptions {
  RowFilter filter;
  // When copies of rows reach this, the bucket of the next row that would be copied is handed out
  // at once.
  size_t copy_bytes_max = size_t{64} << 20;
};

class SnapshotSink {
 public:
  virtual ~SnapshotSink() = default;
  // One bucket's image, as export_bucket() would have made it when the snapshot began.
  virtual void bucket(BucketId bucket, std::vector<std::byte> image) = 0;
};

struct Snapshot {
  Snapshot(const SnapshotOptions& options_in, SnapshotSink& sink_in, RowNumber end_in)
      : options(options_in), sink(sink_in), end(end_in), settled((size_t{end_in} + 63) / 64) {}

  bool is_settled(RowNumber row) const {
    return row >= end || (settled[row / 64] >> (row % 64) & 1) != 0;
  }
  void settle(RowNumber row) {
    if (row < end) settled[row / 64] |= uint64_t{1} << (row % 64);
  }
  size_t bytes() const;

  const SnapshotOptions options;
  SnapshotSink& sink;
  const RowNumber end;  // rows from here on came later
  // Bit r: the snapshot must not read row r in place; it was copied, or came later.
  std::vector<uint64_t> settled;
  std::vector<uint8_t> out = std::vector<uint8_t>(kBuckets);  // 1: the bucket was handed out
  std::vector<std::vector<std::byte>> copies = std::vector<std::vector<std::byte>>(kBuckets);
  std::vector<std::optional<std::vector<std::byte>>> admission =
      std::vector<std::optional<std::vector<std::byte>>>(kBuckets);
  size_t copy_bytes = 0;
  uint32_t next = 0;              // no bucket before it is left
  std::vector<RowNumber> erased;  // given back when the snapshot ends
};

}  // namespace starling
