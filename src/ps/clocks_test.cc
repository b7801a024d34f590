#include "ps/clocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling {
namespace {

constexpr Rank kA{0}, kB{1};

TEST(RankClocks, TicksMayRepeatAndComeInAnyOrder) {
  RankClocks clocks;
  clocks.join(kA, 0);
  for (const uint64_t clock : {1, 0, 0, 3, 1}) ASSERT_TRUE(clocks.tick(kA, clock).ok());
  EXPECT_EQ(clocks.clock(kA), 2u);
  ASSERT_TRUE(clocks.tick(kA, 2).ok());
  EXPECT_EQ(clocks.clock(kA), 4u);
  EXPECT_EQ(clocks.tick(kA, 4 + kTicksAheadMax).code(), StatusCode::kResourceExhausted);
}

TEST(RankClocks, StalenessBoundsHowFarAheadALookupIs) {
  RankClocks clocks;
  clocks.join(kA, 0);
  clocks.join(kB, 0);
  EXPECT_TRUE(clocks.ready(100)) << "without a bound nobody waits";
  clocks.set_staleness(2);
  EXPECT_TRUE(clocks.ready(2));
  EXPECT_FALSE(clocks.ready(3));
  EXPECT_THAT(clocks.waiting_for(3), testing::ElementsAre(kA, kB));
  ASSERT_TRUE(clocks.tick(kA, 0).ok());
  EXPECT_FALSE(clocks.ready(3));
  ASSERT_TRUE(clocks.tick(kB, 0).ok());
  EXPECT_TRUE(clocks.ready(3));
  EXPECT_EQ(clocks.behind(3), 2u);
}

TEST(RankClocks, AStalenessHoldsFromItsClockOn) {
  RankClocks clocks;
  clocks.join(kA, 0);
  clocks.set_staleness(0);
  clocks.set_staleness(std::nullopt, 5);
  EXPECT_TRUE(clocks.synchronous(4));
  EXPECT_FALSE(clocks.synchronous(5));
  EXPECT_FALSE(clocks.ready(4));
  EXPECT_TRUE(clocks.ready(100));
  clocks.set_staleness(3, 2);
  EXPECT_TRUE(clocks.synchronous(1));
  EXPECT_EQ(clocks.staleness(2), 3u);
  EXPECT_EQ(clocks.staleness(50), 3u) << "what was announced for later steps is withdrawn";
  for (uint64_t clock = 10; clock < 100; ++clock) clocks.set_staleness(1, clock);
  EXPECT_EQ(clocks.staleness(0), 1u) << "the oldest are forgotten";
}

TEST(RankClocks, AnAnnouncedStalenessCanBeWithdrawn) {
  RankClocks clocks;
  clocks.join(kA, 0);
  clocks.set_staleness(0);
  clocks.set_staleness(4, 8);
  EXPECT_FALSE(clocks.is_past(8));
  clocks.withdraw_staleness(8);
  clocks.set_staleness(4, 24);
  EXPECT_TRUE(clocks.synchronous(23));
  EXPECT_EQ(clocks.staleness(24), 4u);
  clocks.join(kB, 9);
  EXPECT_TRUE(clocks.is_past(8));
}

TEST(RankClocks, WhoLeavesHoldsNobodyFromItsClockOn) {
  RankClocks clocks;
  clocks.set_staleness(0);
  clocks.join(kA, 0);
  clocks.join(kB, 0);
  clocks.leave(kB, 1);
  EXPECT_FALSE(clocks.ready(1)) << "its last step is still to come";
  ASSERT_TRUE(clocks.tick(kA, 0).ok());
  ASSERT_TRUE(clocks.tick(kB, 0).ok());
  EXPECT_TRUE(clocks.ready(1));
  EXPECT_THAT(clocks.members(1), testing::ElementsAre(kA));
  EXPECT_FALSE(clocks.active(kB));
}

// A push that was doubled on its way used to bring the rank back, and everybody waited for it.
TEST(RankClocks, NothingThatIsLateBringsBackWhoHasLeft) {
  RankClocks clocks;
  clocks.set_staleness(0);
  clocks.join(kA, 0);
  clocks.join(kB, 0);
  clocks.leave(kB, 2);
  for (const uint64_t clock : {0, 1}) {
    ASSERT_TRUE(clocks.tick(kA, clock).ok());
    ASSERT_TRUE(clocks.tick(kB, clock).ok());
  }
  EXPECT_EQ(clocks.left().at(kB), 2u);
  for (const uint64_t clock : {1, 0}) ASSERT_TRUE(clocks.tick(kB, clock).ok());
  // The whole state, told again, names its join and its leave.
  clocks.join(kB, 0);
  clocks.leave(kB, 2);
  EXPECT_FALSE(clocks.active(kB));
  EXPECT_TRUE(clocks.ready(2));
  // The number is given to another.
  clocks.join(kB, 7);
  EXPECT_TRUE(clocks.active(kB));
  EXPECT_TRUE(clocks.left().empty());
}

TEST(RankClocks, AJoinerTakesPartFromItsClockOn) {
  RankClocks clocks;
  clocks.set_staleness(0);
  clocks.join(kA, 0);
  clocks.join(kB, 5);
  EXPECT_THAT(clocks.members(4), testing::ElementsAre(kA));
  EXPECT_THAT(clocks.members(5), testing::ElementsAre(kA, kB));
}

}  // namespace
}  // namespace starling
