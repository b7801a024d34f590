// PreparedBatch is what a shard keeps of a fed batch: the keys, where their rows are, and which
// samples use them.
//
// Uses: base, wire, table. Threads: shard-local values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/tensor.h"
#include "table/pooling.h"
#include "table/table.h"
#include "wire/message.h"

namespace starling {

inline constexpr uint32_t kSamplesMax = 1 << 20;

// One field's segments on this shard. The tensors are slices of the message that brought them.
struct PreparedField {
  std::string name;
  bool pooled = false;  // travels as sums of segments
  Tensor samples;       // uint32[S]
  Tensor starts;        // uint32[S + 1]
  Tensor positions;     // uint32[starts[S]]

  SegmentLayout layout() const {
    return {.starts = starts.values<uint32_t>(),
            .positions = positions.values<uint32_t>(),
            .divisors = {}};
  }
  size_t segments() const { return static_cast<size_t>(samples.elements()); }
};

// One table's keys.
struct PreparedPart {
  std::string table;
  Tensor keys_tensor;     // uint64[U], each once
  uint32_t row_keys = 0;  // the first of them travel as rows
  std::vector<PreparedField> fields;
  RowHints hints;

  std::span<const Key> keys() const {
    return {reinterpret_cast<const Key*>(keys_tensor.buffer().data()),
            keys_tensor.bytes() / sizeof(Key)};
  }
};

struct PreparedBatch {
  std::vector<uint64_t> content_hashes;  // of the messages that brought it
  uint32_t parts_announced = 0;          // over all messages; 0: what the first one brought
  uint32_t samples = 0;
  uint64_t step = 0;
  uint64_t map_version = 0;
  NodeId hub{0};
  Incarnation hub_incarnation{0};
  std::vector<PreparedPart> parts;
  size_t bytes = 0;  // of the tensors

  const PreparedPart* find(const std::string& table) const;
  PreparedPart* find(const std::string& table);
  bool is_whole() const { return parts.size() >= parts_announced; }
  // Another message of the same batch, with parts that are missing here.
  bool is_continued_by(const PreparedBatch& next) const;
  void add(PreparedBatch next);
};

// Checks a FeedSample whole: types, shapes, orders, bounds, no key twice. Where the rows are is
// left to the shard. InvalidArgument names the table, the field and what is wrong. `merger` is
// memory that feeds share.
StatusOr<PreparedBatch> decode_feed(const Message& request, KeyMerger& merger);

// The tensor at `index` of a message, of this type and number of extents. InvalidArgument names
// `what`.
StatusOr<const Tensor*> tensor_at(const Message& message, uint32_t index, std::string_view what,
                                  DType dtype, size_t rank);
// The same for a matrix with these extents.
StatusOr<const Tensor*> matrix_at(const Message& message, uint32_t index, std::string_view what,
                                  size_t rows, size_t columns);
// No NaN, no infinity.
bool all_finite(std::span<const float> values);
// XXH3-64 of the tensors and the option (of a feed: its parts): what makes two requests the same.
uint64_t content_hash(const Message& message);

}  // namespace starling
