// Real processes: a job with hubs is saved while it trains, killed whole, and goes on from its cut
// on other shards: every sample once per epoch, and in step the same bits as if nothing had been.
#include <gmock/gmock.h>
#include <signal.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "hub/position.h"
#include "ps/manifest.h"
#include "store/file_systems.h"
#include "store/test_tools.h"
#include "tests/cluster/hub_world.h"
#include "tests/cluster/process.h"
#include "worker/worker.h"

namespace starling::cluster {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr uint32_t kFiles = 3;
constexpr uint32_t kLines = 800;  // of a file
constexpr uint32_t kEpochs = 2;
constexpr uint32_t kRanks = 2;
constexpr uint32_t kSamples = kFiles * kLines;

struct Mode {
  std::string title;
  std::string staleness;
  std::optional<uint32_t> bound;
};

struct Size {
  int ps = 1;
  int shards = 1;
  int hubs = 1;
};

// Ids count; the rows of `shared` depend on the order of everything.
v1::CreateOption tables() {
  v1::CreateOption option = count_tables();
  option.set_seed(5);
  *option.mutable_tables(1)->mutable_optimizer() = rule("adagrad", {{"lr", 0.5}});
  *option.mutable_tables(1)->mutable_initializer() = rule("normal", {{"std", 0.1}});
  return option;
}

// The processes of a job until they are killed, and its trainers, which are threads of this one.
class Life {
 public:
  Life(std::string directory, const Mode& mode, uint64_t number, Size size)
      : directory_(std::move(directory)),
        mode_(mode),
        number_(number),
        network_(make_network(NetOptions(), Log(), metrics_)),
        files_(FileSystems::standard({.incarnation = Incarnation{1}}, clock_)) {
    std::ofstream(directory_ + "/job.yaml") << fmt::format(
        "tables: {{ids: {{dim: 1}}, shared: {{dim: 2}}}}\ntrain: {{staleness: {}, threads: 1}}\n"
        "cluster: {{hubs: {}, ps: {}, shards: {}, trainers: {}}}\ncheckpoint: {{path: {}}}\n"
        "scheduler: {{lease_ms: 60000}}\n",  // a busy machine must not look like death
        mode_.staleness, size.hubs, size.ps, size.shards, kRanks, directory_ + "/cuts");
    processes_.push_back(start("scheduler", {"--listen", "grpc++://127.0.0.1:0"}));
    for (int i = 0; i < size.ps; ++i) start_role("ps", i, {});
    for (int i = 0; i < size.hubs; ++i) start_role("hub", i, {"--index", std::to_string(i)});
    for (uint32_t i = 0; i < kFiles; ++i) {
      lines_.push_back(criteo_lines(i * kLines, kLines));
      std::ofstream(fmt::format("{}/part-{}", directory_, i)) << lines_.back();
    }
  }

