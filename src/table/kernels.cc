#include "table/kernels.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "table/kernels.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "table/lanes.inc"
#include "table/probe.inc"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {

void ask_for_group(const ProbeView& view, Key key) {
  const uint64_t hash = mixed_hash(key);
  __builtin_prefetch(group_of(view, view.placement.bucket(key, hash), hash), 0, kIntoL2);
}

// The slots of the group whose tag fits.
HWY_INLINE uint32_t fitting_slots(const IndexGroup& group, uint64_t hash) {
  return fitting_tags(group, tag_bits(hash)) & group.used;
}

HWY_INLINE void ask_for_fitting(const ProbeView& view, const IndexGroup& group, uint64_t hash) {
  for (uint32_t fits = fitting_slots(group, hash); fits != 0; fits &= fits - 1) {
    prefetch_row(view, row_at(view, group.rows[std::countr_zero(fits)]));
  }
}

HWY_INLINE RowNumber find_fitting(const ProbeView& view, const IndexGroup& group, uint64_t hash,
                                  Key key) {
  for (uint32_t fits = fitting_slots(group, hash); fits != 0; fits &= fits - 1) {
    const RowNumber row = group.rows[std::countr_zero(fits)];
    if (is_row_of(row_at(view, row), key, 0)) return row;
  }
  return kNoRow;
}

// Each stage asks for what the next one reads.
uint64_t look_again(const ProbeView& view, const Key* keys, std::span<const uint32_t> places,
                    RowNumber* rows) {
  uint64_t hashes[kLateBlock];
  const IndexBucket* buckets[kLateBlock];
  const IndexGroup* groups[kLateBlock];
  const IndexGroup* next[kLateBlock];  // null where no key went on
  const size_t n = places.size();
  for (size_t i = 0; i < n; ++i) {
    const Key key = keys[places[i]];
    hashes[i] = mixed_hash(key);
    buckets[i] = view.buckets + view.placement.bucket(key, hashes[i]);
    groups[i] = buckets[i]->groups + slot_bits(hashes[i], buckets[i]->group_count);
    __builtin_prefetch(groups[i], 0, kIntoL2);
  }
  for (size_t i = 0; i < n; ++i) {
    const bool is_last = groups[i] + 1 == buckets[i]->groups + buckets[i]->group_count;
    next[i] = groups[i]->overflow == 0 ? nullptr : is_last ? buckets[i]->groups : groups[i] + 1;
    if (next[i] != nullptr) __builtin_prefetch(next[i], 0, kIntoL2);
  }
  for (size_t i = 0; i < n; ++i) {
    ask_for_fitting(view, *groups[i], hashes[i]);
    if (next[i] != nullptr) ask_for_fitting(view, *next[i], hashes[i]);
  }
  uint64_t further = 0;
  for (size_t i = 0; i < n; ++i) {
    const Key key = keys[places[i]];
    rows[i] = find_fitting(view, *groups[i], hashes[i], key);
    if (rows[i] != kNoRow || next[i] == nullptr) continue;
    rows[i] = find_fitting(view, *next[i], hashes[i], key);
    const bool goes_on = rows[i] == kNoRow && next[i]->overflow != 0;
    further |= uint64_t{goes_on} << i;
  }
  return further;
}

constexpr RowSource source_of(bool hinted) {
  return hinted ? RowSource::kHints : RowSource::kIndex;
}

template <bool kHinted>
size_t find_keys(const ProbeView& view, const ProbePass& pass, size_t first, size_t end,
                 ProbeRing& ring, const FoundRows& found) {
  const uint32_t stamp = pass.stamp;
  RowNumber* rows = found.rows;
  std::byte** data = found.data;
  if (data != nullptr) std::fill_n(data, end - first, nullptr);
  return walk_keys<source_of(kHinted), true>(view, pass, first, end, ring,
                                             [&](size_t i, std::byte* row, size_t at) HWY_ATTR {
                                               if (stamp != 0) set_stamp(row, stamp);
                                               if (rows != nullptr) rows[i - first] = ring.rows[at];
                                               if (data != nullptr) data[i - first] = row;
                                               return true;
                                             });
}

size_t find(const ProbeView& view, const ProbePass& pass, size_t first, size_t end, ProbeRing& ring,
            const FoundRows& found) {
  return pass.hints != nullptr ? find_keys<true>(view, pass, first, end, ring, found)
                               : find_keys<false>(view, pass, first, end, ring, found);
}

// How many floats a row has to copy: a number the compiler knows, or as many as the call says.
inline constexpr size_t kAnyDim = SIZE_MAX;

template <bool kHinted, size_t kDim>
size_t gather_keys(const ProbeView& view, const ProbePass& pass, size_t any_dim, float* out) {
  ProbeRing ring;
  const size_t dim = kDim == kAnyDim ? any_dim : kDim;
  const uint32_t stamp = pass.stamp;
  return walk_keys<source_of(kHinted), false>(
      view, pass, 0, pass.keys.size(), ring, [=](size_t i, std::byte* row, size_t) HWY_ATTR {
        if (stamp != 0) set_stamp(row, stamp);
        const auto* from = reinterpret_cast<const float*>(row + kWeightsOffset);
        copy_floats(from, dim, out + i * dim);
        return true;
      });
}

