#include "ps/applied.h"

#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"

namespace starling {
namespace {

TEST(AppliedNumbers, ForgetsWhatTheClientHasHeard) {
  AppliedNumbers numbers;
  for (uint64_t n = 1; n <= 3000; ++n) {
    const AppliedNumbers::Operation operation{
        .session = 1, .number = n, .acked_below = n > 10 ? n - 10 : 0};
    ASSERT_EQ(*numbers.check(operation), Seen::kNew);
    numbers.record(operation);
  }
  EXPECT_LE(numbers.open_numbers(), 11u);
}

TEST(AppliedNumbers, AFencedSessionNeverSpeaksAgain) {
  AppliedNumbers numbers;
  numbers.record({.session = 1, .number = 1});
  numbers.fence(1);
  EXPECT_EQ(numbers.check({.session = 1, .number = 2}).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(numbers.sessions(), 0u);
}

// Any order of arrival, any number of repeats: each number is new exactly once.
TEST(AppliedNumbers, EachNumberIsNewOnceUnderRandomRepeats) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed, 0, 0);
    AppliedNumbers numbers;
    std::set<uint64_t> applied;
    uint64_t acked_below = 1;
    for (int i = 0; i < 2000; ++i) {
      const uint64_t number =
          acked_below + rng.below(40) - std::min<uint64_t>(acked_below - 1, rng.below(20));
      const AppliedNumbers::Operation operation{
          .session = 9, .number = number, .acked_below = acked_below};
      const StatusOr<Seen> seen = numbers.check(operation);
      ASSERT_TRUE(seen.ok());
      ASSERT_EQ(*seen == Seen::kNew, number >= acked_below && !applied.contains(number)) << number;
      if (*seen == Seen::kNew) {
        numbers.record(operation);
        applied.insert(number);
      }
      while (applied.contains(acked_below) && rng.below(2) == 0) ++acked_below;
    }
  }
}

TEST(AppliedBatches, WatermarksNeverMoveBack) {
  AppliedBatches batches;
  ASSERT_TRUE(batches.raise(0, 3, 5, false).ok());
  ASSERT_TRUE(batches.raise(0, 3, 2, false).ok());
  EXPECT_TRUE(batches.is_done({.item = 3, .number = 4}));
  EXPECT_FALSE(batches.is_done({.item = 3, .number = 5}));
  EXPECT_FALSE(batches.is_done({.item = 4, .number = 0}));
  ASSERT_TRUE(batches.raise(0, 3, 0, true).ok());
  EXPECT_TRUE(batches.is_done({.item = 3, .number = 999}));
}

TEST(AppliedBatches, EachPartIsKnownByItself) {
  AppliedBatches batches;
  const BatchId id{.number = 7};
  batches.record(id, "users");
  EXPECT_TRUE(batches.is_applied(id, "users"));
  EXPECT_FALSE(batches.is_applied(id, "items"));
  batches.record(id, "items", invalid_argument("nan"));
  EXPECT_EQ(batches.outcome(id, "items").code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(batches.raise(0, 0, 8, false).ok());
  EXPECT_EQ(batches.open_batches(), 0u);
}

}  // namespace
}  // namespace starling
