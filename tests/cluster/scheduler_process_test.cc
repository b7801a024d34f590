// A real scheduler process is killed with SIGKILL and started again on its port and ledger, while
// nodes of this process are registered, watching and calling.
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "net/makers.h"
#include "scheduler/client.h"
#include "store/test_tools.h"
#include "tests/cluster/process.h"

namespace starling {
namespace {

constexpr Duration kPatience = seconds(60);

// On its ledger in `directory`.
std::unique_ptr<cluster::Process> start_scheduler(const std::string& listen,
                                                  const TemporaryDirectory& directory) {
  return std::make_unique<cluster::Process>(
      std::vector<std::string>{"scheduler", "--set",
                               "scheduler.ledger=" + directory.path() + "/ledger", "--set",
                               "log.level=off", "--listen", listen},
      directory.path() + "/scheduler.log");
}

class Recorder : public SchedulerEvents {
 public:
  void on_event(const v1::Event& event) override {
    MutexLock lock(mutex_);
    if (event.has_node()) states_[event.node().name()] = event.node().state();
    if (event.has_key()) keys_[event.key().key()] = event.key().value();
    changed_.notify_all();
  }
  void on_refused(const Status& status) override {
    MutexLock lock(mutex_);
    refused_ = status;
  }
  bool wait_for_key(const std::string& key, const std::string& value) {
    const Deadline deadline = Deadline::in(RealClock(), kPatience);
    MutexLock lock(mutex_);
    while (keys_[key] != value) {
      if (!changed_.wait(mutex_, deadline)) return keys_[key] == value;
    }
    return true;
  }
  v1::NodeState state(const std::string& name) {
    MutexLock lock(mutex_);
    return states_[name];
  }
  Status refused() {
    MutexLock lock(mutex_);
    return refused_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, v1::NodeState> states_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> keys_ ABSL_GUARDED_BY(mutex_);
  Status refused_ ABSL_GUARDED_BY(mutex_);
};

// A node of this process with a lane of its own.
struct Node {
  Node(Network& network, const std::string& scheduler, v1::Role role, const std::string& name,
       uint64_t incarnation)
      : lane(network.make_lane(name, 0)) {
    SchedulerClientOptions options;
    options.scheduler = *Address::parse(scheduler);
    options.role = role;
    options.name = name;
    options.incarnation = incarnation;
    options.key_prefixes = {""};
    client = std::make_unique<SchedulerClient>(network, lane, options, &recorder);
  }
  ~Node() {
    lane->stop();
    client.reset();
  }
  Recorder recorder;
  std::shared_ptr<LoopLane> lane;
  std::unique_ptr<SchedulerClient> client;
};

Deadline soon() { return Deadline::in(RealClock(), kPatience); }

class SchedulerProcessTest : public testing::TestWithParam<std::string> {
 protected:
  TemporaryDirectory directory_;
};

TEST_P(SchedulerProcessTest, NodesReattachAfterSigkillAndTheJobGoesOn) {
  auto scheduler = start_scheduler(GetParam() + "://127.0.0.1:0", directory_);
  const std::string address = scheduler->first_line();
  ASSERT_NE(address, "");
  Metrics metrics;
  const std::unique_ptr<Network> network = make_network(NetOptions(), Log(), metrics);
  Node ps(*network, address, v1::ROLE_PS, "ps-0", 11);
  Node hub(*network, address, v1::ROLE_HUB, "hub-0", 12);
  const StatusOr<v1::RegisterReply> joined = ps.client->join_wait(soon());
  ASSERT_TRUE(joined.ok()) << joined.status();
  ASSERT_TRUE(hub.client->join_wait(soon()).ok());
  v1::AddWorkOption add;
  add.set_queue("q");
  add.set_complete(true);
  for (uint32_t i = 0; i < 8; ++i) add.add_items()->set_item(i);
  ASSERT_TRUE(hub.client->add_work(add, soon()).ok());
  for (uint32_t round = 0; round < 4; ++round) {
    SCOPED_TRACE(round);
    v1::TakeWorkOption take;
    take.set_queue("q");
    const StatusOr<v1::TakeWorkReply> taken = hub.client->take_work(take, soon());
    ASSERT_TRUE(taken.ok()) << taken.status();
    ASSERT_EQ(taken->leases_size(), 1);
    EXPECT_EQ(taken->leases(0).work().item(), round);
    // Killed while the hub's next call is on its way or just answered.
    v1::PutOption put;
    put.set_key("round");
    put.set_value(std::to_string(round));
    StatusOr<v1::KeyValue> done = unavailable("not asked yet");
    std::thread caller([&] { done = hub.client->put(put, soon()); });
    scheduler->end(SIGKILL);
    scheduler = start_scheduler(address, directory_);
    caller.join();
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_EQ(scheduler->first_line(), address);
    v1::AckWorkOption ack;
    ack.set_queue("q");
    ack.add_items()->set_item(round);
    const Status acked = hub.client->ack_work(ack, soon());
    EXPECT_TRUE(acked.ok()) << acked;
    EXPECT_TRUE(ps.recorder.wait_for_key("round", std::to_string(round)));
  }
  v1::GetJobOption option;
  option.set_with_nodes(true);
  option.set_with_work(true);
  const StatusOr<v1::GetJobReply> job = hub.client->get_job(option, soon());
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ(job->nodes_size(), 2);
  EXPECT_EQ(job->nodes(0).id(), joined->id());
  for (const v1::Node& node : job->nodes()) EXPECT_EQ(node.state(), v1::NODE_STATE_ALIVE);
  EXPECT_EQ(job->queues(0).done(), 4);
  EXPECT_TRUE(ps.recorder.refused().ok());
  EXPECT_EQ(ps.recorder.state("hub-0"), v1::NODE_STATE_ALIVE);
}

TEST_P(SchedulerProcessTest, SigtermEndsItCleanlyWithWatchersWaiting) {
  const auto scheduler = start_scheduler(GetParam() + "://127.0.0.1:0", directory_);
  Metrics metrics;
  const std::unique_ptr<Network> network = make_network(NetOptions(), Log(), metrics);
  Node ps(*network, scheduler->first_line(), v1::ROLE_PS, "ps-0", 11);
  ASSERT_TRUE(ps.client->join_wait(soon()).ok());
  EXPECT_EQ(scheduler->end(SIGTERM), 0);
}

INSTANTIATE_TEST_SUITE_P(Protocols, SchedulerProcessTest, testing::Values("grpc++", "grpc"),
                         [](const auto& info) { return info.param == "grpc" ? "grpc" : "fast"; });

}  // namespace
}  // namespace starling
