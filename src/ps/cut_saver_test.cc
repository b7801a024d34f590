// What a cut keeps beside rows, what it takes by filters and names, and how a save ends early.
#include "ps/cut_saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/cut_testing.h"

namespace starling {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kDirectory = "mem://cuts/job";

class CutSaverTest : public ::testing::Test {
 protected:
  static v1::CreateOption two_tables() {
    v1::CreateOption job;
    *job.add_tables() = cut_table("users", rule_of("adagrad"));
    job.mutable_tables(0)->set_statistics(true);
    *job.add_tables() = cut_table("items", rule_of("sgd"));
    v1::DenseOptions* variable = job.add_variables();
    variable->set_name("w");
    variable->add_shape(100);
    variable->set_split_elements(30);
    *variable->mutable_optimizer() = rule_of("adam");
    return job;
  }

  const RealClock clock_{};
  const std::unique_ptr<FileSystems> fs_ = FileSystems::standard({}, clock_);
};

TEST_F(CutSaverTest, StepsClocksWatermarksAndSessionsComeBack) {
  CutBench job(*fs_, 1, two_tables());
  ShardBench& bench = job.bench(0);
  const auto set_step = [](ShardBench& to, uint64_t number, uint64_t step) {
    Message message = to.numbered(number);
    message.meta.mutable_step()->set_set(step);
    return to.status(Method::kPsStep, std::move(message));
  };
  bench.join(0, 3);
  ASSERT_EQ(set_step(bench, 4, 41), absl::OkStatus());
  // Batch 9 of item 2 is applied, everything below 8 of it is done.
  Message feed = bench.feed_rows({0, 2, 9}, "items", {1, 2});
  v1::Watermark* mark = feed.meta.mutable_feed_sample()->add_watermarks();
  mark->set_item(2);
  mark->set_done_below(8);
  ASSERT_EQ(bench.status(Method::kPsFeedSample, std::move(feed)), absl::OkStatus());
  const std::vector<float> ones(8, 1.0F);
  ASSERT_EQ(bench.status(Method::kPsPushGrad, bench.push_rows({0, 2, 9}, "items", 2, ones, 0, 3)),
            absl::OkStatus());
  ASSERT_EQ(job.save(job.save_option(kDirectory, 1)), absl::OkStatus());
  ckpt::ShardState before;
  bench.shard.save_state(before);
  EXPECT_EQ(before.watermarks(0).done_below(), 8u);
  EXPECT_EQ(before.parts_size(), 1);
  EXPECT_EQ(before.clocks(0).clock(), 4u);

  CutBench other(*fs_, 2, two_tables());
  other.bench(0).join(0, 9);
  ASSERT_EQ(other.restore(kDirectory), absl::OkStatus());
  EXPECT_TRUE(other.bench(0).shard.clocks().all().empty()) << "of the generation before";
  // The scheduler starts the ranks of the new generation at the clock of the cut.
  other.bench(0).join(0, before.clocks(0).clock());
  before.mutable_clocks(0)->set_joined(before.clocks(0).clock());
  ckpt::ShardState after;
  other.bench(0).shard.save_state(after);
  EXPECT_EQ(after.generation(), 2u) << "a restore starts a new one";
  after.set_generation(before.generation());
  EXPECT_EQ(after.SerializeAsString(), before.SerializeAsString());
  // The operation is not applied again.
  Message repeat = other.bench(0).numbered(4);
  repeat.meta.mutable_header()->set_generation(2);
  repeat.meta.mutable_step()->set_set(41);
  ASSERT_EQ(other.bench(0).status(Method::kPsStep, std::move(repeat)), absl::OkStatus());
  EXPECT_EQ(other.bench(0).shard.step(), before.step());
}

TEST_F(CutSaverTest, DeltaTakesWhatPassesAndResetsItWhenPublished) {
  CutBench job(*fs_, 1, two_tables());
  std::vector<Key> hot = {Key{3}, Key{6}};
  for (uint64_t step = 1; step <= 4; ++step) job.push("users", hot, step);
  job.push("users", {Key{1}}, 5);
  v1::SaveOption option = job.save_option(kDirectory, 1);
  option.set_filter(v1::SAVE_FILTER_DELTA);
  option.add_names("users");
  ASSERT_EQ(job.begin(option), absl::OkStatus());
  ASSERT_EQ(job.write(1), absl::OkStatus());
  RowBatch rows;
  ASSERT_TRUE(job.table(0, "users").get(hot, rows).ok());
  EXPECT_GT(rows.statistics[0].delta_score, 0) << "not before it is published";
  ASSERT_EQ(job.publish(option), absl::OkStatus());
  ASSERT_TRUE(job.table(0, "users").get(hot, rows).ok());
  EXPECT_EQ(rows.statistics[0].delta_score, 0);
  const uint64_t operation = job.table(0, "users").operation();
  ASSERT_EQ(job.saver(0).commit(1), absl::OkStatus());
  EXPECT_EQ(job.table(0, "users").operation(), operation) << "once per cut";
  const StatusOr<Cut> cut = find_cut(*fs_, kDirectory, 1);
  ASSERT_EQ(cut.status(), absl::OkStatus());
  uint64_t taken = 0;
  for (const ckpt::File& file : cut->manifest.files()) taken += file.rows();
  EXPECT_EQ(taken, 2u);
  EXPECT_EQ(find_cut(*fs_, kDirectory, 0).status().code(), StatusCode::kNotFound)
      << "no job goes back to a part of its rows";
}

TEST_F(CutSaverTest, DailyTakesAllAndARestoreIsADayOlderToo) {
  CutBench job(*fs_, 2, two_tables());
  job.push(1);
  v1::SaveOption option = job.save_option(kDirectory, 1);
  option.set_filter(v1::SAVE_FILTER_DAILY);
  ASSERT_EQ(job.save(option), absl::OkStatus());
  CutBench other(*fs_, 1, two_tables());
  ASSERT_EQ(other.restore(kDirectory), absl::OkStatus());
  EXPECT_EQ(other.image().tables, job.image().tables);
  EXPECT_NE(other.image().tables, job.oracle_image());
}

TEST_F(CutSaverTest, ChosenNamesGoIntoAChangedJobAndWhatDoesNotFitIsNamed) {
  CutBench job(*fs_, 2, two_tables());
  job.push(1);
  ASSERT_EQ(job.save(job.save_option(kDirectory, 1)), absl::OkStatus());
  v1::CreateOption changed = two_tables();
  changed.mutable_tables(0)->set_dim(8);
  changed.mutable_variables(0)->set_split_elements(45);
  *changed.add_tables() = cut_table("fresh", rule_of("sgd"));
  CutBench other(*fs_, 3, changed);
  const Status refused = other.restore(kDirectory);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(message_of(refused)), HasSubstr("users: dim was 4, is 8"));
  EXPECT_THAT(std::string(message_of(refused)), HasSubstr("fresh: the cut has none"));
  v1::RestoreOption option;
  option.set_path(kDirectory);
  option.set_partial(true);
  const auto left_out = other.restore(option);
  ASSERT_EQ(left_out.status(), absl::OkStatus());
  EXPECT_THAT(*left_out, ElementsAre("users: dim was 4, is 8", "fresh: the cut has none"));
  EXPECT_EQ(other.image().tables.at("items"), job.image().tables.at("items"));
  // The variable is cut into other parts, element by element the same.
  const auto elements = [](CutBench& of) {
    std::vector<float> all;
    const JobImage image = of.image();
    for (const auto& [begin, part] : image.variables.at("w")) {
      all.insert(all.end(), part.weights.begin(), part.weights.end());
    }
    return all;
  };
  EXPECT_EQ(elements(other), elements(job));

