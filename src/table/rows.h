// The rows of a table: where the parts of a row lie, and the slabs of equal rows that hold them.
//
// A row is key (8 bytes), stamp (4), weights, optimizer state, statistics, together and unpadded
// but for alignment. Uses: base. Threads: shard-local, as the table that owns them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/ids.h"
#include "base/tensor.h"
#include "table/pages.h"
#include "table/statistics.h"

namespace starling {

// The number of a row in its table. Stable until the row is erased or shrink moves it.
using RowNumber = uint32_t;
// Row 0 exists in every table, belongs to no key, is never live and has zero weights.
inline constexpr RowNumber kNoRow = 0;

inline constexpr size_t kStampOffset = 8;
inline constexpr size_t kWeightsOffset = 12;

inline Key key_of(const std::byte* row) {
  uint64_t key;
  std::memcpy(&key, row, sizeof key);
  return Key{key};
}
// The operation that touched the row last; 0 means that the row is free.
inline uint32_t stamp_of(const std::byte* row) {
  uint32_t stamp;
  std::memcpy(&stamp, row + kStampOffset, sizeof stamp);
  return stamp;
}
inline void set_stamp(std::byte* row, uint32_t stamp) {
  std::memcpy(row + kStampOffset, &stamp, sizeof stamp);
}

struct RowLayoutOptions {
  size_t dim = 0;
  DType storage = DType::kFloat32;
  size_t state_floats = 0;
  bool click = false;  // show, click, delta score, unseen days
  bool last_step = false;
  bool touches = false;
  bool second = false;
};

// Offsets in bytes from the start of a row; 0 for what the table does not keep.
struct RowLayout {
  static RowLayout make(const RowLayoutOptions& options);

  size_t dim = 0;
  DType storage = DType::kFloat32;
  size_t weight_bytes = 0;  // of all weights
  size_t state_floats = 0;
  size_t state = 0;
  size_t statistics = 0;  // where statistics start; the end of the state where there are none
  size_t click = 0;
  size_t last_step = 0;
  size_t touches = 0;
  size_t second = 0;
  size_t payload_end = 0;  // past the last byte that means something
  size_t stride = 0;       // a multiple of 8

  bool is_float32() const { return storage == DType::kFloat32; }
  float* weights_of(std::byte* row) const { return reinterpret_cast<float*>(row + kWeightsOffset); }
  uint16_t* halves_of(std::byte* row) const {
    return reinterpret_cast<uint16_t*>(row + kWeightsOffset);
  }
  float* state_of(std::byte* row) const { return reinterpret_cast<float*>(row + state); }

  RowStatistics read_statistics(const std::byte* row) const;
  void write_statistics(std::byte* row, const RowStatistics& statistics) const;
};

// Rows of one size in chunks of huge pages. Numbers are given out densely; freed rows are used
// again first.
class RowSlabs {
 public:
  explicit RowSlabs(size_t stride);

  std::byte* at(RowNumber row) const {
    return chunks_data_[row >> shift_] + (row & mask_) * stride_;
  }
  // One past the highest number in use.
  RowNumber end() const { return end_; }
  size_t free_rows() const { return free_rows_; }
  size_t live_rows() const { return end_ - 1 - free_rows_; }

  // Makes room for `rows` more. ResourceExhausted: no more numbers, or the system has no address
  // space.
  Status reserve(size_t rows);
  // Makes one huge page behind the last row present where less than half of one is. False: nothing
  // to do.
  bool prepare();
  // The next chunk of rows: zeroed, chunk_bytes() of memory, present or not. One at a time.
  void stock(Pages chunk) { stock_ = std::move(chunk); }
  bool is_stocked() const { return stock_.data() != nullptr; }
  size_t chunk_bytes() const { return stride_ << shift_; }
  // A zeroed row; reserve() first.
  RowNumber take();
  // The row may be given out again; its stamp becomes 0.
  void give(RowNumber row);
  // All free numbers below end(), ascending.
  std::vector<RowNumber> free_list() const;
  // Forgets all rows from `end` on (nobody uses them) and gives their memory back; the free rows
  // below `end` become exactly `free_rows`.
  void trim(RowNumber end, const std::vector<RowNumber>& free_rows);

  size_t bytes() const;

  // For the probe loops, which compute at() themselves.
  std::byte* const* chunk_table() const { return chunks_data_.data(); }
  uint32_t shift() const { return shift_; }
  uint32_t mask() const { return mask_; }
  size_t stride() const { return stride_; }

 private:
  RowNumber fresh();
  bool add_chunk();

  const size_t stride_;
  uint32_t shift_;
  uint32_t mask_;
  std::vector<Pages> chunks_;
  Pages stock_;  // becomes the next chunk
  std::vector<std::byte*> chunks_data_;
  RowNumber end_ = 0;
  RowNumber free_head_ = kNoRow;
  size_t free_rows_ = 0;
};

}  // namespace starling
