// Real processes on loopback: the life of a job, a scheduler killed in the middle of it, and a ps
// whose death everybody names.
#include "tests/cluster/process.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "store/test_tools.h"
#include "tests/cluster/batches.h"
#include "tests/cluster/world.h"

namespace starling::cluster {
namespace {

using testing::HasSubstr;

constexpr uint32_t kDim = 2;

v1::CreateOption tables() {
  v1::CreateOption option;
  *option.add_tables() = table("t", kDim, rule("sgd", {{"lr", 1}}));
  *option.add_variables() = variable("w", 100, rule("sgd", {{"lr", 1}}), 10);
  return option;
}

class ProcessTest : public testing::TestWithParam<std::string> {
 protected:
  ProcessTest() : network_(make_network(NetOptions(), Log(), metrics_)) {
    start_scheduler(GetParam() + "://127.0.0.1:0");
    address_ = scheduler_->first_line();
    for (int i = 0; i < 2; ++i) {
      ps_.push_back(std::make_unique<Process>(
          std::vector<std::string>{"ps", "--scheduler", address_, "--name", fmt::format("ps-{}", i),
                                   "--listen", GetParam() + "://127.0.0.1:0", "--set",
                                   "cluster.shards=2"},
          fmt::format("{}/ps-{}.log", directory_.path(), i)));
      EXPECT_THAT(ps_.back()->first_line(), HasSubstr("://127.0.0.1:")) << ps_.back()->errors();
    }
  }
  ~ProcessTest() override { nodes_.clear(); }

  void start_scheduler(const std::string& listen) {
    scheduler_ = std::make_unique<Process>(
        std::vector<std::string>{"scheduler", "--listen", listen, "--set", "cluster.ps=2", "--set",
                                 "scheduler.ledger=" + directory_.path() + "/ledger"},
        directory_.path() + "/scheduler.log");
  }

  Node& join(v1::Role role, const std::string& name) {
    nodes_.push_back(std::make_unique<Node>(*network_, *Address::parse(address_), role, name,
                                            10 + nodes_.size()));
    const Status joined = nodes_.back()->join();
    EXPECT_TRUE(joined.ok()) << joined;
    return *nodes_.back();
  }
  void freeze(Node& node) {
    Status done = node.ps->create(tables(), soon());
    ASSERT_TRUE(done.ok()) << done;
    const auto hash = node.ps->freeze({}, soon());
    ASSERT_TRUE(hash.ok()) << hash.status();
    for (const v1::JobState state : {v1::JOB_STATE_FROZEN, v1::JOB_STATE_TRAINING}) {
      v1::SetJobOption option;
      option.set_state(state);
      option.set_schema_hash(*hash);
      const auto set = node.scheduler->set_job(option, soon());
      ASSERT_TRUE(set.ok()) << set.status();
    }
  }
  // One step by batch and one by key: every row of the keys loses 1 each time.
  void step(Node& node, uint64_t clock, const std::vector<uint64_t>& keys) {
    std::vector<std::vector<uint64_t>> samples;
    for (const uint64_t key : keys) samples.push_back({key});
    Batch batch({{"f", "t"}}, {.id = {0, 0, clock}, .step = clock, .keys = {samples}},
                *node.ps->routes(), {{"t", kDim}});
    Status done = node.ps->feed(batch.feeds(), soon());
    ASSERT_TRUE(done.ok()) << done;
    const auto looked = node.ps->lookup(batch.lookups(0, clock), soon());
    ASSERT_TRUE(looked.ok()) << looked.status();
    const auto ones = [](size_t, size_t) { return std::vector<float>(kDim, 1); };
    done = node.ps->push_batch(numbered(batch.pushes(0, clock, ones)), soon());
    ASSERT_TRUE(done.ok()) << done;
    done = node.ps->push_grad(
        {{.table = "t",
          .keys = keys_of(keys),
          .grads = rows_of(keys.size(), kDim, std::vector<float>(keys.size() * kDim, 1))}},
        {{.variable = "w", .values = floats_of(std::vector<float>(100, 1))}}, soon());
    ASSERT_TRUE(done.ok()) << done;
  }
  void expect_steps(Node& node, const std::vector<uint64_t>& keys, float steps) {
    const auto pulled = node.ps->pull({{.table = "t", .keys = keys_of(keys)}}, soon());
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_EQ(floats(pulled->front().values), std::vector<float>(keys.size() * kDim, -2 * steps));
    const auto dense = node.ps->pull_dense({{.variable = "w"}}, soon());
    ASSERT_TRUE(dense.ok()) << dense.status();
    EXPECT_EQ(floats(dense->front().values), std::vector<float>(100, -steps));
  }

