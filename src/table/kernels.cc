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
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {

constexpr size_t kLineBytes = 64;
// The hint of a prefetch. Into the second level: more lines can be on their way than the first
// level has places for, and the loop does not stop when those are taken
// (docs/design/table-index.md).
constexpr int kIntoL2 = 2;

HWY_INLINE const IndexGroup* group_of(const ProbeView& view, uint32_t at, uint64_t hash) {
  const IndexBucket& bucket = view.buckets[at];
  return bucket.groups + slot_bits(hash, bucket.group_count);
}

template <bool kByRange>
HWY_INLINE void ask_for_groups(const ProbeView& view, const Key* keys, size_t n, ProbeRing& ring,
                               size_t at) {
  for (size_t i = 0; i < n; ++i) {
    const uint64_t hash = ring.hashes[at + i];
    const uint32_t bucket = kByRange ? view.placement.bucket(keys[i], hash) : bucket_bits(hash);
    const IndexGroup* group = group_of(view, bucket, hash);
    __builtin_prefetch(group, 0, kIntoL2);
    ring.groups[at + i] = group;
  }
}

// n keys, at most a block. The mix of a whole block is a loop of fixed length, so that the compiler
// makes vectors of it.
HWY_INLINE void hash_block(const ProbeView& view, const Key* keys, size_t n, ProbeRing& ring,
                           size_t at) {
  if (n == kProbeBlock) [[likely]] {
    for (size_t i = 0; i < kProbeBlock; ++i) ring.hashes[at + i] = mixed_hash(keys[i]);
  } else {
    for (size_t i = 0; i < n; ++i) ring.hashes[at + i] = mixed_hash(keys[i]);
  }
  if (view.placement.by_range()) [[unlikely]] {
    ask_for_groups<true>(view, keys, n, ring, at);
  } else if (n == kProbeBlock) [[likely]] {
    ask_for_groups<false>(view, keys, kProbeBlock, ring, at);
  } else {
    ask_for_groups<false>(view, keys, n, ring, at);
  }
}

void ask_for_group(const ProbeView& view, Key key) {
  const uint64_t hash = mixed_hash(key);
  __builtin_prefetch(group_of(view, view.placement.bucket(key, hash), hash), 0, kIntoL2);
}

// Bit i: the tag of slot i fits. Bits of unused slots and of the bytes behind the tags are
// undefined.
HWY_INLINE uint32_t fitting_tags(const IndexGroup& group, uint8_t tag) {
#if HWY_TARGET == HWY_SCALAR
  uint32_t bits = 0;
  for (uint32_t i = 0; i < kGroupSlots; ++i) bits |= uint32_t{group.tags[i] == tag} << i;
  return bits;
#else
  const hn::FixedTag<uint8_t, 16> d;
  // The tags and the two counters behind them make one vector.
  const auto fits = hn::Eq(hn::Load(d, reinterpret_cast<const uint8_t*>(&group)), hn::Set(d, tag));
  uint8_t bits[8] = {};
  hn::StoreMaskBits(d, fits, bits);
  uint16_t low;
  std::memcpy(&low, bits, sizeof low);
  return low;
#endif
}

// Every line of a row, which may start anywhere in a line; as many prefetches for each row, so that
// no branch depends on where it starts.
template <bool kTwoLines>
HWY_INLINE void prefetch_row(const ProbeView& view, const std::byte* data) {
  const std::byte* last = data + view.touched_bytes - 1;
  if constexpr (kTwoLines) {
    __builtin_prefetch(data, 0, kIntoL2);
  } else {
    for (size_t at = 0; at < view.touched_bytes; at += kLineBytes) {
      __builtin_prefetch(data + at, 0, kIntoL2);
    }
  }
  __builtin_prefetch(last, 0, kIntoL2);
}

HWY_INLINE std::byte* row_at(const ProbeView& view, RowNumber row) {
  return view.chunks[row >> view.shift] + (row & view.mask) * view.stride;
}

template <bool kTwoLines>
HWY_INLINE void match_tag(const ProbeView& view, ProbeRing& ring, size_t at) {
  const IndexGroup& group = *ring.groups[at];
  const uint32_t fits = fitting_tags(group, tag_bits(ring.hashes[at])) & group.used;
  // Without a fit the last slot is taken: the comparison of keys then says no, and no branch is
  // needed here.
  const RowNumber row = group.rows[std::countr_zero(fits | (1u << (kGroupSlots - 1)))];
  std::byte* data = row_at(view, row);
  prefetch_row<kTwoLines>(view, data);
  if (const uint32_t others = fits & (fits - 1); others != 0) [[unlikely]] {
    // Another slot has the same tag: its row may be asked next.
    __builtin_prefetch(row_at(view, group.rows[std::countr_zero(others)]), 0, kIntoL2);
  }
  ring.rows[at] = row;
  ring.data[at] = data;
}

void match_tags(const ProbeView& view, ProbeRing& ring, size_t at, size_t n) {
  if (view.two_lines) {
    for (size_t i = 0; i < n; ++i) match_tag<true>(view, ring, at + i);
  } else {
    for (size_t i = 0; i < n; ++i) match_tag<false>(view, ring, at + i);
  }
}

HWY_INLINE void copy_row(const std::byte* row, size_t dim, float* out) {
  const Lanes16 d;
  const auto* from = reinterpret_cast<const float*>(row + kWeightsOffset);
  size_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) hn::StoreU(hn::LoadU(d, from + i), d, out + i);
  if (i < dim) store_tail(load_tail(from + i, dim - i), out + i, dim - i);
}

