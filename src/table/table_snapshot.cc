// Snapshots: rows are copied before they change, unless their bucket is already out.
#include "table/snapshot.h"
#include "table/table.h"

namespace starling {

size_t Snapshot::bytes() const {
  return settled.capacity() * sizeof(uint64_t) + out.capacity() +
         copies.capacity() * sizeof(copies[0]) + admission.capacity() * sizeof(admission[0]) +
         erased.capacity() * sizeof(RowNumber) + copy_bytes;
}

Status Table::begin_snapshot(const SnapshotOptions& options, SnapshotSink& sink) {
  if (snapshot_ != nullptr) {
    return failed_precondition("table '{}': a snapshot is under way", options_.name);
  }
  if (options.filter.since != 0 && options.filter.since < changes_floor_) {
    return out_of_range("table '{}': changes are known after operation {}, not after {}",
                        options_.name, changes_floor_, options.filter.since);
  }
  snapshot_ = std::make_unique<Snapshot>(options, sink, slabs_->end());
  return {};
}

bool Table::advance_snapshot(size_t rows) {
  if (snapshot_ == nullptr) return false;
  size_t handed_out = 0;
  while (snapshot_->next < kBuckets && handed_out <= rows) {
    const uint32_t bucket = snapshot_->next++;
    if (snapshot_->out[bucket] != 0) continue;
    handed_out += index_->rows_in(bucket) + 1;
    emit_bucket(bucket);
  }
  return snapshot_->next < kBuckets;
}

void Table::end_snapshot() {
  if (snapshot_ == nullptr) return;
  const std::unique_ptr<Snapshot> ended = std::move(snapshot_);
  for (const RowNumber row : ended->erased) slabs_->give(row);
}

void Table::preserve(uint32_t bucket, RowNumber row) {
  Snapshot& snapshot = *snapshot_;
  if (snapshot.out[bucket] != 0 || snapshot.is_settled(row)) return;
  if (snapshot.copy_bytes + slabs_->stride() > snapshot.options.copy_bytes_max) {
    emit_bucket(bucket);
    return;
  }
  const std::byte* data = slabs_->at(row);
  std::vector<std::byte>& copies = snapshot.copies[bucket];
  const size_t before = copies.capacity();
  copies.insert(copies.end(), data, data + slabs_->stride());
  snapshot.copy_bytes += copies.capacity() - before;
  snapshot.settle(row);
}

void Table::preserve_admission(uint32_t bucket) {
  Snapshot& snapshot = *snapshot_;
  if (!admission_->has_state() || snapshot.out[bucket] != 0) return;
  auto& kept = snapshot.admission[bucket];
  if (kept.has_value()) return;
  kept.emplace();
  admission_->save(bucket, *kept);
  snapshot.copy_bytes += kept->capacity();
}

void Table::emit_bucket(uint32_t bucket) {
  Snapshot& snapshot = *snapshot_;
  snapshot.out[bucket] = 1;
  std::vector<std::byte> copies = std::move(snapshot.copies[bucket]);
  std::vector<std::byte> admission;
  if (snapshot.admission[bucket].has_value()) {
    admission = *std::move(snapshot.admission[bucket]);
    snapshot.admission[bucket].reset();
    snapshot.copy_bytes -= admission.capacity();
  } else {
    admission_->save(bucket, admission);
  }
  std::vector<const std::byte*> rows;
  rows.reserve(index_->rows_in(bucket) + copies.size() / slabs_->stride());
  index_->for_each(bucket, [&](RowNumber row) {
    if (snapshot.is_settled(row)) return;
    __builtin_prefetch(slabs_->at(row));
    rows.push_back(slabs_->at(row));
  });
  for (size_t at = 0; at < copies.size(); at += slabs_->stride())
    rows.push_back(copies.data() + at);
  snapshot.sink.bucket(BucketId{static_cast<uint16_t>(bucket)},
                       image_of(bucket, snapshot.options.filter, std::move(rows), admission));
  snapshot.copy_bytes -= copies.capacity();
}

}  // namespace starling
