// Layouts of a batch: rows to pooled segments, and gradients of segments back to rows.
//
// Uses: base. Threads: any; all are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace starling {

enum class Pooling { kSum, kMean, kNone };

// Which of a list of unique keys make up each segment. A loan for the call.
struct SegmentLayout {
  std::span<const uint32_t> starts;  // (segments + 1), ascending from 0: segment s has positions
                                     // [starts[s], starts[s + 1])
  std::span<const uint32_t>
      positions;  // into the list of unique keys, in the key order of each segment
  // (segments), or empty for the segment's own length: what a mean divides by, all keys of the
  // segment on all shards.
  std::span<const uint32_t> divisors;

  size_t segments() const { return starts.empty() ? 0 : starts.size() - 1; }
  // Vectors in the pooled output: one per segment, or one per position.
  size_t outputs(Pooling pooling) const {
    return pooling == Pooling::kNone ? positions.size() : segments();
  }
  // InvalidArgument when the spans do not fit each other or a list of `keys` unique keys.
  Status check(size_t keys) const;
};

// Sums (or averages, or lists) the rows (keys, dim) of each segment into out (outputs, dim), in
// position order. The layout must have passed check().
void pool_rows(const SegmentLayout& layout, Pooling pooling, size_t dim, const float* rows,
               float* out);

// The way back: adds the gradient of each output (outputs, dim) to the gradients of its keys (keys,
// dim), which start at zero, in batch order: segment by segment, position by position.
void scatter(const SegmentLayout& layout, Pooling pooling, size_t dim,
             std::span<const float> gradients, std::span<float> out);

// Adds a number per segment (a sample's show or click) to each of its keys, in batch order.
void scatter_counts(const SegmentLayout& layout, std::span<const float> per_segment,
                    std::span<float> per_key);

// The distinct keys of a batch in the order of their first appearance, and which of them each
// position is.
class KeyMerger {
 public:
  void merge(std::span<const Key> keys);
  // Whether no key is there twice; what merge() found is kept.
  bool all_differ(std::span<const Key> keys);

  std::span<const Key> unique() const { return unique_; }
  std::span<const uint32_t> position() const { return position_; }  // (keys) -> index into unique()
  // Sums of rows of equal keys, in batch order: (keys, dim) -> (unique, dim).
  std::vector<float> sum(std::span<const float> values, size_t dim) const;
  size_t bytes() const;

 private:
  std::vector<Key> unique_;
  std::vector<uint32_t> position_;
  std::vector<uint32_t> slots_;  // open addressing: index into unique_ + 1
};

}  // namespace starling
