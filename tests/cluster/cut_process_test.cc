// Real processes on loopback: a job is saved, killed whole, and goes on from its cut on another
// number of ps and shards with the same bits; and saves are killed at any moment.
#include <gmock/gmock.h>
#include <signal.h>

#include <thread>

#include "base/rng.h"
#include "base/sanitized.h"
#include "store/test_tools.h"
#include "tests/cluster/batches.h"
#include "tests/cluster/process.h"
#include "tests/cluster/world.h"

namespace starling::cluster {
namespace {

using testing::HasSubstr;

constexpr uint32_t kDim = 3;
constexpr uint64_t kElements = 100;
constexpr uint64_t kKeys = 1500;

v1::CreateOption tables() {
  v1::CreateOption option;
  option.set_seed(5);
  *option.add_tables() = table("t", kDim, rule("adagrad", {{"lr", 0.5}}));
  *option.mutable_tables(0)->mutable_initializer() = rule("normal", {{"std", 0.1}});
  *option.add_variables() = variable("w", kElements, rule("adam", {{"lr", 0.1}}), 10);
  return option;
}

struct Size {
  int ps = 1;
  int shards = 1;
};

// The processes of a job until they are killed, and one trainer that is this process.
class Life {
 public:
  // `number` and those after it are incarnations of the trainer, and by them its sessions: no two
  // lives share one.
  Life(std::string directory, std::string protocol, uint64_t number, Size size, bool has_ledger)
      : directory_(std::move(directory)),
        protocol_(std::move(protocol)),
        number_(number),
        network_(make_network(NetOptions(), Log(), metrics_)) {
    const std::string listen = protocol_ + "://127.0.0.1:0";
    std::vector<std::string> flags = {"scheduler",
                                      "--listen",
                                      listen,
                                      "--set",
                                      fmt::format("cluster.ps={}", size.ps),
                                      "--set",
                                      "checkpoint.path=" + cuts()};
    if (has_ledger) {
      flags.insert(flags.end(), {"--set", "scheduler.ledger=" + directory_ + "/ledger"});
    }
    scheduler_ = std::make_unique<Process>(flags, directory_ + "/scheduler.log");
    for (int i = 0; i < size.ps; ++i) {
      ps_.push_back(std::make_unique<Process>(
          std::vector<std::string>{"ps", "--scheduler", scheduler_->first_line(), "--name",
                                   fmt::format("ps-{}", i), "--listen", listen, "--set",
                                   fmt::format("cluster.shards={}", size.shards)},
          fmt::format("{}/ps-{}.log", directory_, i)));
      EXPECT_THAT(ps_.back()->first_line(), HasSubstr("://127.0.0.1:")) << ps_.back()->errors();
    }
  }

  std::string cuts() const { return directory_ + "/cuts"; }

  void join() {
    trainer_ = std::make_unique<Node>(*network_, *Address::parse(scheduler_->first_line()),
                                      v1::ROLE_TRAINER, "trainer-0", number_++);
    const Status joined = trainer_->join();
    ASSERT_TRUE(joined.ok()) << joined;
    const Status known = trainer_->ps->use_schema(tables());
    ASSERT_TRUE(known.ok()) << known;
  }
  void begin() {
    ASSERT_NO_FATAL_FAILURE(join());
    const Status made = trainer_->ps->create(tables(), soon());
    ASSERT_TRUE(made.ok()) << made;
    const auto hash = trainer_->ps->freeze({}, soon());
    ASSERT_TRUE(hash.ok()) << hash.status();
    for (const v1::JobState state : {v1::JOB_STATE_FROZEN, v1::JOB_STATE_TRAINING}) {
      v1::SetJobOption option;
      option.set_state(state);
      option.set_schema_hash(*hash);
      const auto set = trainer_->scheduler->set_job(option, soon());
      ASSERT_TRUE(set.ok()) << set.status();
    }
  }
  // By the command that a person would use; gives what it printed.
  std::string restore(uint64_t cut) {
    std::vector<std::string> flags = {"checkpoint", "restore", cuts(), "--scheduler",
                                      scheduler_->first_line()};
    if (cut != 0) flags.insert(flags.end(), {"--cut", std::to_string(cut)});
    Process command(flags, directory_ + "/restore.log");
    EXPECT_EQ(command.wait(), 0) << command.errors();
    return command.first_line();
  }