  void join(int hubs) {
    for (uint32_t i = 0; i < kRanks; ++i) {
      trainers_.push_back(std::make_unique<Trainer>(*network_, scheduler(),
                                                    fmt::format("trainer-{}", i), number_ + i));
      const Status joined = trainers_.back()->join();
      ASSERT_TRUE(joined.ok()) << joined;
      ASSERT_TRUE(trainers_.back()->ps->use_schema(tables()).ok());
      const auto all = trainers_.back()->hub->wait_for_hubs(hubs, soon());
      ASSERT_TRUE(all.ok()) << all.status();
    }
  }
  void begin() {
    PsClient& ps = *trainers_[0]->ps;
    const Status created = ps.create(tables(), soon());
    ASSERT_TRUE(created.ok()) << created;
    v1::FreezeOption freeze;
    if (mode_.bound.has_value()) freeze.set_staleness(*mode_.bound);
    freeze.set_ranks(kRanks);
    freeze.set_push_bytes_max(1 << 20);
    const auto hash = ps.freeze(freeze, soon());
    ASSERT_TRUE(hash.ok()) << hash.status();
    set_job(v1::JOB_STATE_FROZEN, *hash);
    set_job(v1::JOB_STATE_TRAINING, *hash);
  }
  // By the command that a person would use; then the trainers come, and the job trains.
  void restore(int hubs) {
    Process command(
        {"checkpoint", "restore", directory_ + "/cuts", "--scheduler", processes_[0]->first_line(),
         "--stay-frozen", "--job", directory_ + "/job.yaml"},
        directory_ + "/restore.log");
    ASSERT_EQ(command.wait(), 0) << command.errors();
    ASSERT_THAT(command.first_line(), HasSubstr("restored: "));
    ASSERT_NO_FATAL_FAILURE(join(hubs));
    set_job(v1::JOB_STATE_TRAINING, 0);
    const auto cut = find_cut(*files_, directory_ + "/cuts", 0);
    ASSERT_TRUE(cut.ok()) << cut.status();
    const ckpt::Manifest& manifest = cut->manifest;
    ASSERT_GT(manifest.positions_size(), 0);
    std::vector<std::string> positions;
    for (const ckpt::HubPosition& one : manifest.positions()) positions.push_back(one.position());
    option_ = dataset();
    const Status resumed = resume_at({manifest.queues().begin(), manifest.queues().end()},
                                     positions, manifest.clock(), option_);
    ASSERT_TRUE(resumed.ok()) << resumed;
  }
  void begin_again() { option_ = dataset(); }

  ~Life() {
    is_stopping_ = true;
    wait();
  }

