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

template <bool kByRange>
HWY_INLINE void hash_key(const ProbeView& view, Key key, Probe& probe) {
  const uint64_t hash = mixed_hash(key);
  const uint32_t at = kByRange ? view.placement.bucket(key, hash) : bucket_bits(hash);
  const IndexBucket& bucket = view.buckets[at];
  const IndexGroup* group = bucket.groups + slot_bits(hash, bucket.group_count);
  __builtin_prefetch(group, 0, kIntoL2);
  probe.hash = hash;
  probe.bucket = at;
  probe.group = group;
}

void hash_keys(const ProbeView& view, const Key* keys, size_t n, Probe* probes) {
  if (view.placement.by_range()) {
    for (size_t i = 0; i < n; ++i) hash_key<true>(view, keys[i], probes[i]);
  } else {
    for (size_t i = 0; i < n; ++i) hash_key<false>(view, keys[i], probes[i]);
  }
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

// Every line once; a row may start anywhere in a line.
HWY_INLINE void prefetch_row(const ProbeView& view, const std::byte* data) {
  const std::byte* end = data + view.touched_bytes;
  if (view.two_lines) [[likely]] {
    __builtin_prefetch(data, 0, kIntoL2);
    __builtin_prefetch(end - 1, 0, kIntoL2);
    return;
  }
  for (data -= reinterpret_cast<uintptr_t>(data) % kLineBytes; data < end; data += kLineBytes) {
    __builtin_prefetch(data, 0, kIntoL2);
  }
}

HWY_INLINE void match_tag(const ProbeView& view, Probe& probe) {
  const IndexGroup& group = *probe.group;
  const uint32_t fits = fitting_tags(group, tag_bits(probe.hash)) & group.used;
  // Without a fit the last slot is taken: the comparison of keys then says no, and no branch is
  // needed here.
  const int slot = std::countr_zero(fits | (1u << (kGroupSlots - 1)));
  const RowNumber row = group.rows[slot];
  std::byte* data = view.chunks[row >> view.shift] + (row & view.mask) * view.stride;
  prefetch_row(view, data);
  if ((fits & (fits - 1)) != 0) [[unlikely]] {
    // Another slot has the same tag: its row may be asked next.
    const RowNumber other = group.rows[std::countr_zero(fits & (fits - 1))];
    __builtin_prefetch(view.chunks[other >> view.shift] + (other & view.mask) * view.stride);
  }
  probe.row = row;
  probe.data = data;
}

HWY_INLINE uint32_t is_wrong(const Probe& probe, Key key) {
  return static_cast<uint32_t>(key_of(probe.data) != key) |
         static_cast<uint32_t>(stamp_of(probe.data) == 0);
}

// Index lines are asked for last, two rounds before they are read: they travel while the caller
// works on the block that was compared and while the rows of the next one are asked for.
uint32_t probe_block(const ProbeView& view, std::span<const Key> keys, size_t first, Probe* ring) {
  const auto left = [&keys](size_t from) {
    return from < keys.size() ? std::min(kProbeBlock, keys.size() - from) : 0;
  };
  const size_t match = first + kMatchAhead;
  Probe* matched = ring + match % kProbeRing;
  for (size_t i = 0; i < left(match); ++i) match_tag(view, matched[i]);
  const Probe* compared = ring + first % kProbeRing;
  uint32_t wrong = 0;
  for (size_t i = 0; i < left(first); ++i) wrong |= is_wrong(compared[i], keys[first + i]) << i;
  const size_t hash = first + kHashAhead;
  hash_keys(view, keys.data() + std::min(hash, keys.size()), left(hash), ring + hash % kProbeRing);
  return wrong;
}

void start_probes(const ProbeView& view, std::span<const Key> keys, Probe* ring) {
  hash_keys(view, keys.data(), std::min(keys.size(), kHashAhead), ring);
  for (size_t i = 0; i < std::min(keys.size(), kMatchAhead); ++i) match_tag(view, ring[i]);
}

void prefetch_rows(const ProbeView& view, const RowNumber* rows, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const RowNumber row = rows[i] < view.end ? rows[i] : kNoRow;
    prefetch_row(view, view.chunks[row >> view.shift] + (row & view.mask) * view.stride);
  }
}

void copy_rows(const Probe* probes, size_t n, size_t offset, size_t dim, float* out) {
  const Lanes16 d;
  for (size_t r = 0; r < n; ++r, out += dim) {
    const auto* from = reinterpret_cast<const float*>(probes[r].data + offset);
    size_t i = 0;
    for (; i + kLanes <= dim; i += kLanes) hn::StoreU(hn::LoadU(d, from + i), d, out + i);
    for (; i < dim; ++i) out[i] = from[i];
  }
}

struct AllFinite {
  bool ok = true;
  HWY_INLINE void operator()(size_t, Floats v) {
    ok = ok && hn::AllTrue(Lanes16(), hn::Le(hn::Abs(v), all(FLT_MAX)));
  }
};

bool finite_rows(const float* values, size_t n, size_t dim, uint8_t* ok) {
  bool every = true;
  for (size_t r = 0; r < n; ++r) {
    AllFinite check;
    for_values(values + r * dim, dim, check);
    ok[r] = check.ok ? 1 : 0;
    every = every && check.ok;
  }
  return every;
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
  static constexpr Kernels kKernels = {hash_keys,  start_probes, probe_block, prefetch_rows,
                                       copy_rows,  finite_rows,  clip,        add,
                                       square_sum, pool,         scatter};
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
