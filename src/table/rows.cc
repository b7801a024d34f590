#include "table/rows.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace starling {

namespace {

constexpr size_t kChunkBytesMin = 8 << 20;

size_t aligned(size_t offset, size_t unit) { return (offset + unit - 1) / unit * unit; }

// In the row, from its `click` offset.
struct ClickFields {
  double show;
  double click;
  float delta_score;
  uint32_t unseen_days;
};
static_assert(sizeof(ClickFields) == 24);

template <class T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
void write(std::byte* at, const T& value) {
  std::memcpy(at, &value, sizeof value);
}

void set_next_free(std::byte* row, RowNumber next) {
  write<uint64_t>(row, next);
  set_stamp(row, 0);
}

}  // namespace

RowLayout RowLayout::make(const RowLayoutOptions& options) {
  RowLayout layout;
  layout.dim = options.dim;
  layout.storage = options.storage;
  layout.weight_bytes = options.dim * dtype_bytes(options.storage);
  layout.state_floats = options.state_floats;
  layout.state = aligned(kWeightsOffset + layout.weight_bytes, 4);
  size_t at = layout.state + options.state_floats * sizeof(float);
  const bool any = options.click || options.last_step || options.touches || options.second;
  if (any) at = aligned(at, 8);
  layout.statistics = at;
  const auto place = [&at](bool wanted, size_t bytes) -> size_t {
    if (!wanted) return 0;
    const size_t offset = at;
    at += bytes;
    return offset;
  };
  layout.click = place(options.click, sizeof(ClickFields));
  layout.last_step = place(options.last_step, sizeof(uint64_t));
  layout.touches = place(options.touches, sizeof(uint64_t));
  layout.second = place(options.second, sizeof(uint32_t));
  layout.payload_end = at;
  layout.stride = aligned(at, 8);
  return layout;
}

RowStatistics RowLayout::read_statistics(const std::byte* row) const {
  RowStatistics statistics;
  if (click != 0) {
    const auto fields = read<ClickFields>(row + click);
    statistics.show = fields.show;
    statistics.click = fields.click;
    statistics.delta_score = fields.delta_score;
    statistics.unseen_days = fields.unseen_days;
  }
  if (last_step != 0) statistics.last_step = read<uint64_t>(row + last_step);
  if (touches != 0) statistics.touches = read<uint64_t>(row + touches);
  if (second != 0) statistics.second = read<uint32_t>(row + second) != 0;
  return statistics;
}

void RowLayout::write_statistics(std::byte* row, const RowStatistics& statistics) const {
  if (click != 0) {
    write(row + click, ClickFields{statistics.show, statistics.click, statistics.delta_score,
                                   statistics.unseen_days});
  }
  if (last_step != 0) write<uint64_t>(row + last_step, statistics.last_step);
  if (touches != 0) write<uint64_t>(row + touches, statistics.touches);
  if (second != 0) write<uint32_t>(row + second, statistics.second ? 1 : 0);
}

RowSlabs::RowSlabs(size_t stride) : stride_(stride) {
  // A power of two of rows, so that a number splits by shift and mask.
  shift_ = 0;
  while ((stride_ << shift_) < kChunkBytesMin) ++shift_;
  mask_ = (1u << shift_) - 1;
  const Status first = reserve(1);
  STARLING_CHECK(first.ok(), "no address space for the first chunk of rows");
  fresh();
}

Status RowSlabs::reserve(size_t rows) {
  const uint64_t wanted = rows > free_rows_ ? uint64_t{end_} + rows - free_rows_ : end_;
  if (wanted > UINT32_MAX) {
    return resource_exhausted("{} rows do not fit a table, which holds 2^32 - 1", wanted);
  }
  while ((uint64_t{chunks_.size()} << shift_) < wanted) {
    if (!add_chunk()) {
      return resource_exhausted("the system has no room for another {} bytes of rows",
                                chunk_bytes());
    }
  }
  return {};
}

bool RowSlabs::add_chunk() {
  Pages chunk = is_stocked() ? std::exchange(stock_, {}) : Pages::map(chunk_bytes());
  if (chunk.data() == nullptr) return false;
  chunks_data_.push_back(chunk.data());
  chunks_.push_back(std::move(chunk));
  return true;
}

bool RowSlabs::prepare() {
  constexpr size_t kAheadBytes = kHugePageBytes / 2;
  if (free_rows_ * stride_ >= kAheadBytes) return false;
  const size_t at = end_ >> shift_;
  const size_t wanted = (end_ & mask_) * stride_ + kAheadBytes;
  // The page of the last row to prepare, in its chunk or at the start of the next.
  const size_t chunk = wanted <= chunk_bytes() ? at : at + 1;
  const size_t bytes = wanted <= chunk_bytes() ? wanted : wanted - chunk_bytes();
  while (chunks_.size() <= chunk) {
    if (!add_chunk()) return false;
  }
  if (chunks_[chunk].present_bytes() >= bytes) return false;
  chunks_[chunk].ensure(bytes);
  return true;
}

RowNumber RowSlabs::fresh() {
  const RowNumber row = end_++;
  chunks_[row >> shift_].ensure(((row & mask_) + 1) * stride_);
  return row;
}

RowNumber RowSlabs::take() {
  if (free_head_ == kNoRow) return fresh();
  const RowNumber row = free_head_;
  free_head_ = static_cast<RowNumber>(value(key_of(at(row))));
  --free_rows_;
  std::memset(at(row), 0, stride_);
  return row;
}

void RowSlabs::give(RowNumber row) {
  set_next_free(at(row), free_head_);
  free_head_ = row;
  ++free_rows_;
}

std::vector<RowNumber> RowSlabs::free_list() const {
  std::vector<RowNumber> list;
  list.reserve(free_rows_);
  for (RowNumber row = free_head_; row != kNoRow;
       row = static_cast<RowNumber>(value(key_of(at(row))))) {
    list.push_back(row);
  }
  std::sort(list.begin(), list.end());
  return list;
}

void RowSlabs::trim(RowNumber end, const std::vector<RowNumber>& free_rows) {
  // What stays present past the end must read as zero when it is taken again.
  const RowNumber old_end = end_;
  end_ = end;
  free_head_ = kNoRow;
  free_rows_ = 0;
  for (auto row = free_rows.rbegin(); row != free_rows.rend(); ++row) give(*row);
  const size_t chunks = ((end_ - 1) >> shift_) + size_t{1};
  chunks_.resize(chunks);
  chunks_data_.resize(chunks);
  Pages& last = chunks_.back();
  const size_t used = (((end_ - 1) & mask_) + size_t{1}) * stride_;
  last.release_past(used);
  const size_t stale = std::min<size_t>((old_end - end_) * stride_, last.present_bytes() - used);
  std::memset(last.data() + used, 0, stale);
}

size_t RowSlabs::bytes() const {
  size_t bytes = 0;
  for (const Pages& chunk : chunks_) bytes += chunk.present_bytes();
  return bytes + stock_.present_bytes() + chunks_.capacity() * sizeof(Pages) +
         chunks_data_.capacity() * sizeof(std::byte*);
}

}  // namespace starling
