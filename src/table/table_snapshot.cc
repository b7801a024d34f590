// Snapshots: rows are copied before they change, unless their bucket is already out.
#include <algorithm>
#include <cstring>

#include "table/snapshot.h"
#include "table/table.h"

namespace starling {
namespace {

// Rows that are on their way from memory while others are copied.
constexpr size_t kCopyAhead = 32;
constexpr size_t kLineBytes = 64;
// Into the second cache level, which has places for all that are on their way.
constexpr int kIntoL2 = 2;

void ask_for(const std::byte* row, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(row + at, 0, kIntoL2);
  __builtin_prefetch(row + bytes - 1, 0, kIntoL2);
}

}  // namespace

RowCopies::RowCopies(size_t stride, size_t rows_bytes, size_t bytes_max, ChunkSource* source)
    : stride_(stride),
      block_bytes_(kBlockRows * stride),
      chunk_bytes_(std::max(block_bytes_, std::min({kChunkBytes, bytes_max, rows_bytes}))),
      chunk_blocks_(static_cast<uint32_t>(chunk_bytes_ / block_bytes_)),
      chunks_max_(bytes_max / chunk_bytes_),
      source_(source) {}

bool RowCopies::add_chunk() {
  if (chunks_.size() >= chunks_max_) return false;
  const auto first = static_cast<uint32_t>(chunks_.size()) * chunk_blocks_;
  Pages chunk;
  if (source_ != nullptr && chunk_bytes_ == kChunkBytes) chunk = source_->take();
  if (chunk.data() == nullptr) {
    chunk = Pages::map(chunk_bytes_, PageSize::kSmall);
    if (chunk.data() == nullptr) return false;
  }
  chunks_.push_back(std::move(chunk));
  next_.resize(first + chunk_blocks_);
  for (uint32_t i = 0; i < chunk_blocks_; ++i) {
    next_[first + i] = i + 1 < chunk_blocks_ ? first + i + 1 : free_;
  }
  free_ = first;
  return true;
}

bool RowCopies::add(uint32_t bucket, const std::byte* row) {
  List& list = lists_[bucket];
  if (list.rows % kBlockRows == 0) {
    if (free_ == kNone && !add_chunk()) return false;
    const uint32_t block = free_;
    free_ = next_[block];
    next_[block] = list.last;
    list.last = block;
    ++used_blocks_;
  }
  std::memcpy(at(list.last, list.rows % kBlockRows), row, stride_);
  ++list.rows;
  return true;
}

void RowCopies::drop(uint32_t bucket) {
  List& list = lists_[bucket];
  while (list.last != kNone) {
    const uint32_t block = list.last;
    list.last = next_[block];
    next_[block] = free_;
    free_ = block;
    --used_blocks_;
  }
  list.rows = 0;
}

size_t RowCopies::bytes() const {
  return chunks_.size() * chunk_bytes_ + next_.capacity() * sizeof(uint32_t) +
         lists_.capacity() * sizeof(List);
}

size_t Snapshot::bytes() const {
  return settled.capacity() * sizeof(uint64_t) + out.capacity() + copies.bytes() +
         admission.capacity() * sizeof(admission[0]) + admission_bytes +
         erased.capacity() * sizeof(RowNumber) + gathered.capacity() * sizeof(gathered[0]);
}

Status Table::begin_snapshot(const SnapshotOptions& options, SnapshotSink& sink) {
  if (snapshot_ != nullptr) {
    return failed_precondition("table '{}': a snapshot is under way", options_.name);
  }
  if (options.filter.since != 0 && options.filter.since < changes_floor_) {
    return out_of_range("table '{}': changes are known after operation {}, not after {}",
                        options_.name, changes_floor_, options.filter.since);
  }
  snapshot_ = std::make_unique<Snapshot>(options, sink, slabs_->end(), stamp(), slabs_->stride());
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

std::unique_ptr<Snapshot> Table::end_snapshot() {
  if (snapshot_ == nullptr) return nullptr;
  for (const RowNumber row : snapshot_->erased) slabs_->give(row);
  return std::move(snapshot_);
}

void Table::preserve(uint32_t bucket, RowNumber row) {
  Snapshot& snapshot = *snapshot_;
  if (snapshot.out[bucket] != 0 || snapshot.is_settled(row)) return;
  if (!snapshot.copies.add(bucket, slabs_->at(row))) return emit_bucket(bucket);
  snapshot.settle(row);
}

void Table::preserve_admission(uint32_t bucket) {
  Snapshot& snapshot = *snapshot_;
  if (!admission_->has_state() || snapshot.out[bucket] != 0) return;
  auto& kept = snapshot.admission[bucket];
  if (kept.has_value()) return;
  kept.emplace();
  admission_->save(bucket, *kept);
  snapshot.admission_bytes += kept->capacity();
}

void Table::emit_bucket(uint32_t bucket) {
  Snapshot& snapshot = *snapshot_;
  snapshot.out[bucket] = 1;
  BucketRows out{.bucket = BucketId{static_cast<uint16_t>(bucket)}, .layout = layout_};
  if (snapshot.admission[bucket].has_value()) {
    out.admission = *std::move(snapshot.admission[bucket]);
    snapshot.admission[bucket].reset();
    snapshot.admission_bytes -= out.admission.capacity();
  } else {
    admission_->save(bucket, out.admission);
  }
  std::vector<const std::byte*>& rows = snapshot.gathered;
  rows.clear();
  index_->for_each(bucket, [&](RowNumber row) {
    if (!snapshot.is_settled(row)) rows.push_back(slabs_->at(row));
  });
  snapshot.copies.for_each(bucket, [&](const std::byte* row) { rows.push_back(row); });
  const RowFilter& filter = snapshot.options.filter;
  if (filter.since != 0 || filter.save != SaveFilter::kAll) {
    for (const std::byte* row : rows) ask_for(row, layout_.payload_end);
    std::erase_if(rows, [&](const std::byte* row) { return !passes(filter, row); });
  }
  const size_t stride = slabs_->stride();
  const size_t bytes = rows.size() * stride;
  BufferPool* pool = snapshot.options.pool;
  out.rows = pool != nullptr ? pool->allocate(bytes) : Buffer::allocate(bytes);
  std::byte* to = out.rows.mutable_data();
  for (size_t i = 0; i < rows.size(); ++i, to += stride) {
    if (i + kCopyAhead < rows.size()) ask_for(rows[i + kCopyAhead], stride);
    std::memcpy(to, rows[i], stride);
  }
  snapshot.copies.drop(bucket);
  snapshot.sink.bucket(std::move(out));
}

}  // namespace starling
