// Workers over real hubs and shards: merged gradients of variables, a communicator in between, and
// feeds in a message per table.
#include "worker/worker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "tests/cluster/hub_world.h"
#include "worker/part_by_part.h"

namespace starling::cluster {
namespace {

constexpr uint32_t kLines = 250;
constexpr uint32_t kBatches = 16;  // of 16 samples; the last has 10

v1::CreateOption schema() {
  v1::CreateOption option = count_tables();
  *option.add_variables() = variable("steps", 6, rule("sum"), 4);
  return option;
}

class WorkerTest : public testing::Test {
 protected:
  WorkerTest()
      : world_({.ps = 2, .shards = 2}),
        client_(world_.client()),
        job_(world_),
        schema_(schema()),
        lines_(criteo_lines(0, kLines)),
        option_(count_dataset("mem://d/a")) {
    world_.make_tables(client_, schema_);
    world_.start_training(client_, world_.schema_hash);
    job_.add_hub();
    job_.write("mem://d/a", lines_);
    option_.set_lease_ms(1000);
  }

  // A process that trains.
  Trainer& add_trainer() {
    Trainer& trainer = job_.add_trainer();
    EXPECT_TRUE(trainer.ps->use_schema(schema_).ok());
    const auto started = trainer.hub->start(option_, soon());
    EXPECT_TRUE(started.ok()) << started.status();
    return trainer;
  }
  // A gradient of -1 for every key of a sample, and of 1 for the variable.
  Status push(Worker& worker, std::unique_ptr<StepBatch> batch) const {
    const std::vector<float> pooled(batch->layout.samples() * batch->layout.width(), -1);
    const std::vector<std::span<const float>> sequences(batch->layout.fields().size());
    return worker.push(
        std::move(batch), {.pooled = pooled, .sequences = sequences},
        {{.options = &schema_.variables(0), .gradient = floats_of(std::vector<float>(6, 1))}},
        soon());
  }
  // Trains to the end, or as many steps.
  Status train(Worker& worker, size_t steps_max = SIZE_MAX) const {
    for (size_t step = 0; step < steps_max; ++step) {
      STARLING_ASSIGN_OR_RETURN(std::unique_ptr<StepBatch> batch, worker.next(soon()));
      if (batch == nullptr) return worker.flush(soon());
      STARLING_RETURN_IF_ERROR(push(worker, std::move(batch)));
    }
    return absl::OkStatus();
  }
  // Every sample once, and as many steps in the variable as there are batches.
  void expect_all_trained() {
    expect_trained(client_, lines_, 1);
    const auto steps = client_.ps->pull_dense({{.variable = "steps"}}, soon());
    ASSERT_TRUE(steps.ok()) << steps.status();
    EXPECT_EQ(floats(steps->front().values), std::vector<float>(6, kBatches));
  }

  World world_;
  Node& client_;
  HubJob job_;
  const v1::CreateOption schema_;
  const std::string lines_;
  v1::StartSampleOption option_;
};

// Counts what goes through it.
class Counting : public Communicator {
 public:
  explicit Counting(Communicator& next) : next_(next) {}
  Routes routes() const override { return next_.routes(); }
  void call(Method method, std::vector<ShardMessage> messages, Deadline deadline,
            DoneOr<std::vector<Message>> done) override {
    lookups += method == Method::kPsEmbeddingLookup ? 1 : 0;
    pushes += method == Method::kPsPushGrad ? 1 : 0;
    for (const ShardMessage& one : messages) {
      const v1::PushGradOption& option = one.message.meta.push_grad();
      dense_parts += static_cast<size_t>(option.dense_size());
      std::set<std::string> names;
      for (const auto& part : option.batch()) names.insert(part.table());
      for (const auto& part : option.dense()) names.insert(part.variable());
      parts_max = std::max<size_t>(parts_max, names.size());
    }
    next_.call(method, std::move(messages), deadline, std::move(done));
  }
  Status push(std::vector<KeyValues> keys, std::vector<DenseValues> dense,
              Deadline deadline) override {
    return next_.push(std::move(keys), std::move(dense), deadline);
  }
  StatusOr<std::vector<DenseCopy>> pull_dense(std::vector<DenseCopy> known,
                                              Deadline deadline) override {
    return next_.pull_dense(std::move(known), deadline);
  }

  std::atomic<size_t> lookups{0};
  std::atomic<size_t> pushes{0};
  std::atomic<size_t> dense_parts{0};
  std::atomic<size_t> parts_max{0};  // of a message

 private:
  Communicator& next_;
};

// Keeps every push until it is told to let them go.
class Holding : public Counting {
 public:
  using Counting::Counting;
  void call(Method method, std::vector<ShardMessage> messages, Deadline deadline,
            DoneOr<std::vector<Message>> done) override {
    if (method != Method::kPsPushGrad) {
      return Counting::call(method, std::move(messages), deadline, std::move(done));
    }
    held_.emplace_back(
        [this, method, messages = std::move(messages), deadline, done = std::move(done)]() mutable {
          Counting::call(method, std::move(messages), deadline, std::move(done));
        });
  }
  void let_go() {
    for (Function<void()>& push : held_) push();
  }

