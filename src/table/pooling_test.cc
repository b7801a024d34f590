#include "table/pooling.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cmath>

#include "base/rng.h"
#include "table/kernels.h"

namespace starling {
namespace {

const std::vector<uint32_t> kStarts = {0, 2, 2, 5};
const std::vector<uint32_t> kPositions = {0, 2, 1, 1, 2};
const std::vector<uint32_t> kDivisors = {4, 1, 3};

TEST(Pooling, SumMeanAndNoneOfSegments) {
  const SegmentLayout layout{kStarts, kPositions, {}};
  ASSERT_TRUE(layout.check(3).ok());
  const std::vector<float> rows = {1, 2, 10, 20, 100, 200};
  std::vector<float> out(6);
  pool_rows(layout, Pooling::kSum, 2, rows.data(), out.data());
  EXPECT_EQ(out, (std::vector<float>{101, 202, 0, 0, 120, 240}));
  pool_rows(layout, Pooling::kMean, 2, rows.data(), out.data());
  EXPECT_EQ(out, (std::vector<float>{50.5, 101, 0, 0, 40, 80}));
  out.resize(10);
  pool_rows(layout, Pooling::kNone, 2, rows.data(), out.data());
  EXPECT_EQ(out, (std::vector<float>{1, 2, 100, 200, 10, 20, 10, 20, 100, 200}));
}

TEST(Pooling, AMeanDividesByAllKeysOfTheSegmentOnAllShards) {
  const SegmentLayout layout{kStarts, kPositions, kDivisors};
  const std::vector<float> rows = {1, 10, 100};
  std::vector<float> out(3);
  pool_rows(layout, Pooling::kMean, 1, rows.data(), out.data());
  EXPECT_EQ(out, (std::vector<float>{25.25, 0, 40}));
  std::vector<float> gradients(3);
  scatter(layout, Pooling::kMean, 1, std::vector<float>{4, 9, 3}, gradients);
  EXPECT_EQ(gradients, (std::vector<float>{1, 2, 2}));
}

TEST(Pooling, ScatterAddsTheGradientOfEverySegmentOfAKey) {
  const SegmentLayout layout{kStarts, kPositions, {}};
  std::vector<float> gradients(3);
  scatter(layout, Pooling::kSum, 1, std::vector<float>{1, 50, 10}, gradients);
  EXPECT_EQ(gradients, (std::vector<float>{1, 20, 11}));
  gradients.assign(3, 0);
  scatter(layout, Pooling::kNone, 1, std::vector<float>{1, 2, 4, 8, 16}, gradients);
  EXPECT_EQ(gradients, (std::vector<float>{1, 12, 18}));
  std::vector<float> shows(3);
  scatter_counts(layout, std::vector<float>{1, 1, 2}, shows);
  EXPECT_EQ(shows, (std::vector<float>{1, 4, 3}));
}

TEST(Pooling, ALayoutThatDoesNotFitIsRefused) {
  const auto refused = [](std::vector<uint32_t> starts, std::vector<uint32_t> positions,
                          std::vector<uint32_t> divisors) {
    EXPECT_EQ((SegmentLayout{starts, positions, divisors}.check(3).code()),
              StatusCode::kInvalidArgument);
  };
  refused({}, {}, {});
  refused({1, 2}, {0, 1}, {});
  refused({0, 1}, {0, 1}, {});
  refused({0, 2, 1, 2}, {0, 1}, {});
  refused({0, 2}, {0, 3}, {});
  refused({0, 2}, {0, 1}, {2, 2});
  refused({0, 2}, {0, 1}, {1});
}

TEST(KeyMerger, SumsEqualKeysInBatchOrder) {
  KeyMerger merger;
  const std::vector<Key> keys = {Key{0}, Key{UINT64_MAX}, Key{0}, Key{5}, Key{0}};
  merger.merge(keys);
  EXPECT_EQ(std::vector<Key>(merger.unique().begin(), merger.unique().end()),
            (std::vector<Key>{Key{0}, Key{UINT64_MAX}, Key{5}}));
  // In any other order the small ones would be lost.
  const std::vector<float> values = {1e8f, 1, -1e8f, 2, 0.5f};
  EXPECT_EQ(merger.sum(values, 1), (std::vector<float>{0.5f, 1, 2}));
  merger.merge({});
  EXPECT_TRUE(merger.unique().empty());
}

// All loops over floats, on every vector target the machine has, give the bits of the first.
TEST(Kernels, EveryVectorTargetGivesTheSameBits) {
  Rng rng(1, 2, 3);
  constexpr size_t kDim = 37;
  std::vector<float> rows(3 * kDim);
  for (float& x : rows) x = static_cast<float>(rng.normal());
  const SegmentLayout layout{kStarts, kPositions, kDivisors};
  std::vector<std::vector<float>> results;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    std::vector<float> result(3 * kDim * 3 + 2);
    kernels().pool(layout, Pooling::kMean, kDim, rows.data(), result.data());
    kernels().scatter(layout, Pooling::kMean, kDim, rows.data(), result.data() + 3 * kDim);
    kernels().clip(rows.data(), 3 * kDim, 1.5f, 2.5f, result.data() + 6 * kDim);
    result[9 * kDim] = kernels().square_sum(rows.data(), 3 * kDim);
    std::vector<float> bad = rows;
    bad[2 * kDim - 1] = -INFINITY;
    uint8_t ok[3] = {};
    EXPECT_FALSE(kernels().finite_rows(bad.data(), 3, kDim, ok));
    EXPECT_EQ(std::vector<int>(ok, ok + 3), (std::vector<int>{1, 0, 1}));
    EXPECT_TRUE(kernels().finite_rows(rows.data(), 3, kDim, ok));
    results.push_back(result);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  ASSERT_GE(results.size(), 1u);
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(Kernels, ClippingByValueComesBeforeClippingByNorm) {
  const std::vector<float> gradient = {30, -4};
  std::vector<float> out(2);
  kernels().clip(gradient.data(), 2, 3, 0, out.data());
  EXPECT_EQ(out, (std::vector<float>{3, -3}));
  kernels().clip(gradient.data(), 2, 4, 1, out.data());
  EXPECT_NEAR(out[0], 0.70710678, 1e-6);
  EXPECT_NEAR(out[1], -0.70710678, 1e-6);
  kernels().clip(gradient.data(), 2, 0, 100, out.data());
  EXPECT_EQ(out, gradient);
}

}  // namespace
}  // namespace starling
