#include "scheduler/changes.h"

#include "scheduler/scheduler_testing.h"

namespace starling {
namespace {

using scheduler_testing::code_of;
using scheduler_testing::TestNode;
using scheduler_testing::World;
using testing::HasSubstr;

// Two ps and a trainer that train synchronously.
class ChangesTest : public testing::Test {
 protected:
  ChangesTest() { world_.train(trainer_, {ps0_, ps1_}); }

  static SchedulerOptions options() {
    SchedulerOptions options;
    options.staleness = 0;
    options.ps_expected = 2;
    return options;
  }
  Token start_join(const std::string& name, uint64_t incarnation, uint32_t workers = 1) {
    return world_.start_register(
        {.role = v1::ROLE_TRAINER, .name = name, .incarnation = incarnation}, 1, workers);
  }
  std::vector<v1::RankEvent> rank_events(uint64_t after) {
    std::vector<v1::RankEvent> events;
    const v1::WatchReply reply = world_.watch_from(after);
    for (const v1::Event& event : reply.events()) {
      if (event.has_rank()) events.push_back(event.rank());
    }
    return events;
  }
  Token start_leave(const TestNode& node) {
    Message request;
    request.meta.mutable_leave();
    return world_.send(node, Method::kSchedulerLeave, request);
  }

  World world_{options()};
  TestNode ps0_ = world_.join(v1::ROLE_PS, "ps-0", 2);
  TestNode ps1_ = world_.join(v1::ROLE_PS, "ps-1", 2);
  TestNode trainer_ = world_.join(v1::ROLE_TRAINER, "trainer-0");
};

TEST_F(ChangesTest, AJoinerStartsAtAClockThatEveryPsKnewInTime) {
  world_.beat_ps(ps0_, {{0, 5}});
  const uint64_t before = world_.revision();
  const Token token = start_join("trainer-1", 50);
  world_.beat_ps(ps0_, {{0, 6}});
  EXPECT_FALSE(world_.answered(token));
  world_.beat_ps(ps1_, {{0, 6}});
  const Message reply = world_.answer(token);
  ASSERT_EQ(code_of(reply), StatusCode::kOk);
  EXPECT_EQ(reply.meta.register_reply().ranks(0), 1);
  EXPECT_EQ(reply.meta.register_reply().start_clock(), 5 + 8);
  const std::vector<v1::RankEvent> events = rank_events(before);
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0].clock(), 13);
}

TEST_F(ChangesTest, APsThatWasFasterPutsTheJoinFurtherOn) {
  const Token token = start_join("trainer-1", 50);
  world_.beat_ps(ps0_, {{0, 3}});
  world_.beat_ps(ps1_, {{0, 100}});
  EXPECT_FALSE(world_.answered(token));
  world_.beat_ps(ps0_, {{0, 101}});
  world_.beat_ps(ps1_, {{0, 101}});
  EXPECT_EQ(world_.answer(token).meta.register_reply().start_clock(), 100 + 16);
}

// They used to put each other further on, twice as far each time.
TEST_F(ChangesTest, TwoJoinersAtOnceBothStart) {
  const Token first = start_join("trainer-1", 50);
  const Token second = start_join("trainer-2", 51);
  const auto start_of = [this](uint32_t rank) {
    uint64_t clock = 0;
    const v1::WatchReply whole = world_.watch_all();
    for (const v1::Event& event : whole.events()) {
      if (event.has_rank() && event.rank().rank() == rank) clock = event.rank().clock();
    }
    return clock;
  };
  // Each ps tells of the joiners what was announced of them.
  for (int i = 0; i < 4; ++i) {
    for (const TestNode& ps : {ps0_, ps1_}) {
      world_.beat_ps(ps, {{0, 1}, {1, start_of(1)}, {2, start_of(2)}});
    }
  }
  EXPECT_EQ(code_of(world_.answer(first)), StatusCode::kOk);
  EXPECT_EQ(code_of(world_.answer(second)), StatusCode::kOk);
}

TEST_F(ChangesTest, APsThatHasNotTakenItInHoldsTheJoinAndIsNamed) {
  const Token token = start_join("trainer-1", 50);
  world_.beat_ps(ps0_);
  for (int i = 0; i < 10; ++i) {
    world_.advance(seconds(1));
    for (const TestNode& node : {ps0_, ps1_, trainer_}) world_.beat(node);
  }
  EXPECT_EQ(code_of(world_.answer(token)), StatusCode::kUnavailable);
  EXPECT_THAT(world_.answer(token).meta.status().message(), HasSubstr("ps-1"));
  // The call again, after a restart of the scheduler in between.
  world_.crash();
  const Token again = start_join("trainer-1", 50);
  world_.beat_ps(ps0_);
  world_.beat_ps(ps1_);
  EXPECT_EQ(code_of(world_.answer(again)), StatusCode::kOk);
}

