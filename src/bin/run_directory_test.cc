#include "bin/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace starling {
namespace {

using testing::HasSubstr;
using testing::Not;

class RunDirectoryTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(path_); }
  void TearDown() override { std::filesystem::remove_all(path_); }
  const std::string path_ = testing::TempDir() + "/run_directory_test";
};

Job job_of(const std::string& yaml) { return *load_text(yaml, {}); }

TEST_F(RunDirectoryTest, IsHeldByOneAtATimeAndSaysWhatToDo) {
  {
    const StatusOr<RunDirectory> first = RunDirectory::open(path_, "ctr");
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_TRUE(is_run_held(path_));
    const StatusOr<RunDirectory> second = RunDirectory::open(path_, "ctr");
    EXPECT_EQ(second.status().code(), StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(message_of(second.status())), HasSubstr("starling status --run"));
  }
  EXPECT_FALSE(is_run_held(path_));
  EXPECT_TRUE(RunDirectory::open(path_, "ctr").ok());
}

TEST_F(RunDirectoryTest, KeepsItsStateForOthers) {
  EXPECT_EQ(read_run_state(path_).status().code(), StatusCode::kNotFound);
  StatusOr<RunDirectory> run = RunDirectory::open(path_, "ctr");
  ASSERT_TRUE(run->begin(job_of("name: ctr"), "/nowhere", true).ok());
  ASSERT_TRUE(run->set_state("running", "grpc++://127.0.0.1:7").ok());
  ASSERT_TRUE(run->set_state("done").ok());
  const StatusOr<RunState> state = read_run_state(path_);
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(state->job, "ctr");
  EXPECT_EQ(state->state, "done");
  EXPECT_EQ(state->scheduler, "grpc++://127.0.0.1:7");
  EXPECT_GT(state->process, 0);
}

TEST_F(RunDirectoryTest, AResumeMayChangeWhereAJobRunsAndNotWhatItComputes) {
  const std::string before =
      fixed_settings(job_of("{name: a, seed: 1, data: {batch_size: 64}, cluster: {ps: 1}}"));
  EXPECT_TRUE(check_resume(before, job_of("{name: a, seed: 1, data: {batch_size: 64, epochs: 9}, "
                                          "cluster: {ps: 3}, checkpoint: {keep: 9}}"))
                  .ok());
  const Status refused =
      check_resume(before, job_of("{name: a, seed: 2, data: {batch_size: 32}, cluster: {ps: 3}}"));
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(message_of(refused)), HasSubstr("seed was 1, is 2"));
  EXPECT_THAT(std::string(message_of(refused)), HasSubstr("data.batch_size was 64, is 32"));
  EXPECT_THAT(std::string(message_of(refused)), Not(HasSubstr("cluster.ps")));
}

TEST_F(RunDirectoryTest, SynchronousJobsKeepTheirNumberOfRanks) {
  const std::string yaml = "{{train: {{staleness: {}, threads: {}}}, cluster: {{trainers: {}}}}}";
  const auto job = [&](const char* staleness, int threads, int trainers) {
    return job_of(fmt::format(fmt::runtime(yaml), staleness, threads, trainers));
  };
  EXPECT_TRUE(check_resume(fixed_settings(job("0", 2, 1)), job("0", 1, 2)).ok());
  EXPECT_FALSE(check_resume(fixed_settings(job("0", 2, 1)), job("0", 1, 1)).ok());
  EXPECT_TRUE(check_resume(fixed_settings(job("inf", 2, 1)), job("inf", 1, 1)).ok());
}

}  // namespace
}  // namespace starling
