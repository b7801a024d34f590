// Ranks that come and go while the job trains, over real shards and every transport.
#include <gmock/gmock.h>

#include <thread>

#include "tests/cluster/world.h"

namespace starling::cluster {
namespace {

class RanksTest : public testing::TestWithParam<Protocol> {
 protected:
  RanksTest()
      : world_({.protocol = GetParam(), .ps = 2, .shards = 2, .staleness = 1, .trainers = 2}) {}

  Node& join(const std::string& name) {
    Node& node = world_.add(v1::ROLE_TRAINER, name);
    const Status joined = node.join();
    EXPECT_TRUE(joined.ok()) << joined;
    EXPECT_EQ(node.ranks.size(), 1U);
    return node;
  }
  // An empty step: every shard gets a tick.
  static Status tick(Node& node, uint64_t clock) {
    std::vector<ShardMessage> messages;
    for (uint32_t shard = 0; shard < node.ps->routes()->shards(); ++shard) {
      Message message;
      v1::Header* header = message.meta.mutable_header();
      header->set_rank(node.ranks.at(0));
      header->set_clock(clock);
      header->mutable_batch()->set_epoch(9);
      header->mutable_batch()->set_item(node.ranks.at(0));
      header->mutable_batch()->set_number(clock);
      message.meta.mutable_push_grad();
      messages.push_back({shard, std::move(message)});
    }
    return node.ps->push_batch(std::move(messages), soon());
  }
  v1::NodeState state_of(Node& asker, const std::string& name) {
    v1::GetJobOption option;
    option.set_with_nodes(true);
    const auto job = asker.scheduler->get_job(option, soon());
    EXPECT_TRUE(job.ok()) << job.status();
    for (const v1::Node& node : job->nodes()) {
      if (node.name() == name) return node.state();
    }
    return v1::NODE_STATE_UNKNOWN;
  }

  World world_;
};

// It used to stay as leaving until its lease ended, and was then told to have died.
TEST_P(RanksTest, ATrainerThatLeavesInOrderHasLeftAndItsNumberIsFree) {
  Node& stays = join("trainer-0");
  Node& leaves = join("trainer-1");
  v1::CreateOption create;
  *create.add_tables() = table("t", 1, rule("sgd", {{"lr", 1}}));
  world_.make_tables(stays, create);
  world_.start_training(stays, world_.schema_hash);
  for (uint64_t clock = 0; clock < 3; ++clock) {
    ASSERT_TRUE(tick(stays, clock).ok());
    ASSERT_TRUE(tick(leaves, clock).ok());
  }
  const auto left = leaves.scheduler->leave({}, soon());
  ASSERT_TRUE(left.ok()) << left.status();
  const uint64_t last = left->clock();
  EXPECT_GE(last, 3u);
  for (uint64_t clock = 3; clock < last; ++clock) {
    ASSERT_TRUE(tick(stays, clock).ok());
    ASSERT_TRUE(tick(leaves, clock).ok());
  }
  // Nobody waits for it any more.
  for (uint64_t clock = last; clock < last + 5; ++clock) ASSERT_TRUE(tick(stays, clock).ok());
  const Deadline deadline = soon();
  v1::NodeState state = v1::NODE_STATE_LEAVING;
  while (state == v1::NODE_STATE_LEAVING && !deadline.passed(RealClock().now())) {
    std::this_thread::sleep_for(milliseconds(10));
    state = state_of(stays, "trainer-1");
  }
  EXPECT_EQ(state, v1::NODE_STATE_LEFT) << v1::NodeState_Name(state);
  const uint32_t number = leaves.ranks.at(0);
  EXPECT_EQ(join("trainer-2").ranks.at(0), number);
}

INSTANTIATE_TEST_SUITE_P(Protocols, RanksTest, testing::ValuesIn(all_protocols()), protocol_title);

}  // namespace
}  // namespace starling::cluster