TEST_F(ChangesTest, ADeathIsAnnouncedAtTheHighestClockWithTheHalfPushedBatch) {
  const uint64_t before = world_.revision();
  for (int i = 0; i < 6; ++i) {
    world_.advance(seconds(1));
    world_.beat(ps0_);
    world_.beat(ps1_);
  }
  EXPECT_TRUE(rank_events(before).empty());
  v1::SchedulerHeartbeatOption beat;
  beat.set_seen_revision(world_.revision());
  beat.add_clocks()->set_clock(8);
  beat.add_clocks()->set_clock(9);
  beat.add_batches()->set_clock(9);
  beat.mutable_batches(0)->mutable_batch()->set_number(44);
  world_.beat(ps0_, beat);
  EXPECT_TRUE(rank_events(before).empty());
  world_.beat_ps(ps1_, {{0, 8}});
  const std::vector<v1::RankEvent> events = rank_events(before);
  ASSERT_EQ(events.size(), 1);
  EXPECT_TRUE(events[0].leaves());
  EXPECT_EQ(events[0].clock(), 9);
  EXPECT_EQ(events[0].half_pushed().number(), 44);
}

// The event was told once, by a scheduler that could die before anybody heard it.
TEST_F(ChangesTest, AHalfPushedBatchIsToldUntilEveryShardHasIt) {
  for (int i = 0; i < 6; ++i) {
    world_.advance(seconds(1));
    world_.beat(ps0_);
    world_.beat(ps1_);
  }
  v1::SchedulerHeartbeatOption beat;
  beat.set_seen_revision(world_.revision());
  beat.add_clocks()->set_clock(9);
  beat.add_batches()->set_clock(9);
  beat.mutable_batches(0)->mutable_batch()->set_number(44);
  world_.beat(ps0_, beat);
  world_.beat_ps(ps1_, {{0, 8}});
  const auto told = [this] {
    std::vector<v1::RankEvent> leaves;
    const v1::WatchReply whole = world_.watch_all();
    for (const v1::Event& event : whole.events()) {
      if (event.has_rank() && event.rank().leaves()) leaves.push_back(event.rank());
    }
    return leaves;
  };
  for (int restarts = 0; restarts < 2; ++restarts) {
    world_.crash();
    // One ps alone cannot say that all have it.
    world_.beat_ps(ps0_, {{0, 9}});
    const std::vector<v1::RankEvent> leaves = told();
    ASSERT_EQ(leaves.size(), 1);
    EXPECT_EQ(leaves[0].clock(), 9);
    EXPECT_EQ(leaves[0].half_pushed().number(), 44);
  }
  world_.beat_ps(ps1_, {{0, 9}});
  EXPECT_TRUE(told().empty());
}

TEST_F(ChangesTest, AReturningTrainerGoesOnAtTheLowestClock) {
  const uint64_t before = world_.revision();
  const Token token = start_join("trainer-0", 60);
  EXPECT_FALSE(world_.answered(token));
  world_.beat_ps(ps0_, {{0, 9}});
  world_.beat_ps(ps1_, {{0, 8}});
  const Message reply = world_.answer(token);
  EXPECT_EQ(reply.meta.register_reply().ranks(0), 0);
  EXPECT_EQ(reply.meta.register_reply().start_clock(), 8);
  // Its rank never left.
  EXPECT_TRUE(rank_events(before).empty());
}

TEST_F(ChangesTest, ALeaveHoldsFromAnAnnouncedClockAndTheNumberIsFreeAfterIt) {
  world_.beat_ps(ps0_, {{0, 4}});
  const Token token = start_leave(trainer_);
  world_.beat_ps(ps0_, {{0, 5}});
  world_.beat_ps(ps1_, {{0, 5}});
  const Message reply = world_.answer(token);
  ASSERT_EQ(code_of(reply), StatusCode::kOk);
  EXPECT_EQ(reply.meta.leave_reply().clock(), 12);
  EXPECT_EQ(world_.answer(start_leave(trainer_)).meta.leave_reply().clock(), 12);
  EXPECT_EQ(code_of(world_.beat(trainer_)), StatusCode::kOk);
  world_.beat_ps(ps0_, {{0, 12}});
  world_.beat_ps(ps1_, {{0, 12}});
  EXPECT_EQ(world_.beat(trainer_).meta.status().reason(), v1::REASON_FENCED);
  // A repeat whose answer was lost ends well.
  EXPECT_EQ(code_of(world_.answer(start_leave(trainer_))), StatusCode::kOk);
  const Token next = start_join("trainer-1", 70);
  world_.beat_ps(ps0_, {{0, 12}});
  world_.beat_ps(ps1_, {{0, 12}});
  EXPECT_EQ(world_.answer(next).meta.register_reply().ranks(0), 0);
}