// Row 0 has the bytes of key 0: where that is asked for, equal bytes prove nothing.
HWY_INLINE bool has_key_zero(const Key* keys, size_t n) {
  uint32_t zeros = 0;
  for (size_t i = 0; i < n; ++i) zeros += static_cast<uint32_t>(value(keys[i]) == 0);
  return zeros != 0;
}

// What a block does with its rows. kDim: floats to copy; kAnyDim: as many as the view says.
inline constexpr size_t kNoCopy = 0;
inline constexpr size_t kAnyDim = SIZE_MAX;

// A whole block, its rows in the ring at `compared`. The next rows are asked for one by one between
// the copies, so that memory is kept busy evenly.
template <size_t kDim, bool kTwoLines>
HWY_INLINE bool whole_block(const ProbeView& shared, const Key* keys, size_t first,
                            ProbeRing& ring) {
  // A copy of its own: stores of vectors could change the shared one, as far as the compiler knows.
  const ProbeView view = shared;
  const size_t dim = kDim == kAnyDim ? view.dim : kDim;
  float* out = view.out + first * dim;
  const size_t matched = (first + kMatchAhead) % kProbeRing;
  const size_t compared = first % kProbeRing;
  keys += first;
  uint64_t differs = 0;
#pragma GCC unroll 8
  for (size_t i = 0; i < kProbeBlock; ++i) {
    match_tag<kTwoLines>(view, ring, matched + i);
    const std::byte* data = ring.data[compared + i];
    differs |= value(key_of(data)) ^ value(keys[i]);
    if constexpr (kDim != kNoCopy) copy_row(data, dim, out + i * dim);
  }
  return differs == 0 && !has_key_zero(keys, kProbeBlock);
}

// The last blocks of a batch, which have fewer keys or none to match.
bool last_block(const ProbeView& view, std::span<const Key> keys, size_t first, ProbeRing& ring) {
  const size_t match = first + kMatchAhead;
  if (match < keys.size()) match_tags(view, ring, match % kProbeRing, keys.size() - match);
  const size_t n = std::min(kProbeBlock, keys.size() - first);
  uint64_t differs = 0;
  for (size_t i = 0; i < n; ++i) {
    const std::byte* data = ring.data[first % kProbeRing + i];
    differs |= value(key_of(data)) ^ value(keys[first + i]);
    if (view.out != nullptr) copy_row(data, view.dim, view.out + (first + i) * view.dim);
  }
  return differs == 0 && !has_key_zero(keys.data() + first, n);
}

bool probe_block(const ProbeView& view, std::span<const Key> keys, size_t first, ProbeRing& ring) {
  bool right;
  if (first + kMatchAhead + kProbeBlock > keys.size()) [[unlikely]] {
    right = last_block(view, keys, first, ring);
  } else if (!view.two_lines) {
    right = view.out == nullptr ? whole_block<kNoCopy, false>(view, keys.data(), first, ring)
                                : whole_block<kAnyDim, false>(view, keys.data(), first, ring);
  } else if (view.out == nullptr) {
    right = whole_block<kNoCopy, true>(view, keys.data(), first, ring);
  } else if (view.dim == 16) {
    right = whole_block<16, true>(view, keys.data(), first, ring);
  } else {
    right = whole_block<kAnyDim, true>(view, keys.data(), first, ring);
  }
  const size_t hash = first + kHashAhead;
  if (hash < keys.size()) {
    hash_block(view, keys.data() + hash, std::min(kProbeBlock, keys.size() - hash), ring,
               hash % kProbeRing);
  }
  return right;
}

void start_probes(const ProbeView& view, std::span<const Key> keys, ProbeRing& ring) {
  for (size_t at = 0; at < std::min(keys.size(), kHashAhead); at += kProbeBlock) {
    hash_block(view, keys.data() + at, std::min(kProbeBlock, keys.size() - at), ring, at);
  }
  match_tags(view, ring, 0, std::min(keys.size(), kMatchAhead));
}

void prefetch_rows(const ProbeView& view, const RowNumber* rows, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const std::byte* data = row_at(view, rows[i] < view.end ? rows[i] : kNoRow);
    view.two_lines ? prefetch_row<true>(view, data) : prefetch_row<false>(view, data);
  }
}

void copy_rows(std::byte* const* rows, size_t n, size_t dim, float* out) {
  for (size_t r = 0; r < n; ++r) copy_row(rows[r], dim, out + r * dim);
}

struct AllFinite {
  hn::Mask<Lanes16> ok;
  HWY_INLINE void operator()(size_t, Floats v) {
    ok = hn::And(ok, hn::Le(hn::Abs(v), all(FLT_MAX)));
  }
};

HWY_INLINE bool is_finite(const float* values, size_t n) {
  AllFinite check{hn::Eq(all(0), all(0))};
  for_values(values, n, check);
  return hn::AllTrue(Lanes16(), check.ok);
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
  static constexpr Kernels kKernels = {ask_for_group, start_probes, probe_block, prefetch_rows,
                                       copy_rows,     finite_rows,  clip,        add,
                                       square_sum,    pool,         scatter};
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