  void push_keys(uint64_t round) {
    std::vector<uint64_t> keys;
    std::vector<float> gradients;
    for (uint64_t i = 0; i < kKeys / 3; ++i) {
      keys.push_back(mix64(i * (round % 3 + 1)));
      for (uint32_t j = 0; j < kDim; ++j) {
        gradients.push_back(static_cast<float>(round * 7 + i + j) / 64);
      }
    }
    std::vector<float> dense(kElements);
    for (uint64_t i = 0; i < kElements; ++i) dense[i] = static_cast<float>(i + round) / 32;
    const Status done = trainer_->ps->push_grad(
        {{.table = "t", .keys = keys_of(keys), .grads = rows_of(keys.size(), kDim, gradients)}},
        {{.variable = "w", .values = floats_of(dense)}}, soon());
    ASSERT_TRUE(done.ok()) << done;
  }
  // The gradient depends on what was read.
  void push_batch(uint64_t round) {
    std::vector<std::vector<uint64_t>> samples;
    for (uint64_t i = 0; i < 40; ++i) samples.push_back({mix64(i + round), mix64(i * 5)});
    Batch batch({{"f", "t", true}}, {.id = {0, 0, round}, .step = round, .keys = {samples}},
                *trainer_->ps->routes(), {{"t", kDim}});
    Status done = trainer_->ps->feed(batch.feeds(), soon());
    ASSERT_TRUE(done.ok()) << done;
    const auto looked = trainer_->ps->lookup(batch.lookups(0, round), soon());
    ASSERT_TRUE(looked.ok()) << looked.status();
    done = batch.take(*looked);
    ASSERT_TRUE(done.ok()) << done;
    const auto gradient = [&batch](size_t field, size_t sample) {
      std::vector<float> out = batch.pooled(field, sample);
      for (float& x : out) x = x * 0.25F + 1;
      return out;
    };
    done = trainer_->ps->push_batch(numbered(batch.pushes(0, round, gradient)), soon());
    ASSERT_TRUE(done.ok()) << done;
  }
  void train(uint64_t begin, uint64_t end) {
    for (uint64_t round = begin; round < end; ++round) {
      ASSERT_NO_FATAL_FAILURE(push_keys(round));
      ASSERT_NO_FATAL_FAILURE(push_batch(round));
    }
  }
  std::vector<float> weights() {
    std::vector<uint64_t> keys;
    for (uint64_t i = 0; i < kKeys; ++i) keys.push_back(mix64(i));
    const auto pulled = trainer_->ps->pull({{.table = "t", .keys = keys_of(keys)}}, soon());
    const auto dense = trainer_->ps->pull_dense({{.variable = "w"}}, soon());
    EXPECT_TRUE(pulled.ok() && dense.ok()) << pulled.status() << dense.status();
    if (!pulled.ok() || !dense.ok()) return {};
    std::vector<float> all = floats(pulled->front().values);
    const std::vector<float> more = floats(dense->front().values);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  uint64_t start_save() {
    v1::SaveJobOption option;
    option.set_action(v1::SAVE_ACTION_START);
    const auto reply = trainer_->scheduler->save(option, soon());
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? reply->cut().cut_id() : 0;
  }
  void finish_save(uint64_t cut) {
    v1::SaveJobOption option;
    option.set_action(v1::SAVE_ACTION_STATUS);
    option.set_cut_id(cut);
    while (true) {
      const auto reply = trainer_->scheduler->save(option, soon());
      ASSERT_TRUE(reply.ok()) << reply.status();
      ASSERT_NE(reply->cut().phase(), v1::CUT_PHASE_FAILED) << reply->cut().error();
      if (reply->cut().phase() == v1::CUT_PHASE_COMMITTED) return;
      std::this_thread::sleep_for(milliseconds(2));
    }
  }
  // The scheduler first, or last.
  void kill(bool scheduler_first) {
    if (scheduler_first) scheduler_->signal(SIGKILL);
    for (const auto& process : ps_) process->signal(SIGKILL);
    scheduler_->end(SIGKILL);
    for (const auto& process : ps_) process->wait();
  }

 private:
  const std::string directory_;
  const std::string protocol_;
  uint64_t number_;
  Metrics metrics_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Process> scheduler_;
  std::vector<std::unique_ptr<Process>> ps_;
  std::unique_ptr<Node> trainer_;
};

class CutProcessTest : public testing::TestWithParam<std::string> {};

TEST_P(CutProcessTest, AKilledJobGoesOnFromItsCutOnOtherShardsWithTheSameBits) {
  const TemporaryDirectory directory;
  std::vector<float> saved, later;
  {
    Life life(directory.path(), GetParam(), 10, {.ps = 2, .shards = 2}, /*has_ledger=*/true);
    ASSERT_NO_FATAL_FAILURE(life.begin());
    ASSERT_NO_FATAL_FAILURE(life.train(0, 5));
    saved = life.weights();
    const uint64_t cut = life.start_save();
    EXPECT_EQ(cut, 1u);
    ASSERT_NO_FATAL_FAILURE(life.finish_save(cut));
    ASSERT_NO_FATAL_FAILURE(life.train(5, 8));
    later = life.weights();
    EXPECT_NE(later, saved);
    // One that nobody finishes must not be in the way.
    life.start_save();
    life.kill(/*scheduler_first=*/false);
  }
  Life life(directory.path(), GetParam(), 20, {.ps = 1, .shards = 3}, /*has_ledger=*/true);
  EXPECT_THAT(life.restore(1), HasSubstr("cut 1 restored: "));
  ASSERT_NO_FATAL_FAILURE(life.join());
  EXPECT_EQ(life.weights(), saved);
  ASSERT_NO_FATAL_FAILURE(life.train(5, 8));
  EXPECT_EQ(life.weights(), later);
  // And once more in place, without any process that starts anew.
  EXPECT_THAT(life.restore(1), HasSubstr("cut 1 restored: "));
  ASSERT_NO_FATAL_FAILURE(life.join());
  EXPECT_EQ(life.weights(), saved);
}

TEST_P(CutProcessTest, ASaveKilledAtAnyMomentLeavesTheCutBefore) {
  constexpr int kKills = kSanitized ? 5 : 20;
  const TemporaryDirectory directory;
  Rng rng(7, 7, 7);
  std::map<uint64_t, std::vector<float>> expected;  // by cut
  Duration whole{};                                 // of a save that nobody disturbs
  uint64_t round = 0;
  for (int life_number = 0; life_number <= kKills; ++life_number) {
    Life life(directory.path(), GetParam(), 10 * static_cast<uint64_t>(life_number + 1),
              {.ps = 1, .shards = 1 + life_number % 3}, /*has_ledger=*/false);
    if (life_number == 0) {
      ASSERT_NO_FATAL_FAILURE(life.begin());
    } else {
      const std::string told = life.restore(0);
      uint64_t cut = 0;
      ASSERT_EQ(std::sscanf(told.c_str(), "cut %lu restored", &cut), 1) << told;
      ASSERT_TRUE(expected.contains(cut)) << told;
      ASSERT_NO_FATAL_FAILURE(life.join());
      ASSERT_EQ(life.weights(), expected[cut]) << "cut " << cut;
    }
    ASSERT_NO_FATAL_FAILURE(life.train(round, round + 1));
    ++round;
    std::vector<float> now = life.weights();
    const TimePoint start = RealClock().now();
    const uint64_t cut = life.start_save();
    expected[cut] = std::move(now);
    if (life_number == 0) {
      ASSERT_NO_FATAL_FAILURE(life.finish_save(cut));
      whole = RealClock().now() - start;
    } else {
      std::this_thread::sleep_for(
          Duration(static_cast<int64_t>(rng.uniform() * 1.2 * static_cast<double>(whole.count()))));
    }
    life.kill(rng.below(2) == 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Protocols, CutProcessTest, testing::Values("grpc++", "grpc"),
                         [](const auto& info) { return info.param == "grpc" ? "grpc" : "fast"; });

}  // namespace
}  // namespace starling::cluster