TEST_F(ChangesTest, TheStalenessChangesAtAnAnnouncedClockAndTheReplyTellsIt) {
  const uint64_t before = world_.revision();
  v1::SetJobOption option;
  option.mutable_staleness()->set_staleness(4);
  const Token token = world_.start_set_job(trainer_, option);
  EXPECT_FALSE(world_.answered(token));
  world_.beat_ps(ps0_, {{0, 2}});
  world_.beat_ps(ps1_, {{0, 2}});
  const Message reply = world_.answer(token);
  EXPECT_EQ(reply.meta.set_job_reply().clock(), 8);
  EXPECT_EQ(reply.meta.set_job_reply().job().staleness(), 4);
  bool is_told = false;
  const v1::WatchReply told = world_.watch_from(before);
  for (const v1::Event& event : told.events()) {
    is_told |= event.has_staleness() && event.staleness().clock() == 8;
  }
  EXPECT_TRUE(is_told);
  // The same number again is answered the same, also by a restarted scheduler.
  world_.crash();
  Message request;
  *request.meta.mutable_set_job() = option;
  const Message again = world_.call(trainer_, Method::kSchedulerSetJob, request);
  EXPECT_EQ(again.meta.set_job_reply().clock(), 8);
}

// Who asked for the whole state used to hear that the new one holds from the beginning.
TEST_F(ChangesTest, TheWholeStateTellsFromWhichClockAStalenessHolds) {
  v1::SetJobOption option;
  option.mutable_staleness()->set_staleness(4);
  world_.start_set_job(trainer_, option);
  world_.beat_ps(ps0_, {{0, 2}});
  world_.beat_ps(ps1_, {{0, 30}});  // too fast: it comes at another clock
  const auto told = [this] {
    std::vector<std::pair<uint64_t, bool>> out;  // clock, settled
    const v1::WatchReply whole = world_.watch_all();
    for (const v1::Event& event : whole.events()) {
      if (event.has_staleness()) {
        out.emplace_back(event.staleness().clock(), event.staleness().settled());
      }
    }
    return out;
  };
  using Told = std::vector<std::pair<uint64_t, bool>>;
  EXPECT_EQ(told(), (Told{{0, true}, {30 + 16, false}}));
  world_.beat_ps(ps0_, {{0, 31}});
  world_.beat_ps(ps1_, {{0, 31}});
  world_.crash();
  EXPECT_EQ(told(), (Told{{0, true}, {30 + 16, true}}));
}

TEST_F(ChangesTest, AJoinerThatDiesBeforeItStartsLeavesAtItsStart) {
  const uint64_t before = world_.revision();
  const Token token = start_join("trainer-1", 50);
  world_.beat_ps(ps0_, {{0, 1}});
  world_.beat_ps(ps1_, {{0, 1}});
  const uint64_t start = world_.answer(token).meta.register_reply().start_clock();
  for (int i = 0; i < 6; ++i) {
    world_.advance(seconds(1));
    world_.beat(ps0_);
    world_.beat(ps1_);
    world_.beat(trainer_);
  }
  world_.beat_ps(ps0_, {{0, 1}});
  world_.beat_ps(ps1_, {{0, 1}});
  const std::vector<v1::RankEvent> events = rank_events(before);
  ASSERT_EQ(events.size(), 2);
  EXPECT_TRUE(events[1].leaves());
  EXPECT_EQ(events[1].clock(), start);
}

// It used to get back the ranks that its former process had announced to leave, and then none.
TEST_F(ChangesTest, AProcessThatComesBackWhileItLeavesGetsRanksThatStay) {
  start_leave(trainer_);
  world_.beat_ps(ps0_, {{0, 2}});
  world_.beat_ps(ps1_, {{0, 3}});
  const uint64_t before = world_.revision();
  const Token token = start_join("trainer-0", 60);
  world_.beat_ps(ps0_, {{0, 2}});
  world_.beat_ps(ps1_, {{0, 3}});
  const Message reply = world_.answer(token);
  ASSERT_EQ(code_of(reply), StatusCode::kOk);
  ASSERT_EQ(reply.meta.register_reply().ranks_size(), 1);
  EXPECT_EQ(reply.meta.register_reply().ranks(0), 1);
  bool has_left = false;
  for (const v1::RankEvent& event : rank_events(before)) {
    if (event.rank() == 0 && event.leaves()) has_left = event.clock() == 3;
  }
  EXPECT_TRUE(has_left);
}

}  // namespace
}  // namespace starling