  // Trains until the end of the data, or until the end of this life.
  void train() {
    const auto started = trainers_[0]->hub->start(option_, soon());
    ASSERT_TRUE(started.ok()) << started.status();
    for (const auto& trainer : trainers_) {
      threads_.emplace_back([this, &trainer] {
        const Status trained = train_rank(*trainer);
        EXPECT_TRUE(trained.ok() || is_stopping_) << trained;
      });
    }
  }
  void wait() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // The trainers stop with whatever they hold; nobody else is asked.
  void kill() {
    is_stopping_ = true;
    wait();
    for (const auto& process : processes_) process->signal(SIGKILL);
    for (const auto& process : processes_) process->wait();
  }
  void wait_for_steps(uint64_t steps) {
    const Deadline deadline = soon();
    while (steps_ < steps && !deadline.passed(RealClock().now())) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    ASSERT_GE(steps_, steps);
  }
  // A cut from its start to its manifest. False: the ranks had heard of the end of the data before.
  void save(bool& is_there) {
    v1::SaveJobOption option;
    const auto begun = trainers_[0]->scheduler->save(option, soon());
    ASSERT_TRUE(begun.ok()) << begun.status();
    option.set_action(v1::SAVE_ACTION_STATUS);
    option.set_cut_id(begun->cut().cut_id());
    const Deadline deadline = soon();
    while (true) {
      const auto reply = trainers_[0]->scheduler->save(option, soon());
      ASSERT_TRUE(reply.ok()) << reply.status();
      is_there = reply->cut().phase() == v1::CUT_PHASE_COMMITTED;
      if (is_there) return;
      if (reply->cut().phase() == v1::CUT_PHASE_FAILED) {
        ASSERT_THAT(reply->cut().error(), AnyOf(HasSubstr("clock"), HasSubstr("lies at")));
        return;
      }
      ASSERT_FALSE(deadline.passed(RealClock().now())) << reply->ShortDebugString();
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
  // Of all samples how often each was trained, then the rows whose bits depend on the order.
  std::vector<float> weights() {
    std::vector<uint64_t> keys;
    for (const std::string& lines : lines_) {
      const auto more = id_keys(lines);
      keys.insert(keys.end(), more.begin(), more.end());
    }
    // By somebody who never joined: a trainer that has left in order is soon refused.
    const auto lane = network_->make_lane("reader", 0);
    PsClient reader(*network_, lane, {}, trainers_[0]->scheduler.get());
    EXPECT_TRUE(reader.use_schema(tables()).ok());
    const auto pulled = reader.pull({{.table = "ids", .keys = keys_of(keys)},
                                     {.table = "shared", .keys = keys_of(shared_keys(lines_))}},
                                    soon());
    lane->stop();
    EXPECT_TRUE(pulled.ok()) << pulled.status();
    if (!pulled.ok()) return {};
    for (const float times : floats(pulled->at(0).values)) {
      EXPECT_EQ(times, static_cast<float>(kEpochs));
    }
    return floats(pulled->at(1).values);
  }
  const std::vector<uint64_t>& first_steps() const { return first_steps_; }

 private:
  std::unique_ptr<Process> start(const std::string& name, std::vector<std::string> flags) {
    flags.insert(flags.begin(),
                 {name.substr(0, name.find('-')), "--job", directory_ + "/job.yaml"});
    return std::make_unique<Process>(flags, directory_ + "/" + name + ".log");
  }
  void start_role(const std::string& role, int number, std::vector<std::string> flags) {
    const std::string name = fmt::format("{}-{}", role, number);
    flags.insert(flags.end(), {"--scheduler", processes_[0]->first_line(), "--name", name,
                               "--listen", "grpc++://127.0.0.1:0"});
    processes_.push_back(start(name, flags));
    EXPECT_THAT(processes_.back()->first_line(), HasSubstr("://127.0.0.1:"))
        << processes_.back()->errors();
  }
  Address scheduler() const { return *Address::parse(processes_[0]->first_line()); }
  void set_job(v1::JobState state, uint64_t hash) {
    v1::SetJobOption option;
    option.set_state(state);
    option.set_schema_hash(hash);
    const auto set = trainers_[0]->scheduler->set_job(option, soon());
    ASSERT_TRUE(set.ok()) << set.status();
  }
  v1::StartSampleOption dataset() const {
    v1::StartSampleOption option;
    option.set_dataset("train");
    option.add_files(directory_ + "/part-*");
    option.set_epochs(kEpochs);
    option.set_batch_size(16);
    option.set_shuffle_samples(64);
    option.set_window(16);
    if (mode_.bound.has_value()) option.set_staleness(*mode_.bound);
    option.set_ranks(kRanks);
    add_count_fields(option);
    return option;
  }
  Status train_rank(Trainer& trainer);

  const std::string directory_;
  const Mode mode_;
  const uint64_t number_;
  Metrics metrics_;
  RealClock clock_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<FileSystems> files_;
  std::vector<std::string> lines_;
  std::vector<std::unique_ptr<Process>> processes_;  // the scheduler first
  std::vector<std::unique_ptr<Trainer>> trainers_;
  v1::StartSampleOption option_;
  std::vector<std::thread> threads_;
  std::atomic<bool> is_stopping_{false};
  std::atomic<uint64_t> steps_{0};
  std::vector<uint64_t> first_steps_ = std::vector<uint64_t>(kRanks, UINT64_MAX);
};

Status Life::train_rank(Trainer& trainer) {
  Worker worker(*trainer.hub, *trainer.ps,
                {.dataset = option_,
                 .rank = trainer.rank,
                 .start_clock = trainer.clock,
                 .staleness = mode_.bound});
  // Short waits: the others of a rank that stops may wait for it.
  const auto shortly = [] { return Deadline::in(RealClock(), milliseconds(200)); };
  const Deadline patience = soon();
  while (!is_stopping_ && !patience.passed(RealClock().now())) {
    StatusOr<std::unique_ptr<StepBatch>> batch = worker.next(shortly());
    if (batch.status().code() == StatusCode::kDeadlineExceeded) continue;
    STARLING_RETURN_IF_ERROR(batch.status());
    if (*batch == nullptr) break;
    first_steps_[trainer.rank] = std::min(first_steps_[trainer.rank], (*batch)->step);
    const StepLayout& layout = (*batch)->layout;
    std::vector<float> values(layout.samples() * layout.width());
    layout.gather(values);
    for (size_t i = 0; i < values.size(); ++i) {
      const bool is_count = i % layout.width() == layout.fields()[0].column;
      values[i] = is_count ? -1 : values[i] * 0.25F + 1;
    }
    const Status sent = worker.push(*std::move(batch), {.pooled = values}, {}, shortly());
    if (sent.code() != StatusCode::kDeadlineExceeded) STARLING_RETURN_IF_ERROR(sent);
    ++steps_;
    std::this_thread::sleep_for(milliseconds(5));  // the data must last for all cuts
  }
  if (is_stopping_) return absl::OkStatus();
  STARLING_RETURN_IF_ERROR(worker.flush(soon()));
  if (!mode_.bound.has_value()) return absl::OkStatus();
  STARLING_ASSIGN_OR_RETURN(const v1::LeaveReply left, trainer.scheduler->leave({}, soon()));
  return worker.tick_until(left.clock(), soon());
}

class HubCutTest : public testing::TestWithParam<Mode> {};

TEST_P(HubCutTest, AKilledJobGoesOnFromItsCutOnOtherShardsAndTrainsEverySampleOnce) {
  const TemporaryDirectory whole, cut;
  std::vector<float> expected;
  {
    Life life(whole.path(), GetParam(), 10, {.ps = 1, .shards = 2, .hubs = 1});
    ASSERT_NO_FATAL_FAILURE(life.join(1));
    ASSERT_NO_FATAL_FAILURE(life.begin());
    life.begin_again();
    ASSERT_NO_FATAL_FAILURE(life.train());
    life.wait();
    expected = life.weights();
  }
  const uint64_t steps = kEpochs * kSamples / 16;
  uint64_t newest = 0;  // steps before the newest cut, at least
  {
    Life life(cut.path(), GetParam(), 20, {.ps = 1, .shards = 2, .hubs = 2});
    ASSERT_NO_FATAL_FAILURE(life.join(2));
    ASSERT_NO_FATAL_FAILURE(life.begin());
    life.begin_again();
    ASSERT_NO_FATAL_FAILURE(life.train());
    // One in the first epoch, one around its end, one in the second.
    for (const uint64_t at : {steps / 5, steps / 2 - 6, steps * 3 / 5}) {
      ASSERT_NO_FATAL_FAILURE(life.wait_for_steps(at));
      bool is_there = false;
      ASSERT_NO_FATAL_FAILURE(life.save(is_there));
      if (is_there) newest = at;
    }
    ASSERT_GT(newest, 0U);
    ASSERT_NO_FATAL_FAILURE(life.wait_for_steps(steps * 4 / 5));
    life.kill();
  }
  Life life(cut.path(), GetParam(), 30, {.ps = 2, .shards = 3, .hubs = 1});
  ASSERT_NO_FATAL_FAILURE(life.restore(1));
  ASSERT_NO_FATAL_FAILURE(life.train());
  life.wait();
  const std::vector<float> trained = life.weights();
  if (GetParam().bound == 0U) {
    EXPECT_EQ(trained, expected);
  }
  // Numbers of steps go on; those of pushes on their way were not counted yet.
  for (const uint64_t first : life.first_steps()) {
    if (first == UINT64_MAX) continue;  // the other rank was faster
    EXPECT_GE(first + 4 * kRanks, newest);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, HubCutTest,
                         testing::Values(Mode{"asynchronous", "inf", std::nullopt},
                                         Mode{"bounded", "2", 2}, Mode{"synchronous", "0", 0}),
                         [](const auto& info) { return info.param.title; });

}  // namespace
}  // namespace starling::cluster
