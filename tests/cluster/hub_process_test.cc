// Real processes: hubs and trainers are killed while they work, and every sample is trained once
// per epoch all the same.
#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>
#include <thread>

#include "store/test_tools.h"
#include "tests/cluster/hub_world.h"
#include "tests/cluster/process.h"

namespace starling::cluster {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

constexpr uint32_t kFiles = 6;
constexpr uint32_t kLines = 800;  // of a file
constexpr uint32_t kEpochs = 2;

class HubProcessTest : public testing::Test {
 protected:
  HubProcessTest() : network_(make_network(NetOptions(), Log(), metrics_)) {
    write("job.yaml", "tables: {ids: {dim: 1}, shared: {dim: 2}}\ncluster: {hubs: 2}\n");
    for (uint32_t i = 0; i < kFiles; ++i) {
      lines_.push_back(criteo_lines(i * kLines, kLines));
      write(fmt::format("part-{}", i), lines_.back());
    }
    scheduler_ = start({"scheduler", "--listen", "grpc++://127.0.0.1:0", "--set", "cluster.ps=1",
                        "--set", "scheduler.lease_ms=2000"},
                       "scheduler");
    address_ = scheduler_->first_line();
    ps_ = start({"ps", "--scheduler", address_, "--name", "ps-0", "--set", "cluster.shards=2"},
                "ps-0");
    node_ =
        std::make_unique<Node>(*network_, *Address::parse(address_), v1::ROLE_CLIENT, "client", 10);
    const Status joined = node_->join();
    EXPECT_TRUE(joined.ok()) << joined;
    make_tables();
  }
  ~HubProcessTest() override { node_.reset(); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(directory_.path() + "/" + name) << text;
  }
  std::unique_ptr<Process> start(std::vector<std::string> arguments, const std::string& name) {
    return std::make_unique<Process>(std::move(arguments), directory_.path() + "/" + name + ".log");
  }
  std::unique_ptr<Process> start_hub_process(uint32_t index) {
    const std::string name = fmt::format("hub-{}", index);
    auto hub = start({"hub", "--job", directory_.path() + "/job.yaml", "--scheduler", address_,
                      "--name", name, "--index", std::to_string(index)},
                     name);
    EXPECT_THAT(hub->first_line(), HasSubstr("://127.0.0.1:")) << hub->errors();
    return hub;
  }
  std::unique_ptr<Process> start_trainer(uint32_t number, bool is_global = false) {
    std::vector<std::string> arguments = {address_, fmt::format("trainer-{}", number),
                                          std::to_string(1000 + number),
                                          directory_.path() + "/part-*", std::to_string(kEpochs)};
    if (is_global) arguments.push_back("global");
    auto trainer =
        std::make_unique<Process>(HUB_TRAINER_PROGRAM, std::move(arguments),
                                  fmt::format("{}/trainer-{}.log", directory_.path(), number));
    EXPECT_EQ(trainer->first_line(), "training") << trainer->errors();
    return trainer;
  }
  void make_tables() {
    const Status created = node_->ps->create(count_tables(), soon());
    ASSERT_TRUE(created.ok()) << created;
    const auto hash = node_->ps->freeze({}, soon());
    ASSERT_TRUE(hash.ok()) << hash.status();
    for (const v1::JobState state : {v1::JOB_STATE_FROZEN, v1::JOB_STATE_TRAINING}) {
      v1::SetJobOption option;
      option.set_state(state);
      option.set_schema_hash(*hash);
      const auto set = node_->scheduler->set_job(option, soon());
      ASSERT_TRUE(set.ok()) << set.status();
    }
  }
  // Waits until so many samples have been trained in all, epochs counted.
  void wait_for_samples(float count) {
    std::vector<uint64_t> keys;
    for (const std::string& lines : lines_) {
      const auto more = id_keys(lines);
      keys.insert(keys.end(), more.begin(), more.end());
    }
    const Deadline deadline = soon();
    float sum = 0;
    while (sum < count && !deadline.passed(RealClock().now())) {
      const auto pulled = node_->ps->pull({{.table = "ids", .keys = keys_of(keys)}}, soon());
      ASSERT_TRUE(pulled.ok()) << pulled.status();
      sum = 0;
      for (const float one : floats(pulled->front().values)) sum += one;
      std::this_thread::sleep_for(milliseconds(20));
    }
    EXPECT_GE(sum, count) << "nobody trains any more";
  }