  CutBench one(*fs_, 1, two_tables());
  v1::RestoreOption items;
  items.set_path(kDirectory);
  items.add_names("items");
  ASSERT_EQ(one.restore(items).status(), absl::OkStatus());
  EXPECT_EQ(one.table(0, "users").rows(), 0u);
  EXPECT_EQ(one.image().tables.at("items"), job.image().tables.at("items"));
  items.add_names("nobody");
  EXPECT_EQ(one.restore(items).status().code(), StatusCode::kNotFound);
}

TEST_F(CutSaverTest, ACancelledSaveLeavesNothingAndTheNextOneWorks) {
  CutBench job(*fs_, 1, two_tables());
  job.push(1);
  const v1::SaveOption option = job.save_option(kDirectory, 1);
  ASSERT_EQ(job.begin(option), absl::OkStatus());
  EXPECT_EQ(job.begin(option), absl::OkStatus()) << "a repeat";
  EXPECT_EQ(job.begin(job.save_option(kDirectory, 2)).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(job.saver(0).commit(1).code(), StatusCode::kFailedPrecondition);
  job.saver(0).advance(true);
  job.cancel(1);
  job.cancel(1);
  EXPECT_FALSE(job.table(0, "users").in_snapshot());
  EXPECT_FALSE(job.table(0, "items").in_snapshot());
  EXPECT_EQ(job.saver(0).progress(1).status().code(), StatusCode::kNotFound);
  ASSERT_EQ(job.save(job.save_option(kDirectory, 2)), absl::OkStatus());
  CutBench other(*fs_, 1, two_tables());
  ASSERT_EQ(other.restore(kDirectory), absl::OkStatus());
  EXPECT_EQ(other.image().tables, job.image().tables);
}

TEST_F(CutSaverTest, ASaveNotCommittedInTimeIsDropped) {
  ManualClock clock;
  ShardBench bench(ShardOptions{.incarnation = Incarnation{3}});
  bench.create({ShardBench::plain_table("t", 2)});
  CutSaver saver(bench.shard, *fs_, clock);
  v1::SaveOption option;
  option.set_cut_id(1);
  option.set_path(std::string(kDirectory) + "/" + cut_name(1));
  option.set_commit_within_s(60);
  ASSERT_EQ(saver.begin(option), absl::OkStatus());
  EXPECT_TRUE(bench.shard.table("t")->in_snapshot());
  clock.advance(seconds(61));
  EXPECT_FALSE(saver.advance(true));
  EXPECT_FALSE(saver.is_saving());
  EXPECT_FALSE(bench.shard.table("t")->in_snapshot());
}

TEST_F(CutSaverTest, WhatCannotBeSavedIsRefused) {
  CutBench job(*fs_, 1, two_tables());
  v1::SaveOption option = job.save_option(kDirectory, 0);
  EXPECT_EQ(job.begin(option).code(), StatusCode::kInvalidArgument) << "no number";
  option = job.save_option(kDirectory, 1);
  option.clear_path();
  EXPECT_EQ(job.begin(option).code(), StatusCode::kInvalidArgument) << "no path";
  option = job.save_option(kDirectory, 1);
  option.add_names("nobody");
  EXPECT_EQ(job.begin(option).code(), StatusCode::kInvalidArgument);
  option = job.save_option(kDirectory, 2, 1);
  option.set_filter(v1::SAVE_FILTER_DELTA);
  EXPECT_EQ(job.begin(option).code(), StatusCode::kInvalidArgument);
  option = job.save_option(kDirectory, 1);
  option.set_filter(static_cast<v1::SaveFilter>(9));
  EXPECT_THAT(std::string(message_of(job.begin(option))), HasSubstr("filter is 9"));
  option = job.save_option(kDirectory, 1);
  option.set_mode(static_cast<v1::SaveMode>(9));
  EXPECT_THAT(std::string(message_of(job.begin(option))), HasSubstr("mode is 9"));
  job.bench(0).join(0, 2);
  option = job.save_option(kDirectory, 1);
  option.set_clock(5);
  const Status late = job.begin(option);
  EXPECT_EQ(late.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(message_of(late)), HasSubstr("rank 0 has finished 2 steps"));
  // A directory that holds a cut is not written to again.
  ASSERT_EQ(job.save(job.save_option(kDirectory, 1)), absl::OkStatus());
  option = job.save_option(kDirectory, 2);
  option.set_path(std::string(kDirectory) + "/" + cut_name(1));
  EXPECT_EQ(job.save(option).code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(*verify_cut(*fs_, *find_cut(*fs_, kDirectory, 1)), IsEmpty());
}

TEST_F(CutSaverTest, ThePublisherCommitsOnceCompactsLongChainsAndKeepsTheNewest) {
  CutBench job(*fs_, 2, two_tables());
  Mutex mutex;
  CondVar changed;
  std::vector<std::string> results;
  {
    CutPublisher publisher(*fs_, {.incarnation = Incarnation{5}, .chain_max = 2}, Log());
    for (uint64_t cut = 1; cut <= 5; ++cut) {
      job.push(cut, 50);
      const v1::SaveOption option = job.save_option(kDirectory, cut, cut - 1);
      ASSERT_EQ(job.begin(option), absl::OkStatus());
      ASSERT_EQ(job.write(cut), absl::OkStatus());
      for (int time = 0; time < 2; ++time) {  // a scheduler that restarts asks again
        CutDraft draft = job.draft(option);
        draft.keep = 2;
        publisher.commit(std::move(draft), [&](const StatusOr<std::string>& path) {
          MutexLock lock(mutex);
          results.push_back(path.ok() ? *path : path.status().ToString());
          changed.notify_all();
        });
      }
      MutexLock lock(mutex);
      while (results.size() < 2 * cut) changed.wait(mutex, Deadline::never());
      EXPECT_EQ(results.back(), option.path());
      for (int i = 0; i < 2; ++i) ASSERT_EQ(job.saver(i).commit(cut), absl::OkStatus());
    }
    publisher.discard(std::string(kDirectory) + "/" + cut_name(5), 5);
  }
  EXPECT_LE(chain_of(*fs_, *find_cut(*fs_, kDirectory, 0))->size(), 2u);
  EXPECT_EQ(find_cut(*fs_, kDirectory, 2).status().code(), StatusCode::kNotFound);
  CutBench other(*fs_, 3, two_tables());
  ASSERT_EQ(other.restore(kDirectory), absl::OkStatus());
  EXPECT_EQ(other.image().tables, job.image().tables);
}

}  // namespace
}  // namespace starling
