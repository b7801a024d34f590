#include "table/half.h"

#include <bit>
#include <cmath>

namespace starling {

namespace {

constexpr uint32_t kFloatInfinity = 0x7f800000;

// Cuts `dropped` low bits of a magnitude off after adding `bias` to them, so that the bias decides
// the direction.
uint32_t cut(uint32_t magnitude, uint32_t dropped, uint32_t bias) {
  return static_cast<uint32_t>((uint64_t{magnitude} + bias) >> dropped);
}

uint32_t nearest_bias(uint32_t magnitude, uint32_t dropped) {
  return (1u << (dropped - 1)) - 1 + ((magnitude >> dropped) & 1);
}

// The lowest `dropped` bits of a draw, stretched where more than 16 are needed.
uint32_t random_bias(uint32_t draw, uint32_t dropped) {
  return (mix64(draw) & ((uint64_t{1} << dropped) - 1)) & 0xffffffff;
}

template <class Bias>
uint16_t bfloat_of(float x, Bias bias) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > kFloatInfinity) return static_cast<uint16_t>(sign | 0x7fc0);
  const uint32_t rounded = cut(magnitude, 16, bias(magnitude, 16));
  return static_cast<uint16_t>(sign | (rounded > 0x7f7f ? 0x7f7f : rounded));
}

template <class Bias>
uint16_t half_of(float x, Bias bias) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000;
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > kFloatInfinity) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 0x47800000) return static_cast<uint16_t>(sign | 0x7bff);  // 65536 and above
  uint32_t rounded = 0;
  if (magnitude >= 0x38800000) {  // 2^-14: normal
    magnitude -= 0x38000000;      // from bias 127 to bias 15
    rounded = cut(magnitude, 13, bias(magnitude, 13));
  } else {
    // The mantissa with its leading bit, in units of 2^-24 after dropping.
    const uint32_t exponent = magnitude >> 23;
    if (exponent < 94)
      return static_cast<uint16_t>(sign);  // below 2^-33: nothing a draw could lift
    const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
    const uint32_t dropped = 126 - exponent;
    rounded = dropped > 31 ? 0 : cut(mantissa, dropped, bias(mantissa, dropped));
  }
  return static_cast<uint16_t>(sign | (rounded > 0x7bff ? 0x7bff : rounded));
}

struct Nearest {
  uint32_t operator()(uint32_t magnitude, uint32_t dropped) const {
    return nearest_bias(magnitude, dropped);
  }
};

struct Drawn {
  uint32_t draw;
  uint32_t operator()(uint32_t, uint32_t dropped) const { return random_bias(draw, dropped); }
};

}  // namespace

float from_half(uint16_t bits, DType storage) {
  if (storage == DType::kBFloat16) return std::bit_cast<float>(uint32_t{bits} << 16);
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | kFloatInfinity | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t to_half(float x, DType storage) {
  return storage == DType::kBFloat16 ? bfloat_of(x, Nearest()) : half_of(x, Nearest());
}

uint16_t to_half(float x, DType storage, uint32_t draw) {
  return storage == DType::kBFloat16 ? bfloat_of(x, Drawn{draw}) : half_of(x, Drawn{draw});
}

void decode_half(std::span<const uint16_t> from, DType storage, float* to) {
  for (size_t i = 0; i < from.size(); ++i) to[i] = from_half(from[i], storage);
}

void encode_half(std::span<const float> from, DType storage, uint16_t* to) {
  for (size_t i = 0; i < from.size(); ++i) to[i] = to_half(from[i], storage);
}

void encode_half(std::span<const float> from, DType storage, Rng& rng, uint16_t* to) {
  for (size_t i = 0; i < from.size(); ++i) to[i] = to_half(from[i], storage, rng.next_u32());
}

}  // namespace starling
