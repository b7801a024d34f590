#include "table/pooling.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "table/hash.h"
#include "table/kernels.h"

namespace starling {

Status SegmentLayout::check(size_t keys) const {
  if (starts.empty() || starts.front() != 0 || starts.back() != positions.size()) {
    return invalid_argument("layout: starts must run from 0 to the {} positions", positions.size());
  }
  // Without a branch per entry; only a layout that is wrong is looked at entry by entry.
  uint32_t descends = 0;
  for (size_t s = 0; s + 1 < starts.size(); ++s) descends |= uint32_t{starts[s] > starts[s + 1]};
  for (size_t s = 0; descends != 0 && s + 1 < starts.size(); ++s) {
    if (starts[s] > starts[s + 1]) {
      return invalid_argument("layout: segment {} starts at {}, after its end {}", s, starts[s],
                              starts[s + 1]);
    }
  }
  uint32_t highest = 0;
  for (const uint32_t position : positions) highest = std::max(highest, position);
  if (!positions.empty() && highest >= keys) {
    return invalid_argument("layout: position {} is past the {} keys", highest, keys);
  }
  if (divisors.empty()) return {};
  if (divisors.size() != segments()) {
    return invalid_argument("layout: {} divisors for {} segments", divisors.size(), segments());
  }
  for (size_t s = 0; s < segments(); ++s) {
    if (divisors[s] < starts[s + 1] - starts[s]) {
      return invalid_argument("layout: segment {} has {} keys, above its divisor {}", s,
                              starts[s + 1] - starts[s], divisors[s]);
    }
  }
  return {};
}

void pool_rows(const SegmentLayout& layout, Pooling pooling, size_t dim, const float* rows,
               float* out) {
  kernels().pool(layout, pooling, dim, rows, out);
}

void scatter(const SegmentLayout& layout, Pooling pooling, size_t dim,
             std::span<const float> gradients, std::span<float> out) {
  STARLING_CHECK(gradients.size() == layout.outputs(pooling) * dim,
                 "gradients do not fit the layout");
  kernels().scatter(layout, pooling, dim, gradients.data(), out.data());
}

void scatter_counts(const SegmentLayout& layout, std::span<const float> per_segment,
                    std::span<float> per_key) {
  STARLING_CHECK(per_segment.size() == layout.segments(), "one count per segment");
  for (size_t s = 0; s < layout.segments(); ++s) {
    for (uint32_t at = layout.starts[s]; at < layout.starts[s + 1]; ++at) {
      per_key[layout.positions[at]] += per_segment[s];
    }
  }
}

void KeyMerger::merge(std::span<const Key> keys) {
  unique_.clear();
  position_.clear();
  position_.reserve(keys.size());
  const size_t slots = std::bit_ceil(keys.size() * 2 + 1);
  slots_.assign(slots, 0);
  for (const Key key : keys) {
    size_t at = mixed_hash(key) & (slots - 1);
    while (slots_[at] != 0 && unique_[slots_[at] - 1] != key) at = (at + 1) & (slots - 1);
    if (slots_[at] == 0) {
      unique_.push_back(key);
      slots_[at] = static_cast<uint32_t>(unique_.size());
    }
    position_.push_back(slots_[at] - 1);
  }
}

bool KeyMerger::all_differ(std::span<const Key> keys) {
  const size_t slots = std::bit_ceil(keys.size() * 4 + 1);
  slots_.assign(slots, 0);
  for (size_t i = 0; i < keys.size(); ++i) {
    size_t at = mixed_hash(keys[i]) & (slots - 1);
    for (; slots_[at] != 0; at = (at + 1) & (slots - 1)) {
      if (keys[slots_[at] - 1] == keys[i]) return false;
    }
    slots_[at] = static_cast<uint32_t>(i + 1);
  }
  return true;
}

std::vector<float> KeyMerger::sum(std::span<const float> values, size_t dim) const {
  std::vector<float> sums(unique_.size() * dim);
  const Kernels& kernel = kernels();
  for (size_t i = 0; i < position_.size(); ++i) {
    kernel.add(values.data() + i * dim, dim, sums.data() + position_[i] * dim);
  }
  return sums;
}

size_t KeyMerger::bytes() const {
  return unique_.capacity() * sizeof(Key) +
         (position_.capacity() + slots_.capacity()) * sizeof(uint32_t);
}

}  // namespace starling