  TemporaryDirectory directory_;
  Metrics metrics_;
  std::unique_ptr<Network> network_;
  std::vector<std::string> lines_;
  std::unique_ptr<Process> scheduler_;
  std::string address_;
  std::unique_ptr<Process> ps_;
  std::unique_ptr<Node> node_;
};

TEST_F(HubProcessTest, EverySampleIsTrainedOncePerEpochThoughHubsAndTrainersAreKilled) {
  std::vector<std::unique_ptr<Process>> hubs;
  hubs.push_back(start_hub_process(0));
  hubs.push_back(start_hub_process(1));
  auto first = start_trainer(0);
  auto second = start_trainer(1);
  const float all = static_cast<float>(kFiles * kLines * kEpochs);
  wait_for_samples(all / 10);
  first->end(SIGKILL);
  auto third = start_trainer(2);
  wait_for_samples(all / 4);
  hubs[0]->end(SIGKILL);
  hubs[0] = start_hub_process(0);
  wait_for_samples(all / 2);
  hubs[1]->end(SIGKILL);
  hubs[1] = start_hub_process(1);
  EXPECT_EQ(second->wait(), 0) << second->errors();
  EXPECT_EQ(third->wait(), 0) << third->errors();
  for (const std::string& lines : lines_) expect_trained(*node_, lines, kEpochs);
  expect_counted(*node_, uint64_t{kFiles} * kLines * kEpochs, 0);
  for (const auto& hub : hubs) {
    EXPECT_EQ(hub->end(SIGTERM), 0) << hub->errors();
    // One that came back when all was trained was never told of the dataset.
    EXPECT_THAT(hub->errors(), AnyOf(Not(HasSubstr("dataset train")),
                                     HasSubstr("dataset train: DATASET_STATE_END")));
  }
}

TEST_F(HubProcessTest, AGlobalShuffleGoesOnWhenOneOfThreeHubsIsKilledAndReplaced) {
  write("job.yaml", "tables: {ids: {dim: 1}, shared: {dim: 2}}\ncluster: {hubs: 3}\n");
  std::vector<std::unique_ptr<Process>> hubs;
  for (uint32_t i = 0; i < 3; ++i) hubs.push_back(start_hub_process(i));
  auto trainer = start_trainer(0, /*is_global=*/true);
  const float all = static_cast<float>(kFiles * kLines * kEpochs);
  wait_for_samples(all / 4);
  hubs[1]->end(SIGKILL);
  hubs[1] = start_hub_process(1);
  EXPECT_EQ(trainer->wait(), 0) << trainer->errors();
  for (const std::string& lines : lines_) expect_trained(*node_, lines, kEpochs);
  expect_counted(*node_, uint64_t{kFiles} * kLines * kEpochs, 0);
  for (const auto& hub : hubs) {
    EXPECT_EQ(hub->end(SIGTERM), 0) << hub->errors();
    // One that came back when all was trained was never told of the dataset.
    EXPECT_THAT(hub->errors(), AnyOf(Not(HasSubstr("dataset train")),
                                     HasSubstr("samples came from 2 other hubs")));
  }
}

TEST(HubProcessErrors, AreTold) {
  TemporaryDirectory directory;
  const auto run = [&](std::vector<std::string> arguments) {
    Process process(std::move(arguments), directory.path() + "/log");
    const int status = process.wait();
    return fmt::format("{}: {}{}", status, process.first_line(), process.errors());
  };
  EXPECT_THAT(run({"hub", "--help"}), HasSubstr("0: usage: starling hub"));
  EXPECT_THAT(run({"hub"}), HasSubstr("--scheduler ADDRESS is needed"));
  EXPECT_THAT(run({"hub", "--scheduler", "grpc://127.0.0.1:1", "--index", "x"}),
              HasSubstr("--index is 'x'"));
}

}  // namespace
}  // namespace starling::cluster
