#include "table/statistics.h"

#include <gtest/gtest.h>

#include "table/eviction.h"

namespace starling {
namespace {

StatisticsOptions coefficients() {
  StatisticsOptions options;
  options.enabled = true;
  options.nonclick_coeff = 0.2;
  options.click_coeff = 1;
  options.base_threshold = 1.5;
  options.delta_threshold = 0.25;
  options.delta_keep_days = 16;
  return options;
}

RowStatistics row(double show, double click, float delta, uint32_t unseen) {
  RowStatistics statistics;
  statistics.show = show;
  statistics.click = click;
  statistics.delta_score = delta;
  statistics.unseen_days = unseen;
  return statistics;
}

TEST(Statistics, TheScoreWeighsClicksAndNonclicks) {
  EXPECT_DOUBLE_EQ(score_of(coefficients(), 10, 6), 6.8);
}

// score 2 >= 1.5; each row breaks one condition.
TEST(Statistics, SaveFiltersFollowTheirTruthTable) {
  struct Line {
    RowStatistics statistics;
    bool delta;
    bool base;
  };
  const Line lines[] = {
      {row(2, 2, 0.25f, 16), true, true},   {row(2, 2, 0.2f, 0), false, true},
      {row(2, 2, 0.25f, 17), false, false}, {row(1.4, 1.4, 1, 0), false, false},
      {row(2, 2, 0, 0), false, true},       {row(0, 0, 0, 0), false, false},
  };
  for (const Line& line : lines) {
    EXPECT_TRUE(save_takes(coefficients(), SaveFilter::kAll, line.statistics));
    EXPECT_TRUE(save_takes(coefficients(), SaveFilter::kDaily, line.statistics));
    EXPECT_EQ(save_takes(coefficients(), SaveFilter::kDelta, line.statistics), line.delta);
    EXPECT_EQ(save_takes(coefficients(), SaveFilter::kBase, line.statistics), line.base);
  }
}

TEST(Statistics, PublishingASaveChangesOnlyWhatItTook) {
  RowStatistics taken = row(2, 2, 0.5f, 1);
  save_changes(coefficients(), SaveFilter::kDelta, taken);
  EXPECT_EQ(taken.delta_score, 0);
  RowStatistics left = row(2, 2, 0.1f, 1);
  save_changes(coefficients(), SaveFilter::kDelta, left);
  EXPECT_EQ(left.delta_score, 0.1f);
  save_changes(coefficients(), SaveFilter::kBase, left);
  EXPECT_EQ(left.delta_score, 0);
  save_changes(coefficients(), SaveFilter::kDaily, left);
  EXPECT_EQ(left.unseen_days, 2u);
  save_changes(coefficients(), SaveFilter::kAll, left);
  EXPECT_EQ(left, row(2, 2, 0, 2));
}

TEST(Eviction, ShrinkFollowsItsTruthTable) {
  EvictionOptions options;
  options.score_min = 1.5;
  options.unseen_days_max = 7;
  options.idle_steps_max = 100;
  options.norm_min = 0.1;
  const auto reason = [&](const RowStatistics& statistics, double norm) {
    return eviction_of(options, coefficients(), statistics, 1000, norm);
  };
  RowStatistics good = row(2, 2, 0, 7);
  good.last_step = 900;
  EXPECT_EQ(reason(good, 0.1), std::nullopt);
  RowStatistics bad = good;
  bad.show = bad.click = 1.4;
  EXPECT_EQ(reason(bad, 1), EvictionReason::kScore);
  bad = good;
  bad.unseen_days = 8;
  EXPECT_EQ(reason(bad, 1), EvictionReason::kUnseen);
  bad = good;
  bad.last_step = 899;
  EXPECT_EQ(reason(bad, 1), EvictionReason::kIdle);
  bad.last_step = 2000;
  EXPECT_EQ(reason(bad, 1), std::nullopt) << "a touch in the future is no idleness";
  EXPECT_EQ(reason(good, 0.09), EvictionReason::kNorm);
  EXPECT_EQ(eviction_of({}, coefficients(), row(0, 0, 0, 99), 1000, 0), std::nullopt);
}

TEST(Eviction, AVictimQueueAlwaysGivesTheSmallest) {
  VictimQueue queue;
  EXPECT_EQ(queue.pop(), std::nullopt);
  std::vector<VictimQueue::Entry> rows;
  for (uint64_t i = 0; i < 200; ++i) rows.push_back({1000 - i, Key{i}});
  queue.fill(rows);
  EXPECT_EQ(queue.pop(), (VictimQueue::Entry{801, Key{199}}));
  queue.offer({5, Key{7}});
  queue.offer({5, Key{6}});
  EXPECT_EQ(queue.pop(), (VictimQueue::Entry{5, Key{6}}));
  EXPECT_EQ(queue.pop(), (VictimQueue::Entry{5, Key{7}}));
  size_t left = 0;
  uint64_t last = 0;
  while (const auto entry = queue.pop()) {
    EXPECT_GT(entry->rank, last);
    last = entry->rank;
    ++left;
  }
  EXPECT_EQ(left, 24u) << "an eighth of the rows";
}

TEST(Eviction, TheListOfTheEvictedKeepsTheNewest) {
  EvictedList list(2);
  for (uint64_t i = 0; i < 5; ++i) list.evicted({Key{i}, EvictionReason::kNorm, {}, {}, {}});
  ASSERT_EQ(list.entries().size(), 2u);
  EXPECT_EQ(list.entries().front().key, Key{3});
  EXPECT_EQ(reason_name(list.entries().back().reason), "norm");
}

}  // namespace
}  // namespace starling