 private:
  std::vector<Function<void()>> held_;  // the worker's caller alone
};

TEST_F(WorkerTest, GoesThroughWhateverStandsBetweenItAndThePs) {
  Trainer& trainer = add_trainer();
  Counting counting(*trainer.ps);
  Worker worker(*trainer.hub, counting, {.dataset = option_});
  const Status trained = train(worker);
  ASSERT_TRUE(trained.ok()) << trained;
  EXPECT_EQ(counting.lookups, kBatches);
  EXPECT_EQ(counting.pushes, kBatches);
  EXPECT_EQ(counting.dense_parts, 2 * kBatches);  // of 6 elements, split at 4
  expect_all_trained();
}

TEST_F(WorkerTest, MergesTheGradientsOfVariablesOverTheStepsOfAGroup) {
  option_.set_group_batches(3);
  Trainer& trainer = add_trainer();
  Counting counting(*trainer.ps);
  Worker worker(*trainer.hub, counting, {.dataset = option_});
  const Status trained = train(worker);
  ASSERT_TRUE(trained.ok()) << trained;
  EXPECT_EQ(counting.pushes, kBatches);
  EXPECT_EQ(counting.dense_parts, 2 * 6U);  // five groups of three and one batch
  EXPECT_EQ(worker.counts().batches, kBatches);
  expect_all_trained();
}

TEST_F(WorkerTest, AGroupThatAWorkerLeftHalfDoneIsPushedWholeByAnother) {
  option_.set_group_batches(4);
  {
    Trainer& dies = add_trainer();
    Worker worker(*dies.hub, *dies.ps, {.dataset = option_, .ahead = 0});
    // One group, and two batches of the next.
    const Status trained = train(worker, 6);
    ASSERT_TRUE(trained.ok()) << trained;
  }
  Trainer& trainer = add_trainer();
  Worker worker(*trainer.hub, *trainer.ps, {.dataset = option_});
  const Status trained = train(worker);
  ASSERT_TRUE(trained.ok()) << trained;
  expect_all_trained();
}

TEST_F(WorkerTest, ABatchLeftOutByRuleIsNoPartOfItsGroupsSum) {
  option_.set_group_batches(4);
  Trainer& trainer = add_trainer();
  Worker worker(*trainer.hub, *trainer.ps, {.dataset = option_});
  for (uint32_t step = 0; step < kBatches; ++step) {
    auto batch = worker.next(soon());
    ASSERT_TRUE(batch.ok()) << batch.status();
    ASSERT_NE(*batch, nullptr);
    if (step == 3) {  // the last of the first group
      worker.refuse(*std::move(batch));
      continue;
    }
    const Status pushed = push(worker, *std::move(batch));
    ASSERT_TRUE(pushed.ok()) << pushed;
  }
  const Status flushed = worker.flush(soon());
  ASSERT_TRUE(flushed.ok()) << flushed;
  EXPECT_EQ(worker.counts().refused, 1U);
  const auto steps = client_.ps->pull_dense({{.variable = "steps"}}, soon());
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_EQ(floats(steps->front().values), std::vector<float>(6, kBatches - 1));
}

TEST_F(WorkerTest, WhatItHoldsIsNotGivenAgainWhenAHubThatComesAnewDealsIt) {
  Trainer& trainer = add_trainer();
  Holding holding(*trainer.ps);
  Worker worker(*trainer.hub, holding, {.dataset = option_, .ahead = kBatches});
  const Status begun = train(worker, kBatches);
  ASSERT_TRUE(begun.ok()) << begun;
  const Status stopped = job_.hubs.front()->stop(soon());
  ASSERT_TRUE(stopped.ok()) << stopped;
  job_.add_hub();
  const Deadline deadline = soon();
  while (worker.dataset_counts().batches_dealt() < 2 * kBatches) {
    ASSERT_FALSE(deadline.passed(job_.clock.now()));
    const auto again = worker.next(Deadline::in(job_.clock, milliseconds(20)));
    ASSERT_EQ(again.status().code(), StatusCode::kDeadlineExceeded) << again.status();
  }
  holding.let_go();
  const auto end = worker.next(soon());
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(*end, nullptr);
  EXPECT_EQ(worker.counts().batches, kBatches);
  expect_all_trained();
}

TEST_F(WorkerTest, TrainsInAMessagePerTableAndVariable) {
  option_.set_tensor_fuse_off(true);
  Trainer& trainer = add_trainer();
  Counting counting(*trainer.ps);
  PartByPart parts(counting, {"ids", "shared"});
  Worker worker(*trainer.hub, parts, {.dataset = option_});
  const Status trained = train(worker);
  ASSERT_TRUE(trained.ok()) << trained;
  EXPECT_EQ(counting.parts_max, 1U);
  expect_all_trained();
}

}  // namespace
}  // namespace starling::cluster