  TemporaryDirectory directory_;
  Metrics metrics_;
  std::unique_ptr<Network> network_;
  std::string address_;
  std::unique_ptr<Process> scheduler_;
  std::vector<std::unique_ptr<Process>> ps_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

const std::vector<uint64_t> kKeys = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, UINT64_MAX, 0};

TEST_P(ProcessTest, AJobLivesFromCreateToTheEnd) {
  Node& trainer = join(v1::ROLE_TRAINER, "trainer-0");
  ASSERT_NO_FATAL_FAILURE(freeze(trainer));
  for (uint64_t clock = 0; clock < 5; ++clock) {
    ASSERT_NO_FATAL_FAILURE(step(trainer, clock, kKeys));
  }
  expect_steps(trainer, kKeys, 5);
  // One by the RPC, one by Ctrl-C: both end well.
  Message stop;
  stop.meta.mutable_stop()->set_reason("the test is over");
  const auto routes = trainer.ps->routes();
  const auto stopped = trainer.ps->call(Method::kPsStop, {{0, stop}}, soon());
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  const std::string first = routes->shard(0).addresses(0).DebugString();
  const size_t asked =
      ps_[0]->first_line().ends_with(fmt::format(":{}", routes->shard(0).addresses(0).port())) ? 0
                                                                                               : 1;
  EXPECT_EQ(ps_[asked]->wait(), 0) << first;
  EXPECT_EQ(ps_[1 - asked]->end(SIGINT), 0);
}

TEST_P(ProcessTest, TrainingGoesOnOverTheDeathOfTheScheduler) {
  Node& trainer = join(v1::ROLE_TRAINER, "trainer-0");
  ASSERT_NO_FATAL_FAILURE(freeze(trainer));
  constexpr int kDeaths = 3;
  std::atomic<uint64_t> clock{0};
  std::atomic<bool> over{false};
  std::thread training([&] {
    while (!over && !HasFailure()) step(trainer, clock++, kKeys);
  });
  for (int i = 0; i < kDeaths; ++i) {
    const uint64_t before = clock;
    scheduler_->end(SIGKILL);
    // Steps are made while there is none.
    while (clock < before + 3 && !HasFailure()) std::this_thread::sleep_for(milliseconds(5));
    start_scheduler(address_);
    EXPECT_EQ(scheduler_->first_line(), address_);
    v1::PutOption put;
    put.set_key("death");
    put.set_value(std::to_string(i));
    const auto done = trainer.scheduler->put(put, soon());
    EXPECT_TRUE(done.ok()) << done.status();
  }
  over = true;
  training.join();
  expect_steps(trainer, kKeys, static_cast<float>(clock));
  v1::GetJobOption option;
  option.set_with_nodes(true);
  const auto job = trainer.scheduler->get_job(option, soon());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->job().state(), v1::JOB_STATE_TRAINING) << job->job().reason();
  EXPECT_EQ(job->nodes_size(), 3);
  for (const v1::Node& node : job->nodes()) EXPECT_EQ(node.state(), v1::NODE_STATE_ALIVE);
}

TEST_P(ProcessTest, EverybodyNamesAPsThatWasKilled) {
  Node& trainer = join(v1::ROLE_TRAINER, "trainer-0");
  ASSERT_NO_FATAL_FAILURE(freeze(trainer));
  ASSERT_NO_FATAL_FAILURE(step(trainer, 0, kKeys));
  ps_[1]->end(SIGKILL);
  const auto pulled = trainer.ps->pull({{.table = "t", .keys = keys_of(kKeys)}}, soon());
  EXPECT_EQ(pulled.status().code(), StatusCode::kUnavailable) << pulled.status();
  EXPECT_THAT(std::string(message_of(pulled.status())), HasSubstr("ps-1 died"));
  EXPECT_EQ(ps_[0]->wait(), 1);
  EXPECT_THAT(ps_[0]->errors(), HasSubstr("starling ps: the job failed: ps-1 died"));
}

TEST(ProcessErrors, AreTold) {
  TemporaryDirectory directory;
  const auto run = [&](std::vector<std::string> arguments) {
    Process process(std::move(arguments), directory.path() + "/log");
    const int status = process.wait();
    return fmt::format("{}: {}{}", status, process.first_line(), process.errors());
  };
  EXPECT_THAT(run({"ps", "--help"}), HasSubstr("0: usage: starling ps"));
  EXPECT_THAT(run({"ps"}), HasSubstr("--scheduler ADDRESS is needed"));
  EXPECT_THAT(run({"ps", "--scheduler", "grpc://127.0.0.1:1", "--shards", "2"}),
              HasSubstr("unknown argument '--shards'"));
  EXPECT_THAT(run({"ps", "--scheduler", "grpc://127.0.0.1:1", "--listen", "tcp://127.0.0.1:0"}),
              HasSubstr("tcp"));
}

INSTANTIATE_TEST_SUITE_P(Protocols, ProcessTest, testing::Values("grpc++", "grpc"),
                         [](const auto& info) { return info.param == "grpc" ? "grpc" : "fast"; });

}  // namespace
}  // namespace starling::cluster
