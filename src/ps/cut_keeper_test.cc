#include "ps/cut_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "ps/cut_publisher.h"
#include "ps/cut_testing.h"

namespace starling {
namespace {

using ::testing::HasSubstr;

constexpr const char* kDirectory = "mem://cuts/job";

// A lane that its test turns; tasks may come from any thread.
class TurnedLane final : public Lane {
 public:
  const Clock& clock() const override { return clock_; }
  bool here() const override { return true; }
  void post(Task task) override {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  TimerId call_at(TimePoint, Task task) override {
    post(std::move(task));
    return {};
  }
  void cancel(TimerId) override {}
  bool turn() {
    std::vector<Task> tasks;
    {
      MutexLock lock(mutex_);
      tasks.swap(tasks_);
    }
    for (Task& task : tasks) task();
    return !tasks.empty();
  }

 private:
  const RealClock clock_{};
  Mutex mutex_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
};

class CutKeeperTest : public testing::Test {
 protected:
  CutKeeperTest() {
    bench_.create({ShardBench::plain_table("t", 1)});
    bench_.freeze();
    KeeperContext context;
    context.lane = lane_;
    context.flush = [this] {
      keeper_->advance(bench_.shard);
      bench_.collect();
    };
    context.report = [this](const v1::SaveJobOption& option) { reports_.push_back(option); };
    keeper_ = std::make_unique<CutKeeper>(*fs_, context, CutSaverOptions(), Log());
  }
  ~CutKeeperTest() override { keeper_.reset(); }

  v1::CutEvent cut(uint64_t id, v1::CutPhase phase) {
    v1::CutEvent event;
    event.set_cut_id(id);
    event.set_phase(phase);
    event.mutable_save()->set_cut_id(id);
    event.mutable_save()->set_path(fmt::format("{}/{}", kDirectory, cut_name(id)));
    return event;
  }
  // The files that the lane reported, when all are written.
  v1::SaveReply write(uint64_t id) {
    keeper_->on_cut(bench_.shard, cut(id, v1::CUT_PHASE_SNAPSHOT));
    keeper_->on_cut(bench_.shard, cut(id, v1::CUT_PHASE_WRITE));
    keeper_->advance(bench_.shard);
    const Deadline deadline = Deadline::in(clock_, seconds(60));
    while (!deadline.passed(clock_.now())) {
      if (!reports_.empty() &&
          (reports_.back().written().done() || !reports_.back().error().empty()))
        break;
      if (!lane_->turn()) std::this_thread::sleep_for(microseconds(100));
    }
    EXPECT_EQ(reports_.back().cut_id(), id);
    EXPECT_EQ(reports_.back().error(), "");
    return reports_.back().written();
  }
  void publish(uint64_t id, const v1::SaveReply& written) {
    CutDraft draft;
    draft.path = fmt::format("{}/{}", kDirectory, cut_name(id));
    draft.manifest.set_cut_id(id);
    *draft.manifest.mutable_map() = bench_.shard.routes().map();
    for (const v1::SavedFile& file : written.files()) draft.files.push_back(file);
    ASSERT_EQ(publish_cut(*fs_, draft).status(), absl::OkStatus());
  }
  Message restore_request(uint64_t generation) {
    Message message = bench_.request();
    message.meta.mutable_header()->set_generation(generation);
    message.meta.mutable_restore()->set_path(kDirectory);
    return message;
  }
  // Sends straight to the keeper, as the shard's host would.
  Token restore(uint64_t generation) {
    const Token token{++tokens_};
    ShardCall call{restore_request(generation), token, Deadline::never(), bench_.now};
    keeper_->restore(bench_.shard, call);
    bench_.collect();
    return token;
  }
  void wait_for(Token token) {
    const Deadline deadline = Deadline::in(clock_, seconds(60));
    while (!bench_.answered(token) && !deadline.passed(clock_.now())) {
      if (!lane_->turn()) std::this_thread::sleep_for(microseconds(100));
    }
    ASSERT_TRUE(bench_.answered(token));
  }

  const RealClock clock_{};
  const std::unique_ptr<FileSystems> fs_ = make_files(clock_);
  ShardBench bench_;
  std::shared_ptr<TurnedLane> lane_ = std::make_shared<TurnedLane>();
  std::vector<v1::SaveJobOption> reports_;
  std::unique_ptr<CutKeeper> keeper_;
  uint64_t tokens_ = uint64_t{1} << 32;
};

// It used to hold the snapshot for an hour, and to refuse the cuts of that hour.
TEST_F(CutKeeperTest, ACutWhoseEndWasMissedIsNotInTheWayOfTheNext) {
  publish(1, write(1));
  keeper_->on_whole(bench_.shard, /*newest_cut=*/1, /*running=*/0);
  write(2);
  // The second has failed, while a third runs already.
  keeper_->on_whole(bench_.shard, /*newest_cut=*/1, /*running=*/3);
  publish(3, write(3));
  EXPECT_EQ(find_cut(*fs_, kDirectory, 0)->manifest.cut_id(), 3u);
}

TEST_F(CutKeeperTest, ARepeatOfARestoreThatRunsIsAnsweredWithIt) {
  publish(1, write(1));
  keeper_->on_cut(bench_.shard, cut(1, v1::CUT_PHASE_COMMITTED));
  const Token first = restore(2);
  const Token repeat = restore(2);
  wait_for(first);
  ASSERT_TRUE(bench_.answered(repeat));
  for (const Token token : {first, repeat}) {
    EXPECT_EQ(status_of(bench_.answers.at(token)), absl::OkStatus());
    EXPECT_EQ(bench_.answers.at(token).meta.restore_reply().cut_id(), 1u);
  }
  EXPECT_EQ(bench_.shard.generation(), 2u);
}

// A copy that was long on its way would have taken back what was trained since.
TEST_F(CutKeeperTest, ARestoreAfterFreezeIsRefused) {
  publish(1, write(1));
  const Token late = restore(1);
  ASSERT_TRUE(bench_.answered(late));
  EXPECT_EQ(bench_.answers.at(late).meta.status().reason(), v1::REASON_FROZEN);
  EXPECT_THAT(bench_.answers.at(late).meta.status().message(), HasSubstr("start a new one"));
}

}  // namespace
}  // namespace starling
