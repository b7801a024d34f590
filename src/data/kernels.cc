#include "data/kernels.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/kernels.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#ifndef STARLING_DATA_KERNELS_ONCE
#define STARLING_DATA_KERNELS_ONCE
namespace starling {

// ln(m * 2^e) with m in [sqrt(1/2), sqrt(2)) is e * ln(2) + 2 * atanh((m - 1) / (m + 1)); the
// series below is exact to a float's last bit in doubles.
inline constexpr double kSeries[] = {2.0 / 13, 2.0 / 11, 2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3, 2.0};
inline constexpr double kLn2 = 0x1.62e42fefa39efp-1;
// Bits of sqrt(1/2): mantissas at or above it keep the exponent below theirs.
inline constexpr uint64_t kHalfRoot = 0x3fe6a09e667f3bcd;
// 2^52 + 2^51: a double that has an integer in its low bits.
inline constexpr double kShifter = 0x1.8p52;

}  // namespace starling
#endif

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kStride = 64;

// One bit per byte of data[0, 64) that equals c.
template <class D>
HWY_INLINE uint64_t mask_of(D d, const uint8_t* data, hn::Vec<D> c) {
  constexpr size_t kLanes = hn::MaxLanes(D());
  static_assert(kStride % kLanes == 0, "a stride is of whole vectors");
  uint64_t bits = 0;
#if HWY_TARGET == HWY_SCALAR
  for (size_t i = 0; i < kStride; ++i) bits |= uint64_t{data[i] == hn::GetLane(c)} << i;
#else
  for (size_t i = 0; i < kStride; i += kLanes) {
    uint8_t packed[8] = {};
    hn::StoreMaskBits(d, hn::Eq(hn::LoadU(d, data + i), c), packed);
    uint64_t part = 0;
    std::memcpy(&part, packed, sizeof(part));
    bits |= part << i;
  }
#endif
  return bits;
}

// Writes the places of the set bits, 8 at a time: what lies behind the count is written over later.
HWY_INLINE uint32_t* write_bits(uint64_t bits, uint32_t at, uint32_t* out) {
  uint32_t* const end = out + std::popcount(bits);
  do {
    for (int i = 0; i < 8; ++i) {
      out[i] = at + static_cast<uint32_t>(std::countr_zero(bits));
      bits &= bits - 1;
    }
    out += 8;
  } while (out < end);
  return end;
}

void FindBoth(std::string_view bytes, char first, char second, Tail<uint32_t>& first_at,
              Tail<uint32_t>& second_at) {
  const hn::CappedTag<uint8_t, 64> d;
  const auto a = hn::Set(d, static_cast<uint8_t>(first));
  const auto b = hn::Set(d, static_cast<uint8_t>(second));
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  for (size_t at = 0; at < bytes.size(); at += kStride) {
    uint8_t last[kStride];
    const uint8_t* from = data + at;
    uint64_t inside = ~uint64_t{0};
    if (bytes.size() - at < kStride) [[unlikely]] {
      std::memset(last, 0, sizeof(last));
      std::memcpy(last, from, bytes.size() - at);
      inside >>= kStride - (bytes.size() - at);
      from = last;
    }
    const uint64_t first_bits = mask_of(d, from, a) & inside;
    const uint64_t second_bits = mask_of(d, from, b) & inside;
    const auto place = static_cast<uint32_t>(at);
    uint32_t* out = first_at.room(kStride + 8);
    first_at.take(static_cast<size_t>(write_bits(first_bits, place, out) - out));
    if (second_bits != 0) {
      out = second_at.room(kStride + 8);
      second_at.take(static_cast<size_t>(write_bits(second_bits, place, out) - out));
    }
  }
}

// Multiplies and additions are never fused, so that every target gives the same bits.
template <class D, class V>
HWY_INLINE V log_lanes(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> ds;
  const auto one = hn::Set(d, 1.0);
  const auto u = hn::Add(hn::Abs(x), one);
  const auto bits = hn::BitCast(du, u);
  // The exponent of u / m, as a signed number in the high bits.
  const auto shifted = hn::Sub(bits, hn::Set(du, kHalfRoot));
  const auto exponent = hn::BitCast(ds, hn::ShiftRight<52>(hn::BitCast(ds, shifted)));
  const auto m = hn::BitCast(d, hn::Sub(bits, hn::BitCast(du, hn::ShiftLeft<52>(exponent))));
  const auto e = hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(ds, hn::Set(d, kShifter)), exponent)),
                         hn::Set(d, kShifter));
  const auto s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  const auto s2 = hn::Mul(s, s);
  auto sum = hn::Set(d, kSeries[0]);
  for (size_t i = 1; i < std::size(kSeries); ++i)
    sum = hn::Add(hn::Mul(sum, s2), hn::Set(d, kSeries[i]));
  const auto log = hn::Add(hn::Mul(e, hn::Set(d, kLn2)), hn::Mul(s, sum));
  return hn::CopySign(log, x);
}

void LogColumns(std::span<float> rows, std::span<const uint8_t> logged) {
  const hn::CappedTag<double, 8> d;
  constexpr size_t kLanes = hn::MaxLanes(d);
  const hn::Rebind<float, decltype(d)> df;
  // The columns of kLanes rows, one behind the other: vectors start at any column.
  const size_t stride = logged.size();
  std::vector<float> wanted(stride * kLanes);
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = logged[i % stride];
  size_t column = 0;
  const auto one = [&](float* at) HWY_ATTR {
    const auto x = hn::LoadU(df, at);
    const auto log = hn::DemoteTo(df, log_lanes(d, hn::PromoteTo(d, x)));
    const auto chosen =
        hn::IfThenElse(hn::Gt(hn::LoadU(df, wanted.data() + column), hn::Zero(df)), log, x);
    hn::StoreU(hn::IfThenElseZero(hn::Eq(x, x), chosen), df, at);
    column += kLanes;
    if (column >= wanted.size()) column = 0;
  };
  size_t at = 0;
  for (; at + kLanes <= rows.size(); at += kLanes) one(rows.data() + at);
  if (at == rows.size()) return;
  float last[kLanes] = {};
  std::memcpy(last, rows.data() + at, (rows.size() - at) * sizeof(float));
  one(last);
  std::memcpy(rows.data() + at, last, (rows.size() - at) * sizeof(float));
}

}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

HWY_EXPORT(FindBoth);
HWY_EXPORT(LogColumns);

void find_both(std::string_view bytes, char first, char second, Tail<uint32_t>& first_at,
               Tail<uint32_t>& second_at) {
  HWY_DYNAMIC_DISPATCH(FindBoth)(bytes, first, second, first_at, second_at);
}

void log_columns(std::span<float> rows, std::span<const uint8_t> logged) {
  HWY_DYNAMIC_DISPATCH(LogColumns)(rows, logged);
}

double log_of(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(std::fabs(x) + 1.0);
  const int64_t exponent = static_cast<int64_t>(bits - kHalfRoot) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(exponent) << 52));
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double sum = kSeries[0];
  for (size_t i = 1; i < std::size(kSeries); ++i) sum = sum * s2 + kSeries[i];
  const double log = static_cast<double>(exponent) * kLn2 + s * sum;
  return std::copysign(log, x);
}

}  // namespace starling
#endif