template <bool kHinted>
size_t gather_dim(const ProbeView& view, const ProbePass& pass, size_t dim, float* out) {
  switch (dim) {
    case 8:
      return gather_keys<kHinted, 8>(view, pass, dim, out);
    case 16:
      return gather_keys<kHinted, 16>(view, pass, dim, out);
    case 32:
      return gather_keys<kHinted, 32>(view, pass, dim, out);
    case 64:
      return gather_keys<kHinted, 64>(view, pass, dim, out);
    default:
      return gather_keys<kHinted, kAnyDim>(view, pass, dim, out);
  }
}

size_t gather(const ProbeView& view, const ProbePass& pass, size_t dim, float* out) {
  return pass.hints != nullptr ? gather_dim<true>(view, pass, dim, out)
                               : gather_dim<false>(view, pass, dim, out);
}

bool finite_rows(const float* values, size_t n, size_t dim, uint8_t* ok) {
  std::memset(ok, 1, n);
  if (is_finite(values, n * dim)) [[likely]]
    return true;
  for (size_t r = 0; r < n; ++r) ok[r] = is_finite(values + r * dim, dim) ? 1 : 0;
  return false;
}

float square_sum(const float* values, size_t n) { return sum_of_squares(values, n); }

struct Clamped {
  Floats low, high;
  HWY_INLINE void operator()(Floats& v, Floats&, Floats&, Floats) const {
    v = hn::IfThenElse(hn::Lt(v, low), low, v);
    v = hn::IfThenElse(hn::Gt(v, high), high, v);
  }
};

struct Scaled {
  Floats factor;
  HWY_INLINE void operator()(Floats& v, Floats&, Floats&, Floats) const { v = hn::Mul(v, factor); }
};

void clip(const float* from, size_t n, float clip_value, float clip_norm, float* to) {
  std::memcpy(to, from, n * sizeof(float));
  if (clip_value != 0) {
    for_weights<0>(n, to, nullptr, nullptr, from, Clamped{all(-clip_value), all(clip_value)});
  }
  if (clip_norm == 0) return;
  const float norm = std::sqrt(sum_of_squares(to, n));
  if (norm > clip_norm) {
    for_weights<0>(n, to, nullptr, nullptr, from, Scaled{all(clip_norm / (norm + 1e-6f))});
  }
}

struct Added {
  HWY_INLINE void operator()(Floats& to, Floats&, Floats&, Floats from) const {
    to = hn::Add(to, from);
  }
};

struct Divided {
  Floats divisor;
  HWY_INLINE void operator()(Floats& v, Floats&, Floats&, Floats) const { v = hn::Div(v, divisor); }
};

struct AddedQuotient {
  Floats divisor;
  HWY_INLINE void operator()(Floats& to, Floats&, Floats&, Floats from) const {
    to = hn::Add(to, hn::Div(from, divisor));
  }
};

void add(const float* from, size_t n, float* to) {
  for_weights<0>(n, to, nullptr, nullptr, from, Added());
}

// What the mean of segment s divides by; 1 for an empty one.
HWY_INLINE float divisor_of(const SegmentLayout& layout, size_t s) {
  const uint32_t own = layout.starts[s + 1] - layout.starts[s];
  const uint32_t count = layout.divisors.empty() ? own : layout.divisors[s];
  return static_cast<float>(count == 0 ? 1 : count);
}

void pool(const SegmentLayout& layout, Pooling pooling, size_t dim, const float* rows, float* out) {
  if (pooling == Pooling::kNone) {
    for (const uint32_t position : layout.positions) {
      std::memcpy(out, rows + position * dim, dim * sizeof(float));
      out += dim;
    }
    return;
  }
  for (size_t s = 0; s < layout.segments(); ++s, out += dim) {
    std::memset(out, 0, dim * sizeof(float));
    for (uint32_t at = layout.starts[s]; at < layout.starts[s + 1]; ++at) {
      add(rows + layout.positions[at] * dim, dim, out);
    }
    if (pooling == Pooling::kMean) {
      for_weights<0>(dim, out, nullptr, nullptr, out, Divided{all(divisor_of(layout, s))});
    }
  }
}

void scatter(const SegmentLayout& layout, Pooling pooling, size_t dim, const float* gradients,
             float* out) {
  if (pooling == Pooling::kNone) {
    for (size_t at = 0; at < layout.positions.size(); ++at) {
      add(gradients + at * dim, dim, out + layout.positions[at] * dim);
    }
    return;
  }
  for (size_t s = 0; s < layout.segments(); ++s, gradients += dim) {
    const AddedQuotient quotient{all(pooling == Pooling::kMean ? divisor_of(layout, s) : 1.0f)};
    for (uint32_t at = layout.starts[s]; at < layout.starts[s + 1]; ++at) {
      for_weights<0>(dim, out + layout.positions[at] * dim, nullptr, nullptr, gradients, quotient);
    }
  }
}

const Kernels& all_kernels() {
  static constexpr Kernels kKernels = {ask_for_group, look_again, find,       gather, finite_rows,
                                       clip,          add,        square_sum, pool,   scatter};
  return kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

namespace {
HWY_EXPORT(all_kernels);
}  // namespace

const Kernels& kernels() { return HWY_DYNAMIC_DISPATCH(all_kernels)(); }

}  // namespace starling
#endif  // HWY_ONCE
