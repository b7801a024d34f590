#include "scheduler/cuts.h"

#include "scheduler/scheduler_testing.h"

namespace starling {
namespace {

using scheduler_testing::code_of;
using scheduler_testing::TestNode;
using scheduler_testing::World;
using testing::ElementsAre;
using testing::HasSubstr;

class CutsTest : public testing::Test {
 protected:
  CutsTest() { world_.train(trainer_, {ps_}); }

  static SchedulerOptions options() {
    SchedulerOptions options;
    options.checkpoint_path = "mem://cuts";
    return options;
  }
  Message save(v1::SaveAction action) {
    Message request;
    request.meta.mutable_save_job()->set_action(action);
    return world_.call_numbered(trainer_, Method::kSchedulerSave, request);
  }
  Message report(const TestNode& node, v1::CutPhase phase, uint32_t lane = 0,
                 const std::string& error = "") {
    Message request;
    v1::SaveJobOption* option = request.meta.mutable_save_job();
    option->set_action(v1::SAVE_ACTION_REPORT);
    option->set_phase(phase);
    option->set_lane(lane);
    option->set_error(error);
    if (phase == v1::CUT_PHASE_WRITE) {
      option->mutable_written()->set_done(true);
      option->mutable_written()->set_rows_done(10);
      option->mutable_written()->add_files()->set_name(fmt::format("{}-{}", node.name, lane));
    }
    if (node.role == v1::ROLE_HUB) option->set_position("line 7");
    return world_.call(node, Method::kSchedulerSave, request);
  }
  v1::CutPhase phase() {
    Message request;
    request.meta.mutable_save_job()->set_action(v1::SAVE_ACTION_STATUS);
    return world_.call(trainer_, Method::kSchedulerSave, request)
        .meta.save_job_reply()
        .cut()
        .phase();
  }
  void train_in_step() {
    v1::SetJobOption option;
    option.mutable_staleness()->set_staleness(0);
    const Token token = world_.start_set_job(trainer_, option);
    world_.beat_ps(ps_, {{0, 3}});
    ASSERT_EQ(code_of(world_.answer(token)), StatusCode::kOk);
  }
  // Up to the phase WRITE.
  void snapshot() {
    report(hub_, v1::CUT_PHASE_DRAIN);
    report(hub_, v1::CUT_PHASE_SNAPSHOT);
    report(ps_, v1::CUT_PHASE_SNAPSHOT, 0);
    report(ps_, v1::CUT_PHASE_SNAPSHOT, 1);
  }

