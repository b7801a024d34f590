#include "scheduler/scheduler.h"

#include "base/rng.h"
#include "scheduler/scheduler_testing.h"
#include "scheduler/shard_map.h"

namespace starling {
namespace {

using scheduler_testing::code_of;
using scheduler_testing::TestNode;
using scheduler_testing::World;
using testing::HasSubstr;

Message putting(const std::string& key, const std::string& value) {
  Message request;
  request.meta.mutable_put()->set_key(key);
  request.meta.mutable_put()->set_value(value);
  return request;
}

Message getting(const std::string& prefix) {
  Message request;
  request.meta.mutable_get()->set_prefix(prefix);
  return request;
}

TEST(MapTest, IsMadeWhenAllPsAreThereAndFollowsThemUntilFreeze) {
  SchedulerOptions options;
  options.ps_expected = 2;
  World world(options);
  world.join(v1::ROLE_PS, "ps-0", 2);
  EXPECT_EQ(world.scheduler().map().version(), 0);
  world.join(v1::ROLE_PS, "ps-1", 2);
  EXPECT_EQ(world.scheduler().map().version(), 1);
  EXPECT_EQ(world.scheduler().map().shards_size(), 4);
  world.join(v1::ROLE_PS, "ps-2", 2);
  EXPECT_EQ(world.scheduler().map().shards_size(), 6);
}

TEST(MapTest, OfAFrozenJobDoesNotChangeByItself) {
  World world;
  TestNode ps = world.join(v1::ROLE_PS, "ps-0", 2);
  world.train(ps, {ps});
  const v1::ShardMap before = world.scheduler().map();
  world.join(v1::ROLE_PS, "ps-1", 2);
  EXPECT_EQ(world.scheduler().map().version(), before.version());
  // A ps that comes back elsewhere keeps its buckets.
  TestNode again{.role = v1::ROLE_PS, .name = "ps-0", .incarnation = 4};
  world.answer(world.start_register(again, 2));
  EXPECT_EQ(world.scheduler().map().version(), before.version() + 1);
  EXPECT_EQ(moved_buckets(before, world.scheduler().map()), 0);
  EXPECT_EQ(world.scheduler().map().shards(0).incarnation(), 4);
}

TEST(MapTest, IsSentOnlyToWhoDoesNotHaveIt) {
  World world;
  world.join(v1::ROLE_PS, "ps-0");
  Message request;
  EXPECT_TRUE(world.call({}, Method::kSchedulerGetMap, request).meta.get_map_reply().has_map());
  request.meta.mutable_get_map()->set_known_version(1);
  const Message reply = world.call({}, Method::kSchedulerGetMap, request);
  EXPECT_FALSE(reply.meta.get_map_reply().has_map());
  EXPECT_EQ(reply.meta.get_map_reply().version(), 1);
}

TEST(JobTest, StatesFollowEachOtherInOrder) {
  World world;
  TestNode node = world.join(v1::ROLE_TRAINER, "trainer-0");
  const auto set = [&](v1::JobState state, uint64_t hash) {
    v1::SetJobOption option;
    option.set_state(state);
    option.set_schema_hash(hash);
    return code_of(world.answer(world.start_set_job(node, option)));
  };
  EXPECT_EQ(set(v1::JOB_STATE_FROZEN, 1), StatusCode::kFailedPrecondition);  // no map
  world.join(v1::ROLE_PS, "ps-0");
  EXPECT_EQ(set(v1::JOB_STATE_TRAINING, 1), StatusCode::kFailedPrecondition);
  EXPECT_EQ(set(v1::JOB_STATE_FROZEN, 0), StatusCode::kFailedPrecondition);
  EXPECT_EQ(set(v1::JOB_STATE_FROZEN, 1), StatusCode::kOk);
  EXPECT_EQ(set(v1::JOB_STATE_FROZEN, 2), StatusCode::kFailedPrecondition);
  EXPECT_EQ(set(v1::JOB_STATE_SAVING, 1), StatusCode::kInvalidArgument);
  EXPECT_EQ(set(v1::JOB_STATE_CREATED, 1), StatusCode::kFailedPrecondition);
  EXPECT_EQ(set(v1::JOB_STATE_FAILED, 1), StatusCode::kOk);
}

TEST(JobTest, APsThatDiesAfterFreezeFailsTheJobByName) {
  World world;
  TestNode hub = world.join(v1::ROLE_HUB, "hub-0");
  TestNode ps = world.join(v1::ROLE_PS, "ps-0");
  world.train(hub, {ps});
  for (int i = 0; i < 6; ++i) {
    world.advance(seconds(1));
    world.beat(hub);
  }
  EXPECT_EQ(world.scheduler().job().state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(world.scheduler().job().reason(), HasSubstr("ps-0"));
}

TEST(JobTest, APsThatComesBackEmptyAfterFreezeStopsTheJob) {
  World world;
  TestNode ps = world.join(v1::ROLE_PS, "ps-0");
  world.train(ps, {ps});
  world.start_register({.role = v1::ROLE_PS, .name = "ps-0", .incarnation = 7}, 1, 1, true);
  EXPECT_EQ(world.scheduler().job().state(), v1::JOB_STATE_FAILED);
}

TEST(JobTest, ANewGenerationRefusesTheOldOneUntilNodesRegisterAgain) {
  World world;
  TestNode ps = world.join(v1::ROLE_PS, "ps-0");
  TestNode hub = world.join(v1::ROLE_HUB, "hub-0");
  world.train(hub, {ps});
  v1::SetJobOption option;
  option.set_new_generation(true);
  ASSERT_EQ(code_of(world.answer(world.start_set_job(hub, option))), StatusCode::kOk);
  EXPECT_EQ(world.scheduler().job().generation(), 2);
  EXPECT_EQ(world.beat(ps).meta.status().reason(), v1::REASON_WRONG_GENERATION);
  ps.generation = 0;
  const Message again = world.answer(world.start_register(ps));
  EXPECT_EQ(again.meta.register_reply().generation(), 2);
  EXPECT_EQ(again.meta.register_reply().id(), ps.id);
  ps.generation = 2;
  EXPECT_EQ(code_of(world.beat(ps)), StatusCode::kOk);
}

TEST(JobTest, ARestoredJobStartsAtTheClockOfItsCut) {
  SchedulerOptions options;
  options.staleness = 0;
  World world(options);
  TestNode ps = world.join(v1::ROLE_PS, "ps-0");
  TestNode trainer = world.join(v1::ROLE_TRAINER, "trainer-0");
  world.train(trainer, {ps});
  v1::SetJobOption option;
  option.set_start_clock(7);
  EXPECT_EQ(code_of(world.answer(world.start_set_job(trainer, option))),
            StatusCode::kInvalidArgument);
  option.set_new_generation(true);
  ASSERT_EQ(code_of(world.answer(world.start_set_job(trainer, option))), StatusCode::kOk);
  world.crash();
  const Message reply = world.answer(world.start_register(
      {.role = v1::ROLE_TRAINER, .name = "trainer-0", .incarnation = trainer.incarnation}));
  ASSERT_EQ(code_of(reply), StatusCode::kOk) << reply.meta.status().message();
  EXPECT_EQ(reply.meta.register_reply().start_clock(), 7);
  bool is_told = false;
  const v1::WatchReply whole = world.watch_all();
  for (const v1::Event& event : whole.events()) {
    is_told |= event.has_rank() && event.rank().clock() == 7;
  }
  EXPECT_TRUE(is_told);
}

TEST(KeySpaceTest, PutsGetsAndCompares) {
  World world;
  TestNode node = world.join(v1::ROLE_HUB, "hub-0");
  const Message first = world.call_numbered(node, Method::kSchedulerPut, putting("a/1", "x"));
  const uint64_t revision = first.meta.put_reply().now().revision();
  EXPECT_GT(revision, 0);
  Message compare = putting("a/1", "y");
  compare.meta.mutable_put()->set_if_revision(0);
  const Message refused = world.call_numbered(node, Method::kSchedulerPut, compare);
  EXPECT_EQ(code_of(refused), StatusCode::kAborted);
  EXPECT_EQ(refused.meta.put_reply().now().value(), "x");
  compare.meta.mutable_put()->set_if_revision(revision);
  EXPECT_EQ(code_of(world.call_numbered(node, Method::kSchedulerPut, compare)), StatusCode::kOk);
  world.call_numbered(node, Method::kSchedulerPut, putting("b", "z"));
  world.crash();
  const Message got = world.call({}, Method::kSchedulerGet, getting("a/"));
  ASSERT_EQ(got.meta.get_reply().values_size(), 1);
  EXPECT_EQ(got.meta.get_reply().values(0).value(), "y");
  Message paged = getting("");
  paged.meta.mutable_get()->set_keys_max(1);
  EXPECT_TRUE(world.call({}, Method::kSchedulerGet, paged).meta.get_reply().more());
  paged.meta.mutable_get()->set_after("a/1");
  EXPECT_EQ(world.call({}, Method::kSchedulerGet, paged).meta.get_reply().values(0).key(), "b");
}

TEST(KeySpaceTest, EphemeralKeysGoWithTheirNode) {
  World world;
  TestNode node = world.join(v1::ROLE_HUB, "hub-0");
  Message request = putting("here/hub-0", "x");
  request.meta.mutable_put()->set_ephemeral(true);
  world.call_numbered(node, Method::kSchedulerPut, request);
  world.call_numbered(node, Method::kSchedulerPut, putting("stays", "x"));
  world.crash();
  world.advance(seconds(6));
  const Message got = world.call({}, Method::kSchedulerGet, getting(""));
  ASSERT_EQ(got.meta.get_reply().values_size(), 1);
  EXPECT_EQ(got.meta.get_reply().values(0).key(), "stays");
}

TEST(KeySpaceTest, LimitsAreNamed) {
  SchedulerOptions options;
  options.limits.keys_max = 1;
  World world(options);
  TestNode node = world.join(v1::ROLE_HUB, "hub-0");
  EXPECT_EQ(code_of(world.call_numbered(node, Method::kSchedulerPut, putting("", "x"))),
            StatusCode::kInvalidArgument);
  const std::string large((1 << 20) + 1, 'x');
  EXPECT_EQ(code_of(world.call_numbered(node, Method::kSchedulerPut, putting("a", large))),
            StatusCode::kInvalidArgument);
  world.call_numbered(node, Method::kSchedulerPut, putting("a", "x"));
  EXPECT_EQ(code_of(world.call_numbered(node, Method::kSchedulerPut, putting("b", "x"))),
            StatusCode::kResourceExhausted);
}

TEST(SessionsTest, ANumberIsAppliedOnceAndRecognisedAfterARestart) {
  World world;
  TestNode node = world.join(v1::ROLE_HUB, "hub-0");
  const Message first = world.call_numbered(node, Method::kSchedulerPut, putting("a", "x"));
  world.crash();
  const Message again = world.call(node, Method::kSchedulerPut, putting("a", "x"));
  EXPECT_EQ(again.meta.put_reply().now().revision(), first.meta.put_reply().now().revision());
  const Message other = world.call(node, Method::kSchedulerPut, putting("a", "y"));
  EXPECT_EQ(code_of(other), StatusCode::kInvalidArgument);
  EXPECT_EQ(other.meta.status().reason(), v1::REASON_NUMBER_REUSED);
  node.session = 0;
  EXPECT_EQ(code_of(world.call(node, Method::kSchedulerPut, putting("a", "y"))),
            StatusCode::kInvalidArgument);
}

// A late copy used to take an item of which the asker never heard.
TEST(SessionsTest, AnEmptyAnswerOfTakeWorkIsGivenAgain) {
  World world;
  TestNode hub = world.join(v1::ROLE_HUB, "hub-0");
  Message take;
  take.meta.mutable_take_work()->set_queue("train");
  Message add;
  add.meta.mutable_add_work()->set_queue("train");
  world.call(hub, Method::kSchedulerAddWork, add);
  EXPECT_TRUE(world.call_numbered(hub, Method::kSchedulerTakeWork, take)
                  .meta.take_work_reply()
                  .leases()
                  .empty());
  add.meta.mutable_add_work()->add_items()->set_path("part-0");
  ASSERT_EQ(code_of(world.call(hub, Method::kSchedulerAddWork, add)), StatusCode::kOk);
  for (int restarts = 0; restarts < 2; ++restarts) {
    const Message late = world.call(hub, Method::kSchedulerTakeWork, take);
    EXPECT_TRUE(late.meta.take_work_reply().leases().empty()) << restarts;
    world.crash();
  }
  EXPECT_EQ(world.call_numbered(hub, Method::kSchedulerTakeWork, take)
                .meta.take_work_reply()
                .leases_size(),
            1);
}

TEST(SessionsTest, TheWindowIsBoundedAndAcknowledgedNumbersAreForgotten) {
  SchedulerOptions options;
  options.limits.window_max = 4;
  World world(options);
  TestNode node = world.join(v1::ROLE_HUB, "hub-0");
  for (int i = 0; i < 4; ++i) world.call_numbered(node, Method::kSchedulerPut, putting("a", "x"));
  const Message full = world.call_numbered(node, Method::kSchedulerPut, putting("a", "x"));
  EXPECT_EQ(full.meta.status().reason(), v1::REASON_WINDOW_FULL);
  Message acked = putting("a", "x");
  acked.meta.mutable_header()->set_acked_below(4);
  EXPECT_EQ(code_of(world.call(node, Method::kSchedulerPut, acked)), StatusCode::kOk);
}

TEST(WatchTest, WaitsForTheNextEventAndEndsEmptyByItsDeadline) {
  World world;
  Message request;
  request.meta.mutable_watch()->set_revision(world.revision());
  world.join(v1::ROLE_HUB, "hub-0");
  const uint64_t revision = world.revision();
  request.meta.mutable_watch()->set_revision(revision);
  const Token waits = world.send({}, Method::kSchedulerWatch, request, seconds(3));
  EXPECT_FALSE(world.answered(waits));
  world.advance(seconds(3));
  ASSERT_TRUE(world.answered(waits));
  EXPECT_TRUE(world.answer(waits).meta.watch_reply().events().empty());
  EXPECT_EQ(world.answer(waits).meta.watch_reply().revision(), revision);
  const Token next = world.send({}, Method::kSchedulerWatch, request);
  world.join(v1::ROLE_HUB, "hub-1");
  ASSERT_TRUE(world.answered(next));
  EXPECT_EQ(world.answer(next).meta.watch_reply().events(0).node().name(), "hub-1");
}

TEST(WatchTest, OldRevisionsGetTheWholeState) {
  SchedulerOptions options;
  options.limits.events_max = 2;
  World world(options);
  world.join(v1::ROLE_PS, "ps-0");
  const uint64_t old = world.revision();
  TestNode hub = world.join(v1::ROLE_HUB, "hub-0");
  EXPECT_FALSE(world.watch_from(old).whole());
  for (int i = 0; i < 3; ++i) world.call_numbered(hub, Method::kSchedulerPut, putting("k", "v"));
  const v1::WatchReply whole = world.watch_from(old);
  EXPECT_TRUE(whole.whole());
  int nodes = 0;
  for (const v1::Event& event : whole.events()) nodes += event.has_node() ? 1 : 0;
  EXPECT_EQ(nodes, 2);
}

TEST(WatchTest, KeysAreToldToThoseWhoAskedForThem) {
  World world;
  TestNode hub = world.join(v1::ROLE_HUB, "hub-0");
  Message request;
  request.meta.mutable_watch()->set_revision(world.revision());
  const Token deaf = world.send({}, Method::kSchedulerWatch, request);
  request.meta.mutable_watch()->add_key_prefixes("a/");
  const Token hears = world.send({}, Method::kSchedulerWatch, request);
  world.call_numbered(hub, Method::kSchedulerPut, putting("b", "v"));
  EXPECT_FALSE(world.answered(hears));
  world.call_numbered(hub, Method::kSchedulerPut, putting("a/1", "v"));
  EXPECT_TRUE(world.answered(hears));
  EXPECT_FALSE(world.answered(deaf));
}

TEST(WatchTest, AWatcherGoesOnOverARestartWithoutAGap) {
  World world;
  world.join(v1::ROLE_PS, "ps-0");
  const uint64_t revision = world.revision();
  world.crash();
  Message request;
  request.meta.mutable_watch()->set_revision(revision);
  const Token token = world.send({}, Method::kSchedulerWatch, request);
  EXPECT_FALSE(world.answered(token));
  world.join(v1::ROLE_HUB, "hub-0");
  EXPECT_FALSE(world.answer(token).meta.watch_reply().whole());
  EXPECT_EQ(world.answer(token).meta.watch_reply().events(0).node().name(), "hub-0");
}

TEST(SchedulerTest, RequestsOfTheWrongServiceOrCallerAreRefused) {
  World world;
  const TestNode node = world.join(v1::ROLE_HUB, "hub-0");
  EXPECT_EQ(code_of(world.call({}, Method::kSchedulerHeartbeat, {})),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(code_of(world.call(node, Method::kPsPull, {})), StatusCode::kUnimplemented);
  TestNode stranger = node;
  stranger.id = 99;
  EXPECT_EQ(world.beat(stranger).meta.status().reason(), v1::REASON_FENCED);
}

TEST(SchedulerTest, ADamagedLedgerIsDataLoss) {
  const std::vector<LedgerEntry> entries = {{"node/x", "\xff\xff", 1}};
  EXPECT_EQ(Scheduler::restore({}, entries, TimePoint(seconds(1))).status().code(),
            StatusCode::kDataLoss);
}

// One life of a job, each call repeated with the same number until it is answered. The process dies
// instead of its n-th commit and comes back from the ledger; whatever n, the job ends the same.
class Life {
 public:
  explicit Life(int crash_at) {
    world_.crash_at_commit(crash_at);
    ps_ = join(v1::ROLE_PS, "ps-0", 1);
    hub_ = join(v1::ROLE_HUB, "hub-0", 2);
    trainer_ = join(v1::ROLE_TRAINER, "trainer-0", 3);
  }

  // Everything that somebody could see of it.
  std::string live() {
    start_training();
    work();
    save();
    look();
    return seen_;
  }

  bool has_crashed() const { return has_crashed_; }

 private:
  static SchedulerOptions options() {
    SchedulerOptions options;
    options.checkpoint_path = "mem://cuts";
    return options;
  }

  void recover() {
    if (!world_.has_crashed()) return;
    has_crashed_ = true;
    world_.crash();
  }

  Message insist(const TestNode& node, Method method, const Message& request,
                 const std::vector<TestNode>& ps = {}) {
    for (int attempt = 0; attempt < 3; ++attempt) {
      const Token token = world_.send(node, method, request);
      if (!world_.has_crashed()) {
        for (const TestNode& each : ps) world_.beat_ps(each);
      }
      if (world_.answered(token)) return world_.answer(token);
      recover();
    }
    return status_reply(internal_error("never answered"));
  }

  TestNode join(v1::Role role, const std::string& name, uint64_t incarnation) {
    TestNode node{.role = role, .name = name, .incarnation = incarnation};
    node.session = incarnation * 10;
    Message request;
    request.meta.mutable_register_()->set_name(name);
    const Message reply = insist(node, Method::kSchedulerRegister, request);
    node.id = reply.meta.register_reply().id();
    node.generation = reply.meta.register_reply().generation();
    return node;
  }

  void note(const Message& message) { seen_ += message.meta.ShortDebugString() + "\n"; }

  void start_training() {
    Message set;
    set.meta.mutable_set_job()->set_state(v1::JOB_STATE_FROZEN);
    set.meta.mutable_set_job()->set_schema_hash(5);
    hub_.number = 1;
    note(insist(hub_, Method::kSchedulerSetJob, set));
    set.meta.mutable_set_job()->set_state(v1::JOB_STATE_TRAINING);
    hub_.number = 2;
    note(insist(hub_, Method::kSchedulerSetJob, set, {ps_}));
  }

  void work() {
    Message add;
    add.meta.mutable_add_work()->set_queue("q");
    add.meta.mutable_add_work()->set_complete(true);
    for (uint32_t i = 0; i < 3; ++i) add.meta.mutable_add_work()->add_items()->set_item(i);
    insist(hub_, Method::kSchedulerAddWork, add);
    for (uint32_t i = 0; i < 3; ++i) {
      Message take;
      take.meta.mutable_take_work()->set_queue("q");
      hub_.number = 10 + i;
      note(insist(hub_, Method::kSchedulerTakeWork, take));
      Message ack;
      ack.meta.mutable_ack_work()->set_queue("q");
      ack.meta.mutable_ack_work()->add_items()->set_item(i);
      note(insist(hub_, Method::kSchedulerAckWork, ack));
      Message barrier;
      barrier.meta.mutable_barrier()->set_name("b");
      barrier.meta.mutable_barrier()->add_members("trainer-0");
      trainer_.number = i + 1;
      note(insist(trainer_, Method::kSchedulerBarrier, barrier));
      hub_.number = 20 + i;
      insist(hub_, Method::kSchedulerPut, putting("k", std::to_string(i)));
    }
  }

  void report(const TestNode& node, v1::CutPhase phase) {
    Message request;
    v1::SaveJobOption* option = request.meta.mutable_save_job();
    option->set_action(v1::SAVE_ACTION_REPORT);
    option->set_phase(phase);
    option->mutable_written()->set_done(true);
    insist(node, Method::kSchedulerSave, request);
  }

  void save() {
    Message start;
    start.meta.mutable_save_job();
    hub_.number = 30;
    const Message cut = insist(hub_, Method::kSchedulerSave, start);
    seen_ += fmt::format("cut {}\n", cut.meta.save_job_reply().cut().cut_id());
    report(hub_, v1::CUT_PHASE_DRAIN);
    report(hub_, v1::CUT_PHASE_SNAPSHOT);
    report(ps_, v1::CUT_PHASE_SNAPSHOT);
    report(ps_, v1::CUT_PHASE_WRITE);
    while (!world_.commits.empty() && world_.scheduler().job().newest_cut() == 0) {
      world_.take(world_.scheduler().cut_written(1, std::string("path"), world_.now()));
      recover();
    }
  }

  void look() {
    const v1::JobInfo job = world_.scheduler().job();
    seen_ += fmt::format("state {} newest {} map {}\n", static_cast<int>(job.state()),
                         job.newest_cut(), world_.scheduler().map().version());
    const Message value = insist({}, Method::kSchedulerGet, getting("k"));
    seen_ += value.meta.get_reply().values_size() == 1 ? value.meta.get_reply().values(0).value()
                                                       : "no value";
    Message get;
    get.meta.mutable_get_job()->set_with_work(true);
    const Message work = insist({}, Method::kSchedulerGetJob, get);
    for (const v1::WorkQueueInfo& queue : work.meta.get_job_reply().queues()) {
      seen_ += queue.ShortDebugString();
    }
  }

  World world_{options()};
  TestNode ps_, hub_, trainer_;
  std::string seen_;
  bool has_crashed_ = false;
};

TEST(SchedulerTest, ACrashAtAnyCommitChangesNothingThatAnybodySees) {
  Life undisturbed(0);
  const std::string expected = undisturbed.live();
  ASSERT_FALSE(undisturbed.has_crashed());
  EXPECT_THAT(expected, HasSubstr("newest 1"));
  EXPECT_THAT(expected, HasSubstr("done: 3"));
  int crashes = 0;
  for (int at = 1; at < 100; ++at) {
    SCOPED_TRACE(at);
    Life life(at);
    EXPECT_EQ(life.live(), expected);
    if (!life.has_crashed()) break;
    ++crashes;
  }
  EXPECT_GT(crashes, 20);
}

}  // namespace
}  // namespace starling
