// Workers over real hubs and shards: merged gradients of variables, a communicator in between, and
// feeds in a message per table.
#include "worker/worker.h"

#include <gtest/gtest.h>

#include <atomic>

#include "store/file_systems.h"
#include "tests/cluster/hub_world.h"

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
        files_(FileSystems::standard({.incarnation = Incarnation{1}}, clock_)),
        client_(world_.client()),
        schema_(schema()),
        lines_(criteo_lines(0, kLines)) {
    world_.make_tables(client_, schema_);
    world_.start_training(client_, world_.schema_hash);
    hub_ = start_hub(world_.network(), world_.scheduler(), Protocol::kInproc,
                     {.name = "hub-0", .incarnation = 500, .files = files_.get()});
    EXPECT_TRUE(write_file(*files_, "mem://d/a", lines_).ok());
    option_.set_dataset("train");
    option_.add_files("mem://d/a");
    option_.set_batch_size(16);
    option_.set_lease_ms(1000);
    add_count_fields(option_);
  }
  ~WorkerTest() override {
    trainers_.clear();
    hub_->stop(Deadline::in(clock_, seconds(5))).IgnoreError();
  }

  // A process that trains; the first starts the dataset.
  Trainer& add_trainer() {
    const std::string name = fmt::format("trainer-{}", trainers_.size());
    trainers_.push_back(std::make_unique<Trainer>(world_.network(), world_.scheduler(), name,
                                                  700 + trainers_.size()));
    Trainer& trainer = *trainers_.back();
    const Status joined = trainer.join();
    EXPECT_TRUE(joined.ok()) << joined;
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

  RealClock clock_;
  World world_;
  std::unique_ptr<FileSystems> files_;
  Node& client_;
  const v1::CreateOption schema_;
  const std::string lines_;
  v1::StartSampleOption option_;
  std::unique_ptr<HubServer> hub_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
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
      dense_parts += static_cast<size_t>(one.message.meta.push_grad().dense_size());
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

 private:
  Communicator& next_;
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

TEST_F(WorkerTest, TrainsWhatIsFedInAMessagePerTable) {
  option_.set_tensor_fuse_off(true);
  Trainer& trainer = add_trainer();
  Worker worker(*trainer.hub, *trainer.ps, {.dataset = option_});
  const Status trained = train(worker);
  ASSERT_TRUE(trained.ok()) << trained;
  expect_all_trained();
}

}  // namespace
}  // namespace starling::cluster
