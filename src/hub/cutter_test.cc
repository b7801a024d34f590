#include "hub/cutter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"

namespace starling {
namespace {

// Samples first .. first + n - 1; a sample's label is its number.
std::shared_ptr<const SampleBlock> samples_of(uint32_t first, uint32_t n) {
  static const auto schema = std::make_shared<const SampleSchema>([] {
    SampleSchema made;
    made.labels = {"label"};
    return made;
  }());
  auto block = std::make_shared<SampleBlock>(schema);
  for (uint32_t i = 0; i < n; ++i) {
    *block->begin() = static_cast<float>(first + i);
    block->end();
  }
  return block;
}

// The batches of n samples that arrive in blocks of `arrive`.
std::vector<std::vector<uint32_t>> cut(const CutterOptions& options, uint32_t n, uint32_t arrive) {
  BatchCutter cutter(options);
  std::vector<std::vector<uint32_t>> out;
  const auto take = [&] {
    while (const auto batch = cutter.next()) {
      std::vector<uint32_t>& one = out.emplace_back();
      for (const SampleRef& ref : *batch) {
        one.push_back(static_cast<uint32_t>(ref.block->labels(ref.sample)[0]));
      }
    }
  };
  for (uint32_t at = 0; at < n; at += arrive) {
    cutter.add(samples_of(at, std::min(arrive, n - at)));
    take();
  }
  cutter.end();
  take();
  EXPECT_EQ(cutter.batches(), out.size());
  return out;
}

std::vector<uint32_t> flat(const std::vector<std::vector<uint32_t>>& batches) {
  std::vector<uint32_t> out;
  for (const auto& batch : batches) out.insert(out.end(), batch.begin(), batch.end());
  return out;
}

std::vector<uint32_t> upto(uint32_t n) {
  std::vector<uint32_t> out(n);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

TEST(BatchCutter, KeepsTheOrderOfTheFileAndDeliversTheLastPartialBatch) {
  const auto batches = cut({.batch_size = 4}, 10, 3);
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(batches[2].size(), 2U);
  EXPECT_EQ(flat(batches), upto(10));
}

TEST(BatchCutter, HasNothingWithoutSamples) {
  EXPECT_TRUE(cut({.batch_size = 4, .shuffle_samples = 10}, 0, 1).empty());
}

TEST(BatchCutter, ShufflesBlocksAndLosesNothing) {
  const CutterOptions options{.batch_size = 8, .shuffle_samples = 50, .seed = 1};
  const auto batches = cut(options, 1000, 37);
  std::vector<uint32_t> all = flat(batches);
  EXPECT_NE(all, upto(1000));
  // A block has whole batches: 50 samples become 56, and none leaves its block.
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i] / 56, i / 56);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, upto(1000));
}

TEST(BatchCutter, TheOrderDependsOnSeedEpochAndItemAloneAndNotOnHowSamplesArrive) {
  const CutterOptions options{.batch_size = 8, .shuffle_samples = 64, .seed = 1};
  const auto batches = cut(options, 500, 500);
  EXPECT_EQ(batches, cut(options, 500, 1));
  EXPECT_EQ(batches, cut(options, 500, 77));
  CutterOptions other = options;
  other.epoch = 1;
  EXPECT_NE(batches, cut(other, 500, 500));
  other = options;
  other.item = 1;
  EXPECT_NE(batches, cut(other, 500, 500));
  other = options;
  other.seed = 2;
  EXPECT_NE(batches, cut(other, 500, 500));
}

TEST(BatchCutter, MixesAFileThatIsSortedByLabelAsChanceDoes) {
  constexpr uint32_t kN = 40'000, kSize = 100;
  const auto batches = cut({.batch_size = kSize, .shuffle_samples = kN, .seed = 3}, kN, 1000);
  // The first quarter of the file is clicked.
  double sum = 0;
  for (const auto& batch : batches) {
    const auto clicks =
        std::count_if(batch.begin(), batch.end(), [](uint32_t sample) { return sample < kN / 4; });
    const double rate = static_cast<double>(clicks) / kSize;
    sum += (rate - 0.25) * (rate - 0.25);
  }
  const double deviation = std::sqrt(sum / static_cast<double>(batches.size()));
  EXPECT_LT(deviation, 1.2 * std::sqrt(0.25 * 0.75 / kSize));
}

}  // namespace
}  // namespace starling
