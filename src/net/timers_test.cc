#include "net/timers.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/rng.h"

namespace starling {
namespace {

TimePoint at(int64_t ms) { return TimePoint(milliseconds(ms)); }

TEST(Timers, RunInTheOrderOfTheirTimes) {
  Timers timers;
  std::vector<int> ran;
  for (const int ms : {30, 10, 20}) timers.add(at(ms), [&ran, ms] { ran.push_back(ms); });
  EXPECT_EQ(timers.next(), at(10));
  while (Task task = timers.take_due(at(100))) task();
  EXPECT_EQ(ran, (std::vector<int>{10, 20, 30}));
  EXPECT_EQ(timers.next(), TimePoint::max());
}

TEST(Timers, EqualTimesRunInTheOrderOfAdding) {
  Timers timers;
  std::vector<int> ran;
  for (int i = 0; i < 100; ++i) timers.add(at(5), [&ran, i] { ran.push_back(i); });
  while (Task task = timers.take_due(at(5))) task();
  ASSERT_EQ(ran.size(), 100u);
  EXPECT_TRUE(std::is_sorted(ran.begin(), ran.end()));
}

TEST(Timers, NothingIsDueBeforeItsTime) {
  Timers timers;
  timers.add(at(10), [] {});
  EXPECT_FALSE(timers.take_due(at(9)));
  EXPECT_TRUE(timers.take_due(at(10)));
}

TEST(Timers, ACancelledTaskIsDestroyedAtOnceAndNeverRuns) {
  Timers timers;
  auto owned = std::make_shared<int>(1);
  const TimerId id = timers.add(at(10), [owned] { FAIL() << "ran"; });
  EXPECT_EQ(owned.use_count(), 2);
  EXPECT_TRUE(timers.cancel(id));
  EXPECT_EQ(owned.use_count(), 1);
  EXPECT_FALSE(timers.cancel(id));
  EXPECT_FALSE(timers.take_due(at(100)));
  EXPECT_EQ(timers.size(), 0u);
}

TEST(Timers, AnOldIdDoesNotCancelTheNextUseOfItsSlot) {
  Timers timers;
  const TimerId first = timers.add(at(10), [] {});
  timers.take_due(at(10))();
  bool ran = false;
  timers.add(at(20), [&] { ran = true; });
  EXPECT_FALSE(timers.cancel(first));
  timers.take_due(at(20))();
  EXPECT_TRUE(ran);
}

TEST(Timers, TheEmptyIdCancelsNothing) {
  Timers timers;
  timers.add(at(10), [] {});
  EXPECT_FALSE(timers.cancel(TimerId{}));
  EXPECT_EQ(timers.size(), 1u);
}

TEST(Timers, ATaskMayAddAndCancelTimers) {
  Timers timers;
  bool second_ran = false;
  const TimerId doomed = timers.add(at(20), [] { FAIL() << "ran"; });
  timers.add(at(10), [&] {
    timers.cancel(doomed);
    timers.add(at(10), [&] { second_ran = true; });
  });
  while (Task task = timers.take_due(at(30))) task();
  EXPECT_TRUE(second_ran);
}

TEST(Timers, AgreeWithASortedListUnderRandomUse) {
  Timers timers;
  Rng rng(1, 0, 0);
  std::vector<std::pair<TimePoint, int>> expected;
  std::vector<std::pair<TimerId, int>> live;
  std::vector<int> ran;
  for (int i = 0; i < 5000; ++i) {
    const TimePoint when = at(static_cast<int64_t>(rng.below(1000)));
    live.emplace_back(timers.add(when, [&ran, i] { ran.push_back(i); }), i);
    expected.emplace_back(when, i);
    if (rng.below(3) == 0) {
      const size_t victim = rng.below(live.size());
      const auto [id, number] = live[victim];
      ASSERT_TRUE(timers.cancel(id));
      live.erase(live.begin() + static_cast<ptrdiff_t>(victim));
      std::erase_if(expected, [number = number](const auto& e) { return e.second == number; });
    }
  }
  EXPECT_EQ(timers.size(), expected.size());
  std::sort(expected.begin(), expected.end());
  while (Task task = timers.take_due(at(2000))) task();
  ASSERT_EQ(ran.size(), expected.size());
  for (size_t i = 0; i < ran.size(); ++i) ASSERT_EQ(ran[i], expected[i].second);
}

}  // namespace
}  // namespace starling
