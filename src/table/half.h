// Weights in 16 bits: bfloat16 and float16, to the nearest or with stochastic rounding.
//
// Uses: base. Threads: any; all are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/rng.h"
#include "base/tensor.h"

namespace starling {

float from_half(uint16_t bits, DType storage);
// To the nearest, ties to even. Values beyond the largest finite one become it; NaN stays NaN.
uint16_t to_half(float x, DType storage);
// Up with the probability of the distance to the lower neighbour; `draw` has 16 random bits or
// more.
uint16_t to_half(float x, DType storage, uint32_t draw);

void decode_half(std::span<const uint16_t> from, DType storage, float* to);
void encode_half(std::span<const float> from, DType storage, uint16_t* to);
// One draw of `rng` per weight, in order.
void encode_half(std::span<const float> from, DType storage, Rng& rng, uint16_t* to);

}  // namespace starling