  World world_{options()};
  TestNode ps_ = world_.join(v1::ROLE_PS, "ps-0", 2);
  TestNode hub_ = world_.join(v1::ROLE_HUB, "hub-0");
  TestNode trainer_ = world_.join(v1::ROLE_TRAINER, "trainer-0");
};

TEST_F(CutsTest, GoesThroughItsPhasesAndCommits) {
  const Message started = save(v1::SAVE_ACTION_START);
  ASSERT_EQ(code_of(started), StatusCode::kOk) << started.meta.DebugString();
  EXPECT_EQ(started.meta.save_job_reply().cut().phase(), v1::CUT_PHASE_DRAIN);
  EXPECT_THAT(started.meta.save_job_reply().waiting_for(), ElementsAre("hub-0"));
  EXPECT_EQ(world_.scheduler().job().state(), v1::JOB_STATE_SAVING);
  report(hub_, v1::CUT_PHASE_DRAIN);
  EXPECT_EQ(phase(), v1::CUT_PHASE_SNAPSHOT);
  report(ps_, v1::CUT_PHASE_SNAPSHOT, 0);
  report(hub_, v1::CUT_PHASE_SNAPSHOT);
  EXPECT_EQ(phase(), v1::CUT_PHASE_SNAPSHOT);
  report(ps_, v1::CUT_PHASE_SNAPSHOT, 1);
  EXPECT_EQ(phase(), v1::CUT_PHASE_WRITE);
  report(ps_, v1::CUT_PHASE_WRITE, 0);
  EXPECT_TRUE(world_.commits.empty());
  report(ps_, v1::CUT_PHASE_WRITE, 1);
  ASSERT_EQ(world_.commits.size(), 1);
  EXPECT_EQ(world_.commits[0].record.reports_size(), 6);
  EXPECT_EQ(world_.commits[0].map.bucket_shard_size(), 4096);
  EXPECT_EQ(phase(), v1::CUT_PHASE_WRITE);
  world_.take(world_.scheduler().cut_written(1, std::string("mem://cuts/1"), world_.now()));
  EXPECT_EQ(phase(), v1::CUT_PHASE_COMMITTED);
  EXPECT_EQ(world_.scheduler().job().newest_cut(), 1);
  EXPECT_EQ(world_.scheduler().job().state(), v1::JOB_STATE_TRAINING);
  EXPECT_EQ(save(v1::SAVE_ACTION_START).meta.save_job_reply().cut().cut_id(), 2);
}

TEST_F(CutsTest, ASecondOneIsRefusedByNameAndARepeatIsNot) {
  save(v1::SAVE_ACTION_START);
  Message request;
  request.meta.mutable_save_job()->set_action(v1::SAVE_ACTION_START);
  const Message again = world_.call(trainer_, Method::kSchedulerSave, request);
  EXPECT_EQ(again.meta.save_job_reply().cut().cut_id(), 1);
  const Message other = save(v1::SAVE_ACTION_START);
  EXPECT_EQ(code_of(other), StatusCode::kFailedPrecondition);
  EXPECT_THAT(other.meta.status().message(), HasSubstr("cut 1"));
}

TEST_F(CutsTest, AModeOrFilterThatNobodyKnowsStartsNone) {
  const auto refused = [&](const std::function<void(v1::SaveOption&)>& change) {
    Message request;
    request.meta.mutable_save_job()->set_action(v1::SAVE_ACTION_START);
    change(*request.meta.mutable_save_job()->mutable_save());
    const Message reply = world_.call_numbered(trainer_, Method::kSchedulerSave, request);
    EXPECT_EQ(code_of(reply), StatusCode::kInvalidArgument);
    return reply.meta.status().message();
  };
  EXPECT_THAT(refused([](auto& save) { save.set_mode(static_cast<v1::SaveMode>(9)); }),
              HasSubstr("mode is 9"));
  EXPECT_THAT(refused([](auto& save) { save.set_filter(static_cast<v1::SaveFilter>(9)); }),
              HasSubstr("filter is 9"));
  EXPECT_EQ(phase(), v1::CUT_PHASE_UNKNOWN);
}

TEST_F(CutsTest, CanBeCancelledAndTheJobGoesOn) {
  save(v1::SAVE_ACTION_START);
  EXPECT_EQ(code_of(save(v1::SAVE_ACTION_CANCEL)), StatusCode::kOk);
  EXPECT_EQ(phase(), v1::CUT_PHASE_FAILED);
  EXPECT_EQ(world_.discards.size(), 1);
  EXPECT_EQ(world_.scheduler().job().state(), v1::JOB_STATE_TRAINING);
  EXPECT_EQ(world_.scheduler().job().newest_cut(), 0);
}

TEST_F(CutsTest, ANodeThatReportsAnErrorFailsIt) {
  save(v1::SAVE_ACTION_START);
  snapshot();
  report(ps_, v1::CUT_PHASE_WRITE, 0, "disk full");
  EXPECT_EQ(phase(), v1::CUT_PHASE_FAILED);
  EXPECT_THAT(world_.discards.at(0).record.cut().error(), HasSubstr("ps-0: disk full"));
}

TEST_F(CutsTest, AFailedManifestFailsIt) {
  save(v1::SAVE_ACTION_START);
  snapshot();
  report(ps_, v1::CUT_PHASE_WRITE, 0);
  report(ps_, v1::CUT_PHASE_WRITE, 1);
  world_.take(world_.scheduler().cut_written(1, unavailable("no store"), world_.now()));
  EXPECT_EQ(phase(), v1::CUT_PHASE_FAILED);
  EXPECT_EQ(world_.scheduler().job().newest_cut(), 0);
}

TEST_F(CutsTest, ANodeThatDiesFailsItByName) {
  save(v1::SAVE_ACTION_START);
  for (int i = 0; i < 6; ++i) {
    world_.advance(seconds(1));
    world_.beat(ps_);
    world_.beat(trainer_);
  }
  EXPECT_EQ(phase(), v1::CUT_PHASE_FAILED);
  EXPECT_THAT(world_.discards.at(0).record.cut().error(), HasSubstr("hub-0"));
}

TEST_F(CutsTest, APhaseThatTakesTooLongFailsAndNamesWhoIsMissing) {
  save(v1::SAVE_ACTION_START);
  report(hub_, v1::CUT_PHASE_DRAIN);
  report(hub_, v1::CUT_PHASE_SNAPSHOT);
  report(ps_, v1::CUT_PHASE_SNAPSHOT, 1);
  for (int i = 0; i < 121; ++i) {
    world_.advance(seconds(1));
    for (const TestNode& node : {ps_, hub_, trainer_}) world_.beat(node);
  }
  EXPECT_EQ(phase(), v1::CUT_PHASE_FAILED);
  EXPECT_THAT(world_.discards.at(0).record.cut().error(), HasSubstr("missing: ps-0 lane 0"));
}

TEST_F(CutsTest, ARestartedSchedulerGoesOnWithTheCutAndAsksForTheManifestAgain) {
  save(v1::SAVE_ACTION_START);
  snapshot();
  report(ps_, v1::CUT_PHASE_WRITE, 0);
  world_.crash();
  EXPECT_EQ(phase(), v1::CUT_PHASE_WRITE);
  report(ps_, v1::CUT_PHASE_WRITE, 1);
  ASSERT_EQ(world_.commits.size(), 1);
  world_.crash();
  ASSERT_EQ(world_.commits.size(), 2);
  EXPECT_EQ(world_.commits[1].record.reports_size(), 6);
  world_.take(world_.scheduler().cut_written(1, std::string("there"), world_.now()));
  EXPECT_EQ(phase(), v1::CUT_PHASE_COMMITTED);
}

TEST_F(CutsTest, ASynchronousCutNamesAClockAtOrAfterEveryOneDealt) {
  train_in_step();
  v1::SchedulerHeartbeatOption dealt;
  dealt.set_clock(20);
  world_.beat(hub_, dealt);
  EXPECT_GE(save(v1::SAVE_ACTION_START).meta.save_job_reply().cut().clock(), 20);
}

TEST_F(CutsTest, DrainsAnewUpToALaterClockWhenAHubHasPassedTheFirst) {
  train_in_step();
  const uint64_t first = save(v1::SAVE_ACTION_START).meta.save_job_reply().cut().clock();
  const auto drained_to = [&](uint64_t clock) {
    Message request;
    v1::SaveJobOption* option = request.meta.mutable_save_job();
    option->set_action(v1::SAVE_ACTION_REPORT);
    option->set_phase(v1::CUT_PHASE_DRAIN);
    option->mutable_save()->set_clock(clock);
    return world_.call(hub_, Method::kSchedulerSave, request).meta.save_job_reply().cut();
  };
  const v1::CutEvent later = drained_to(first + 100);
  EXPECT_EQ(later.phase(), v1::CUT_PHASE_DRAIN);
  EXPECT_GT(later.clock(), first + 200);
  EXPECT_EQ(later.save().clock(), later.clock());
  // A word about the first clock says nothing of the second.
  EXPECT_EQ(drained_to(first).phase(), v1::CUT_PHASE_DRAIN);
  EXPECT_EQ(drained_to(later.clock()).phase(), v1::CUT_PHASE_SNAPSHOT);
}

TEST_F(CutsTest, WhoeverHasJoinedASynchronousJobHasASeatFromTheNextOneOn) {
  train_in_step();
  const auto seats = [&] {
    std::vector<std::pair<uint64_t, uint32_t>> out;
    Message request;
    request.meta.mutable_get_job();
    const Message reply = world_.call(trainer_, Method::kSchedulerGetJob, request);
    for (const v1::RankSeats& one : reply.meta.get_job_reply().job().seats()) {
      out.emplace_back(one.clock(), one.ranks());
    }
    return out;
  };
  const auto cut = [&] {
    const uint64_t clock = save(v1::SAVE_ACTION_START).meta.save_job_reply().cut().clock();
    EXPECT_EQ(phase(), v1::CUT_PHASE_DRAIN);
    snapshot();
    save(v1::SAVE_ACTION_CANCEL);  // what hubs have heard of holds, saved or not
    return clock;
  };
  using Seats = std::vector<std::pair<uint64_t, uint32_t>>;
  const uint64_t first = cut();
  EXPECT_EQ(seats(), (Seats{{first, 1}}));
  cut();
  EXPECT_EQ(seats(), (Seats{{first, 1}}));
  const Token token =
      world_.start_register({.role = v1::ROLE_TRAINER, .name = "trainer-1", .incarnation = 77});
  world_.beat_ps(ps_, {{0, 3}});
  ASSERT_EQ(code_of(world_.answer(token)), StatusCode::kOk);
  const uint64_t second = cut();
  world_.crash();
  EXPECT_EQ(seats(), (Seats{{first, 1}, {second, 2}}));
  v1::SetJobOption anew;
  anew.set_new_generation(true);
  world_.start_set_job(trainer_, anew);
  EXPECT_EQ(seats(), Seats{});
}

TEST_F(CutsTest, BadReportsAreRefused) {
  EXPECT_EQ(code_of(report(ps_, v1::CUT_PHASE_WRITE)), StatusCode::kNotFound);
  save(v1::SAVE_ACTION_START);
  EXPECT_EQ(code_of(report(ps_, v1::CUT_PHASE_WRITE)), StatusCode::kFailedPrecondition);
  EXPECT_EQ(code_of(report(ps_, v1::CUT_PHASE_DRAIN)), StatusCode::kFailedPrecondition);
  report(hub_, v1::CUT_PHASE_DRAIN);
  EXPECT_EQ(code_of(report(ps_, v1::CUT_PHASE_SNAPSHOT, 2)), StatusCode::kFailedPrecondition);
  // A repeat of what has passed is fine.
  EXPECT_EQ(code_of(report(hub_, v1::CUT_PHASE_DRAIN)), StatusCode::kOk);
}

// Dealing goes on while the shards write; what gets done then is not in the cut.
TEST_F(CutsTest, KeepsTheQueuesAsTheyWereWhenEverybodyHadDrained) {
  Message work;
  work.meta.mutable_add_work()->set_queue("data");
  work.meta.mutable_add_work()->add_items()->set_path("a");
  world_.call(hub_, Method::kSchedulerAddWork, work);
  Message take;
  take.meta.mutable_take_work()->set_queue("data");
  world_.call_numbered(hub_, Method::kSchedulerTakeWork, take);
  Message renew;
  renew.meta.mutable_renew_work()->set_queue("data");
  renew.meta.mutable_renew_work()->add_items()->set_done_below(3);
  world_.call(hub_, Method::kSchedulerRenewWork, renew);
  save(v1::SAVE_ACTION_START);
  snapshot();
  Message ack;
  ack.meta.mutable_ack_work()->set_queue("data");
  ack.meta.mutable_ack_work()->add_items()->set_done_below(5);
  ASSERT_EQ(code_of(world_.call(hub_, Method::kSchedulerAckWork, ack)), StatusCode::kOk);
  world_.crash();
  report(ps_, v1::CUT_PHASE_WRITE, 0);
  report(ps_, v1::CUT_PHASE_WRITE, 1);
  ASSERT_EQ(world_.commits.size(), 1);
  ASSERT_EQ(world_.commits[0].queues.size(), 1);
  ASSERT_EQ(world_.commits[0].queues[0].progress_size(), 1);
  EXPECT_EQ(world_.commits[0].queues[0].progress(0).done_below(), 3);
  EXPECT_FALSE(world_.commits[0].queues[0].progress(0).finished());
}

}  // namespace
}  // namespace starling
