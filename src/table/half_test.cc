#include "table/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace starling {
namespace {

TEST(Half, EveryFiniteHalfSurvivesTheWayThroughFloat) {
  for (const DType storage : {DType::kBFloat16, DType::kFloat16}) {
    const uint32_t infinity = storage == DType::kBFloat16 ? 0x7f80 : 0x7c00;
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      if ((bits & 0x7fff) >= infinity) continue;
      const float x = from_half(static_cast<uint16_t>(bits), storage);
      ASSERT_EQ(to_half(x, storage), bits);
      ASSERT_EQ(to_half(x, storage, 0x12345), bits) << "what needs no rounding is never moved";
    }
  }
}

TEST(Half, KnownValues) {
  EXPECT_EQ(to_half(1.0f, DType::kFloat16), 0x3c00);
  EXPECT_EQ(to_half(-2.5f, DType::kFloat16), 0xc100);
  EXPECT_EQ(to_half(0x1p-24f, DType::kFloat16), 0x0001);
  EXPECT_EQ(to_half(1.0f, DType::kBFloat16), 0x3f80);
  EXPECT_EQ(to_half(1.0f + 0x1p-8f, DType::kBFloat16), 0x3f80) << "a tie goes to even";
  EXPECT_EQ(to_half(1.0f + 0x1.8p-7f, DType::kBFloat16), 0x3f82) << "a tie goes to even";
}

TEST(Half, WhatIsTooLargeBecomesTheLargestAndNanStaysNan) {
  for (const DType storage : {DType::kBFloat16, DType::kFloat16}) {
    const float top = storage == DType::kBFloat16 ? from_half(0x7f7f, storage) : 65504.0f;
    for (const float x : {INFINITY, 3.4e38f}) {
      EXPECT_EQ(from_half(to_half(x, storage), storage), top);
      EXPECT_EQ(from_half(to_half(-x, storage, 0xffffffff), storage), -top);
    }
    EXPECT_TRUE(std::isnan(from_half(to_half(NAN, storage), storage)));
  }
}

TEST(Half, StochasticRoundingIsRightOnAverage) {
  Rng rng(1, 2, 3);
  for (const DType storage : {DType::kBFloat16, DType::kFloat16}) {
    for (const float x : {1.001f, -0.3333f, 1e-5f, 3e-8f, 100.07f}) {
      double sum = 0;
      constexpr int kDraws = 20000;
      const float low = from_half(to_half(x, storage), storage);
      double step = 0;
      for (int i = 0; i < kDraws; ++i) {
        const float y = from_half(to_half(x, storage, rng.next_u32()), storage);
        sum += y;
        step = std::max(step, std::abs(static_cast<double>(y) - low));
      }
      EXPECT_NEAR(sum / kDraws, x, step * 0.02 + 1e-12) << x;
      EXPECT_GT(step, 0) << "some draws go up, some down";
    }
  }
}

}  // namespace
}  // namespace starling
