#include "data/shuffle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "data/bad_lines.h"
#include "data/data_testing.h"

namespace starling {
namespace {

using data_testing::keys_of;
using data_testing::refs_of;
using testing::ElementsAre;

TEST(ShuffleTest, AnOrderHasEverySampleOnce) {
  for (const uint32_t n : {0U, 1U, 2U, 1000U}) {
    std::vector<uint32_t> order = permutation({.seed = 3}, n);
    std::sort(order.begin(), order.end());
    std::vector<uint32_t> expected(n);
    std::iota(expected.begin(), expected.end(), 0U);
    EXPECT_EQ(order, expected);
  }
}

TEST(ShuffleTest, TheSamePlaceGivesTheSameOrderAndAnotherAnother) {
  const ShufflePlace place{.seed = 1, .epoch = 2, .item = 3, .block = 4};
  const auto order = permutation(place, 100);
  EXPECT_EQ(permutation(place, 100), order);
  for (const ShufflePlace other : {ShufflePlace{2, 2, 3, 4}, ShufflePlace{1, 3, 3, 4},
                                   ShufflePlace{1, 2, 4, 4}, ShufflePlace{1, 2, 3, 5}}) {
    EXPECT_NE(permutation(other, 100), order);
  }
  // Frozen: a hub that takes work over must find the order of the one before, also of an old
  // version.
  EXPECT_THAT(permutation(place, 8), ElementsAre(7, 3, 2, 5, 1, 0, 6, 4));
}

TEST(ShuffleTest, EveryPlaceOfAnOrderIsEquallyLikely) {
  constexpr int kRounds = 6000;
  int counts[5][5] = {};
  for (int round = 0; round < kRounds; ++round) {
    const auto order = permutation({.seed = 9, .block = static_cast<uint64_t>(round)}, 5);
    for (size_t i = 0; i < 5; ++i) ++counts[i][order[i]];
  }
  for (const auto& row : counts) {
    for (const int n : row) EXPECT_NEAR(n, kRounds / 5, 6 * std::sqrt(kRounds * 0.16));
  }
}

// The label rate of batches of a file sorted by label, against what chance gives.
TEST(ShuffleTest, ASortedFileGivesBatchesAsMixedAsChance) {
  constexpr uint32_t kSamples = 100000, kBatch = 500, kPositive = 30000;
  const auto order = permutation({.seed = 5, .epoch = 1}, kSamples);
  double sum = 0, squares = 0;
  constexpr uint32_t kBatches = kSamples / kBatch;
  for (uint32_t batch = 0; batch < kBatches; ++batch) {
    int positive = 0;
    for (uint32_t i = 0; i < kBatch; ++i) positive += order[batch * kBatch + i] < kPositive ? 1 : 0;
    const double rate = static_cast<double>(positive) / kBatch;
    sum += rate;
    squares += rate * rate;
  }
  const double mean = sum / kBatches;
  const double deviation = std::sqrt(squares / kBatches - mean * mean);
  EXPECT_NEAR(mean, 0.3, 1e-9);
  EXPECT_LE(deviation, 1.2 * std::sqrt(0.3 * 0.7 / kBatch));
}

SampleBlock block_with_ids(const std::vector<std::string>& ids) {
  SampleSchema schema;
  schema.keys = {{.name = "a", .keys_max = 3}, {.name = "b"}};
  schema.dense = {"x", "v", "v"};
  schema.has_id = true;
  SampleBlock block(std::make_shared<const SampleSchema>(schema));
  for (size_t i = 0; i < ids.size(); ++i) {
    float* numbers = block.begin();
    for (int n = 0; n < 3; ++n) numbers[n] = static_cast<float>(10 * i + n);
    block.add_key(0, static_cast<Key>(i));
    block.add_key(0, static_cast<Key>(100 + i));
    block.add_key(1, static_cast<Key>(200 + i));
    block.end(ids[i], 0);
  }
  return block;
}

TEST(ShuffleTest, SlotsShuffleMovesOnlyTheFieldsThatAreNamed) {
  const SampleBlock block = block_with_ids(std::vector<std::string>(50, "i"));
  const auto shuffled = slots_shuffle(refs_of(block), {"a", "v"}, {.seed = 1}, 20).value();
  ASSERT_EQ(shuffled.size(), 3u);
  std::vector<uint64_t> first;
  bool together = true;
  for (uint32_t i = 0; i < 50; ++i) {
    const SampleBlock& part = shuffled[i / 20];
    const auto keys = keys_of(part, i % 20, 0);
    ASSERT_EQ(keys.size(), 2u);
    EXPECT_EQ(keys[1], keys[0] + 100);
    first.push_back(keys[0]);
    EXPECT_THAT(keys_of(part, i % 20, 1), ElementsAre(200 + i));
    const auto dense = part.dense(i % 20);
    EXPECT_EQ(dense[0], 10.0f * i);
    EXPECT_EQ(dense[2], dense[1] + 1);
    if (dense[1] != 10.0f * keys[0] + 1) together = false;
  }
  EXPECT_FALSE(together) << "both fields moved by the same order";
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
  std::sort(first.begin(), first.end());
  for (uint32_t i = 0; i < 50; ++i) EXPECT_EQ(first[i], i);
}

TEST(ShuffleTest, SlotsShuffleRefusesAFieldThatIsNotThere) {
  const SampleBlock block = block_with_ids({"i"});
  EXPECT_EQ(slots_shuffle(refs_of(block), {"q"}, {}, 1).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(ShuffleTest, SamplesOfOneIdBecomeOne) {
  const SampleBlock block = block_with_ids({"p", "q", "p", "", "", "p"});
  const auto merged = merge_by_id(refs_of(block), 100).value();
  ASSERT_EQ(merged.size(), 1u);
  ASSERT_EQ(merged[0].samples(), 4u);
  EXPECT_EQ(merged[0].id(0), "p");
  EXPECT_THAT(keys_of(merged[0], 0, 0), ElementsAre(0, 100, 2)) << "keys_max is 3";
  EXPECT_THAT(keys_of(merged[0], 0, 1), ElementsAre(200, 202, 205));
  EXPECT_EQ(merged[0].dense(0)[0], 0.0f);
  EXPECT_EQ(merged[0].id(1), "q");
  EXPECT_EQ(merged[0].id(2), "");
  EXPECT_THAT(keys_of(merged[0], 3, 1), ElementsAre(204));
}

ParseResult bad_of(std::vector<uint64_t> lines) {
  ParseResult result;
  result.counts.bad = lines.size();
  for (const uint64_t line : lines)
    result.bad.push_back({.line = line, .offset = 0, .field = "f", .reason = "is odd", .text = ""});
  return result;
}

TEST(BadLinesTest, WithoutSkipTheFirstIsAnError) {
  BadLines lines({.skip = false});
  EXPECT_TRUE(lines.take("x", bad_of({})).ok());
  const Status status = lines.take("x", bad_of({7, 9}));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(message_of(status), "x:7: field f: is odd");
}

TEST(BadLinesTest, WithSkipTheOneTooManyIsNamed) {
  BadLines lines({.skip = true, .skip_max = 3});
  EXPECT_EQ(lines.kept_max(), 4u);
  EXPECT_TRUE(lines.take("x", bad_of({1, 2})).ok());
  EXPECT_TRUE(lines.take("x", bad_of({3})).ok());
  const Status status = lines.take("y", bad_of({4, 5}));
  EXPECT_THAT(std::string(message_of(status)), testing::HasSubstr("y:4: field f: is odd"));
  EXPECT_EQ(lines.count(), 5u);
}

}  // namespace
}  // namespace starling
