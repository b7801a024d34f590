#include "scheduler/barriers.h"

#include "scheduler/scheduler_testing.h"

namespace starling {
namespace {

using scheduler_testing::code_of;
using scheduler_testing::TestNode;
using scheduler_testing::World;
using testing::ElementsAre;
using testing::HasSubstr;

Message at(v1::Group group, std::vector<std::string> members = {}, uint64_t generation = 0) {
  Message request;
  v1::BarrierOption* option = request.meta.mutable_barrier();
  option->set_name("start");
  option->set_group(group);
  for (std::string& member : members) option->add_members(std::move(member));
  option->set_barrier_generation(generation);
  return request;
}

class BarriersTest : public testing::Test {
 protected:
  World world_;
  TestNode a_ = world_.join(v1::ROLE_TRAINER, "trainer-0");
  TestNode b_ = world_.join(v1::ROLE_TRAINER, "trainer-1");

  Token arrive(TestNode& node, Message request, Duration timeout = seconds(10)) {
    ++node.number;
    return world_.send(node, Method::kSchedulerBarrier, std::move(request), timeout);
  }
  void keep_alive(Duration time) {
    for (Duration passed{}; passed < time; passed += seconds(1)) {
      world_.advance(seconds(1));
      world_.beat(a_);
      world_.beat(b_);
    }
  }
};

TEST_F(BarriersTest, PassesWhenAllOfTheGroupAreThere) {
  const Token first = arrive(a_, at(v1::GROUP_TRAINERS));
  EXPECT_FALSE(world_.answered(first));
  const Token second = arrive(b_, at(v1::GROUP_TRAINERS));
  EXPECT_EQ(code_of(world_.answer(first)), StatusCode::kOk);
  EXPECT_EQ(world_.answer(second).meta.barrier_reply().barrier_generation(), 1);
}

TEST_F(BarriersTest, ASecondUseIsANewGeneration) {
  for (uint64_t generation = 1; generation <= 3; ++generation) {
    const Token first = arrive(a_, at(v1::GROUP_TRAINERS));
    arrive(b_, at(v1::GROUP_TRAINERS));
    EXPECT_EQ(world_.answer(first).meta.barrier_reply().barrier_generation(), generation);
  }
}

TEST_F(BarriersTest, ARepeatOfAPassedArrivalIsNotOneAtTheNext) {
  arrive(a_, at(v1::GROUP_TRAINERS));
  arrive(b_, at(v1::GROUP_TRAINERS));
  world_.crash();
  // The same number again: its answer was lost with the connection.
  const Message again = world_.call(a_, Method::kSchedulerBarrier, at(v1::GROUP_TRAINERS));
  EXPECT_EQ(again.meta.barrier_reply().barrier_generation(), 1);
  EXPECT_FALSE(world_.answered(arrive(b_, at(v1::GROUP_TRAINERS))));
}

TEST_F(BarriersTest, CallersOfARestartedSchedulerArriveAgainAndPass) {
  arrive(a_, at(v1::GROUP_TRAINERS));
  world_.crash();
  const Token b = arrive(b_, at(v1::GROUP_TRAINERS));
  EXPECT_FALSE(world_.answered(b));
  const Token a = world_.send(a_, Method::kSchedulerBarrier, at(v1::GROUP_TRAINERS));
  EXPECT_EQ(code_of(world_.answer(a)), StatusCode::kOk);
  EXPECT_EQ(code_of(world_.answer(b)), StatusCode::kOk);
}

TEST_F(BarriersTest, GenerationsAreRecognised) {
  arrive(a_, at(v1::GROUP_TRAINERS, {}, 1));
  arrive(b_, at(v1::GROUP_TRAINERS, {}, 1));
  EXPECT_EQ(code_of(world_.answer(arrive(a_, at(v1::GROUP_TRAINERS, {}, 1)))), StatusCode::kOk);
  EXPECT_FALSE(world_.answered(arrive(a_, at(v1::GROUP_TRAINERS, {}, 2))));
  EXPECT_EQ(code_of(world_.answer(arrive(b_, at(v1::GROUP_TRAINERS, {}, 3)))),
            StatusCode::kFailedPrecondition);
}

TEST_F(BarriersTest, TheDeadlineSaysWhoArrivedAndWhoIsMissing) {
  const Token token = arrive(a_, at(v1::GROUP_NONE, {"trainer-0", "trainer-1", "hub-7"}));
  keep_alive(seconds(10));
  const Message late = world_.answer(token);
  EXPECT_EQ(code_of(late), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(late.meta.barrier_reply().arrived(), ElementsAre("trainer-0"));
  EXPECT_THAT(late.meta.barrier_reply().missing(), ElementsAre("hub-7", "trainer-1"));
  EXPECT_THAT(late.meta.status().message(), HasSubstr("hub-7, trainer-1"));
}

TEST_F(BarriersTest, AMemberThatDiesFailsItByName) {
  const Token token = arrive(a_, at(v1::GROUP_TRAINERS), seconds(60));
  for (int i = 0; i < 6; ++i) {
    world_.advance(seconds(1));
    world_.beat(a_);
  }
  const Message dead = world_.answer(token);
  EXPECT_EQ(code_of(dead), StatusCode::kAborted);
  EXPECT_EQ(dead.meta.status().reason(), v1::REASON_MEMBER_DIED);
  EXPECT_EQ(dead.meta.status().node(), "trainer-1");
  // Who is listed and dead fails it at once.
  const Token next = arrive(a_, at(v1::GROUP_NONE, {"trainer-0", "trainer-1"}));
  EXPECT_EQ(world_.answer(next).meta.status().node(), "trainer-1");
}

TEST_F(BarriersTest, AMemberWhoseProcessWasReplacedWhileWaitingFailsIt) {
  const Token token = arrive(a_, at(v1::GROUP_TRAINERS));
  world_.join(v1::ROLE_TRAINER, "trainer-0");
  EXPECT_EQ(world_.answer(token).meta.status().node(), "trainer-0");
}

TEST_F(BarriersTest, WhoLeavesInOrderIsNotWaitedFor) {
  const Token token = arrive(a_, at(v1::GROUP_TRAINERS));
  Message leave;
  leave.meta.mutable_leave();
  ASSERT_EQ(code_of(world_.call(b_, Method::kSchedulerLeave, leave)), StatusCode::kOk);
  EXPECT_EQ(code_of(world_.answer(token)), StatusCode::kOk);
}

TEST_F(BarriersTest, BadCallsAreRefused) {
  EXPECT_EQ(code_of(world_.answer(arrive(a_, at(v1::GROUP_NONE)))), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(world_.answer(arrive(a_, at(v1::GROUP_PS, {"x"})))),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(world_.answer(arrive(a_, at(v1::GROUP_HUBS)))), StatusCode::kInvalidArgument);
  arrive(a_, at(v1::GROUP_TRAINERS));
  EXPECT_EQ(code_of(world_.answer(arrive(b_, at(v1::GROUP_ALL)))), StatusCode::kInvalidArgument);
}

TEST(BarriersExpectedTest, AGroupWaitsForTheNodesTheJobStartsWith) {
  SchedulerOptions options;
  options.trainers_expected = 2;
  World world(options);
  TestNode a = world.join(v1::ROLE_TRAINER, "trainer-0");
  a.number = 1;
  const Token token = world.send(a, Method::kSchedulerBarrier, at(v1::GROUP_TRAINERS));
  EXPECT_FALSE(world.answered(token));
  TestNode b = world.join(v1::ROLE_TRAINER, "trainer-1");
  EXPECT_FALSE(world.answered(token));
  b.number = 1;
  world.send(b, Method::kSchedulerBarrier, at(v1::GROUP_TRAINERS));
  EXPECT_EQ(code_of(world.answer(token)), StatusCode::kOk);
}

}  // namespace
}  // namespace starling
