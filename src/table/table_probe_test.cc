#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <set>

#include "base/rng.h"
#include "table/table.h"

namespace starling {
namespace {

// Whole blocks, parts of them, and every place where a stage of the walk starts or ends.
constexpr size_t kBatches[] = {0, 1, 7, 8, 9, 31, 32, 33, 39, 40, 41, 63, 64, 65, 72, 300};

std::unique_ptr<Table> make_table(uint32_t dim, Placement placement) {
  TableOptions options;
  options.name = "probe";
  options.dim = dim;
  options.placement = placement;
  options.optimizer = {"sgd", {{"lr", 1}}};
  options.initializer.kind = "uniform";
  auto made = Table::make(options);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

// Of a range table thousands of keys share a bucket, so that groups are full and tags equal.
Key key_at(uint64_t i, bool ranged) { return Key{ranged ? i : mix64(i)}; }

class ProbeTest : public testing::TestWithParam<bool> {
 protected:
  static constexpr uint64_t kRows = 6000;

  std::unique_ptr<Table> filled(uint32_t dim) const {
    auto table =
        make_table(dim, GetParam() ? Placement{0, uint64_t{4096} * 3000} : Placement{0, 0});
    std::vector<Key> keys;
    for (uint64_t i = 0; i < kRows; ++i) keys.push_back(key_at(2 * i + 1, GetParam()));
    const std::vector<float> gradients(keys.size() * dim, 0.5f);
    PushBatch batch;
    batch.keys = keys;
    batch.gradients = gradients;
    EXPECT_EQ(table->push(batch)->created, kRows);
    return table;
  }

  // Odd numbers have a row, even ones have none.
  std::vector<Key> draw(size_t n, bool only_found, Rng& rng) const {
    std::vector<Key> keys;
    while (keys.size() < n) {
      const uint64_t i = rng.below(2 * kRows) | (only_found ? 1 : 0);
      keys.push_back(key_at(i, GetParam()));
    }
    return keys;
  }

  // get() looks for one key at a time, without the kernels.
  void check_reads(const Table& table, const std::vector<Key>& keys) {
    RowBatch expected;
    ASSERT_TRUE(table.get(keys, expected).ok());
    std::vector<float> out(keys.size() * table.dim());
    ASSERT_TRUE(table.gather(keys, nullptr, out).ok());
    ASSERT_EQ(out, expected.weights);
    RowHints hints;
    ASSERT_TRUE(table.locate(keys, hints).ok());
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(hints.rows[i] != kNoRow, expected.found[i] == 1) << i;
    }
    std::fill(out.begin(), out.end(), -1.0f);
    ASSERT_TRUE(table.gather(keys, &hints, out).ok());
    ASSERT_EQ(out, expected.weights);
  }
};

TEST_P(ProbeTest, EveryVectorTargetFindsWhatHasARowInBatchesOfAnySize) {
  Rng rng(3, 1, 4);
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    for (const uint32_t dim : {1u, 8u, 16u, 40u}) {
      const auto table = filled(dim);
      for (const size_t n : kBatches) {
        check_reads(*table, draw(n, true, rng));
        check_reads(*table, draw(n, false, rng));
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST_P(ProbeTest, ResolveTouchesExactlyTheKeysOfItsBatchAndReadsThem) {
  Rng rng(2, 7, 1);
  for (const uint32_t dim : {8u, 16u}) {
    const auto table = filled(dim);
    for (const size_t n : kBatches) {
      const std::vector<Key> keys = draw(n, true, rng);
      const uint64_t before = table->operation();
      PushBatch batch;
      batch.keys = keys;
      batch.key_set = KeySet::kUnique;
      std::vector<float> out(n * dim);
      ASSERT_TRUE(table->resolve(batch, nullptr, out).ok());
      RowBatch expected;
      ASSERT_TRUE(table->get(keys, expected).ok());
      ASSERT_EQ(out, expected.weights);
      std::set<Key> touched;
      ASSERT_TRUE(table
                      ->changed_since(
                          before, [&](Key key) { touched.insert(key); }, [](Key) { FAIL(); })
                      .ok());
      ASSERT_EQ(touched, std::set<Key>(keys.begin(), keys.end()));
    }
  }
}

// The row that stands for "none" has the bytes of key 0.
TEST_P(ProbeTest, KeyZeroHasNoRowUntilOneIsCreated) {
  Rng rng(5, 5, 5);
  const auto table = filled(16);
  for (const size_t n : kBatches) {
    for (size_t at = 0; at < n; at += 3) {
      std::vector<Key> keys = draw(n, true, rng);
      keys[at] = Key{0};
      check_reads(*table, keys);
    }
  }
  const std::vector<Key> zero(1, Key{0});
  PushBatch batch;
  batch.keys = zero;
  ASSERT_EQ(table->resolve(batch, nullptr)->created, 1u);
  ASSERT_EQ(table->resolve(batch, nullptr)->found, 1u);
  std::vector<Key> keys = draw(100, true, rng);
  keys[50] = Key{0};
  check_reads(*table, keys);
}

INSTANTIATE_TEST_SUITE_P(Placements, ProbeTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& info) {
                           return info.param ? "range" : "hash";
                         });

}  // namespace
}  // namespace starling
