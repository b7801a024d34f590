#include "scheduler/nodes.h"

#include "scheduler/scheduler_testing.h"

namespace starling {
namespace {

using scheduler_testing::code_of;
using scheduler_testing::TestNode;
using scheduler_testing::World;

v1::NodeState state_of(World& world, const std::string& name) {
  v1::NodeState state = v1::NODE_STATE_UNKNOWN;
  const v1::WatchReply all = world.watch_all();
  for (const v1::Event& event : all.events()) {
    if (event.has_node() && event.node().name() == name) state = event.node().state();
  }
  return state;
}

TEST(NodesTest, IdsStartAt1AndStayWithTheName) {
  World world;
  const TestNode a = world.join(v1::ROLE_PS, "ps-0");
  const TestNode b = world.join(v1::ROLE_HUB, "hub-0");
  EXPECT_EQ(a.id, 1);
  EXPECT_EQ(b.id, 2);
  EXPECT_EQ(world.join(v1::ROLE_PS, "ps-0").id, 1);
}

TEST(NodesTest, RegisterIsIdempotentForOneIncarnation) {
  World world;
  const TestNode a = world.join(v1::ROLE_PS, "ps-0");
  const uint64_t revision = world.revision();
  const Message again = world.answer(world.start_register(a));
  EXPECT_EQ(again.meta.register_reply().id(), a.id);
  EXPECT_EQ(world.revision(), revision);
}

TEST(NodesTest, ANewIncarnationFencesTheOldOneForGood) {
  World world;
  const TestNode old = world.join(v1::ROLE_HUB, "hub-0");
  const TestNode fresh = world.join(v1::ROLE_HUB, "hub-0");
  const Message beat = world.beat(old);
  EXPECT_EQ(code_of(beat), StatusCode::kFailedPrecondition);
  EXPECT_EQ(beat.meta.status().reason(), v1::REASON_FENCED);
  const Message again = world.answer(world.start_register(old));
  EXPECT_EQ(again.meta.status().reason(), v1::REASON_FENCED);
  EXPECT_EQ(code_of(world.beat(fresh)), StatusCode::kOk);
}

// It used to fence the process that had come in its place.
TEST(NodesTest, ALateRegisterOfAnOlderProcessFencesNobody) {
  World world;
  const TestNode first = world.join(v1::ROLE_HUB, "hub-0");
  // This one asked for the place of the first and died before it was heard.
  const TestNode older{.role = v1::ROLE_HUB, .name = "hub-0", .incarnation = 900};
  const TestNode living = world.join(v1::ROLE_HUB, "hub-0");
  for (const uint64_t replaces : {uint64_t{0}, first.incarnation, older.incarnation}) {
    Message late;
    late.meta.mutable_register_()->set_name("hub-0");
    late.meta.mutable_register_()->set_replaces(replaces);
    const Message reply = world.call(older, Method::kSchedulerRegister, late);
    EXPECT_EQ(code_of(reply), StatusCode::kAborted) << replaces;
    EXPECT_EQ(reply.meta.status().reason(), v1::REASON_NAME_TAKEN);
    EXPECT_EQ(reply.meta.register_reply().living(), living.incarnation);
    EXPECT_EQ(code_of(world.beat(living)), StatusCode::kOk);
  }
}

TEST(NodesTest, ASilentNodeDiesAfterItsLeaseAndAllAreTold) {
  World world;
  const TestNode node = world.join(v1::ROLE_HUB, "hub-0");
  const uint64_t revision = world.revision();
  world.advance(milliseconds(4900));
  EXPECT_EQ(state_of(world, "hub-0"), v1::NODE_STATE_ALIVE);
  world.advance(milliseconds(200));
  EXPECT_EQ(state_of(world, "hub-0"), v1::NODE_STATE_DEAD);
  const v1::WatchReply told = world.watch_from(revision);
  ASSERT_EQ(told.events_size(), 1);
  EXPECT_EQ(told.events(0).node().state(), v1::NODE_STATE_DEAD);
  EXPECT_EQ(world.beat(node).meta.status().reason(), v1::REASON_FENCED);
}

TEST(NodesTest, HeartbeatsKeepANodeAlive) {
  World world;
  const TestNode node = world.join(v1::ROLE_HUB, "hub-0");
  for (int i = 0; i < 10; ++i) {
    world.advance(seconds(4));
    EXPECT_EQ(code_of(world.beat(node)), StatusCode::kOk);
  }
}

TEST(NodesTest, AfterARestartAFullLeasePassesBeforeAnybodyIsDead) {
  World world;
  world.join(v1::ROLE_HUB, "hub-0");
  world.advance(milliseconds(4900));
  world.crash();
  world.advance(milliseconds(4900));
  EXPECT_EQ(state_of(world, "hub-0"), v1::NODE_STATE_ALIVE);
  world.advance(milliseconds(200));
  EXPECT_EQ(state_of(world, "hub-0"), v1::NODE_STATE_DEAD);
}

TEST(NodesTest, ASchedulerThatWasStoppedForLongKillsNobody) {
  World world;
  world.join(v1::ROLE_HUB, "hub-0");
  world.sleep(seconds(60));
  world.advance(milliseconds(4900));
  EXPECT_EQ(state_of(world, "hub-0"), v1::NODE_STATE_ALIVE);
}

TEST(NodesTest, BadRegistrationsNameWhatIsWrong) {
  World world;
  world.join(v1::ROLE_PS, "ps-0");
  const Message no_name =
      world.answer(world.start_register({.role = v1::ROLE_PS, .incarnation = 1}));
  EXPECT_EQ(code_of(no_name), StatusCode::kInvalidArgument);
  const Message no_incarnation =
      world.answer(world.start_register({.role = v1::ROLE_PS, .name = "x"}));
  EXPECT_EQ(code_of(no_incarnation), StatusCode::kInvalidArgument);
  const Message role =
      world.answer(world.start_register({.role = v1::ROLE_HUB, .name = "ps-0", .incarnation = 5}));
  EXPECT_EQ(code_of(role), StatusCode::kInvalidArgument);
  const Message lanes = world.answer(
      world.start_register({.role = v1::ROLE_PS, .name = "ps-1", .incarnation = 6}, 4096));
  EXPECT_EQ(code_of(lanes), StatusCode::kInvalidArgument);
  const Message tool =
      world.answer(world.start_register({.role = v1::ROLE_UNKNOWN, .name = "t", .incarnation = 6}));
  EXPECT_EQ(code_of(tool), StatusCode::kInvalidArgument);
}

TEST(NodesTest, DeadNodesMakeRoomForNewOnes) {
  SchedulerOptions options;
  options.limits.nodes_max = 2;
  World world(options);
  const TestNode a = world.join(v1::ROLE_HUB, "hub-0");
  world.join(v1::ROLE_HUB, "hub-1");
  const Message full =
      world.answer(world.start_register({.role = v1::ROLE_HUB, .name = "hub-2", .incarnation = 9}));
  EXPECT_EQ(code_of(full), StatusCode::kResourceExhausted);
  world.advance(seconds(3));
  world.beat(a);
  world.advance(seconds(3));
  world.join(v1::ROLE_HUB, "hub-2");
  EXPECT_EQ(code_of(world.beat(a)), StatusCode::kOk);
}

TEST(NodesTest, ANodeBelowHalfOfTheMedianIsSlow) {
  World world;
  std::vector<TestNode> nodes;
  for (int i = 0; i < 4; ++i) {
    nodes.push_back(world.join(v1::ROLE_TRAINER, fmt::format("trainer-{}", i)));
    v1::SchedulerHeartbeatOption option;
    option.add_rates()->set_name("samples_per_s");
    option.mutable_rates(0)->set_value(i == 2 ? 40 : 100);
    world.beat(nodes.back(), option);
  }
  Message request;
  request.meta.mutable_get_job()->set_with_nodes(true);
  const Message reply = world.call({}, Method::kSchedulerGetJob, request);
  ASSERT_EQ(reply.meta.get_job_reply().nodes_size(), 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(reply.meta.get_job_reply().nodes(i).slow(), i == 2);
}

}  // namespace
}  // namespace starling
