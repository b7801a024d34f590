#include "hub/position.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling {
namespace {

using testing::HasSubstr;

v1::WorkQueueInfo queue_of(const std::string& name, uint32_t epoch, uint64_t done_below) {
  v1::WorkQueueInfo queue;
  queue.set_queue(name);
  queue.set_epoch(epoch);
  v1::WorkProgress* progress = queue.add_progress();
  progress->set_item(3);
  progress->set_done_below(done_below);
  progress->set_finished(true);
  progress->set_samples_trained(70);
  progress->set_samples_skipped(7);
  return queue;
}

std::string position_of(const std::string& dataset, uint64_t clock) {
  hubs::Position position;
  position.add_datasets()->set_dataset("another");
  hubs::DatasetPosition* one = position.add_datasets();
  one->set_dataset(dataset);
  one->set_clock(clock);
  return position.SerializeAsString();
}

TEST(Position, ADatasetTakesWhatTheCutSaysOfItAndNothingElse) {
  v1::StartSampleOption option;
  option.set_dataset("train");
  option.add_resume()->set_item(77);
  const Status status =
      resume_at({queue_of("test-0", 9, 1), queue_of("train", 1, 5), queue_of("train", 2, 6)},
                {position_of("test-0", 1), position_of("train", 40)}, 40, option);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(option.resume_size(), 2);
  EXPECT_EQ(option.resume(0).epoch(), 1U);
  EXPECT_EQ(option.resume(0).item(), 3U);
  EXPECT_EQ(option.resume(1).done_below(), 6U);
  EXPECT_TRUE(option.resume(1).finished());
  EXPECT_EQ(option.resume(1).samples_trained() + option.resume(1).samples_skipped(), 0U);
  const auto position = position_in(option);
  ASSERT_TRUE(position.ok()) << position.status();
  EXPECT_EQ(position->clock(), 40U);
}

TEST(Position, AQueueGoesOnWithWhatAMarkCountsOrElseWithFullBatches) {
  v1::WorkProgress progress = queue_of("train", 1, 5).progress(0);
  progress.clear_finished();
  EXPECT_EQ(progress_of(mark_of(1, progress), 16).SerializeAsString(),
            progress.SerializeAsString());
  progress.clear_samples_trained();
  EXPECT_EQ(progress_of(mark_of(1, progress), 16).samples_trained(), 0U);
  progress.clear_samples_skipped();
  EXPECT_EQ(progress_of(mark_of(1, progress), 16).samples_trained(), 5 * 16U);
}

TEST(Position, ACutThatDoesNotKnowTheDatasetLetsItBeginAtTheClockOfTheRanks) {
  v1::StartSampleOption option;
  option.set_dataset("train");
  ASSERT_TRUE(resume_at({}, {position_of("other", 40)}, 50, option).ok());
  EXPECT_EQ(option.resume_size(), 0);
  const auto position = position_in(option);
  ASSERT_TRUE(position.ok()) << position.status();
  EXPECT_EQ(position->clock(), 50U);
}

TEST(Position, OtherBytesAreRefused) {
  v1::StartSampleOption option;
  option.set_dataset("train");
  EXPECT_EQ(resume_at({}, {"\xff\xff"}, 0, option).code(), StatusCode::kDataLoss);
  option.set_position("\xff\xff");
  const auto position = position_in(option);
  EXPECT_EQ(position.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(message_of(position.status())), HasSubstr("train"));
}

TEST(Position, ContentIsWhatDecidesOnBatches) {
  v1::StartSampleOption option;
  option.set_dataset("train");
  option.set_batch_size(16);
  std::vector<v1::WorkItem> items(2);
  items[1].set_path("b");
  const uint64_t content = content_of(option, items);
  option.set_threads(7);
  option.set_lease_ms(1);
  option.set_epochs(9);
  option.add_resume();
  EXPECT_EQ(content_of(option, items), content);
  items[1].set_end(5);
  EXPECT_NE(content_of(option, items), content);
  items[1].clear_end();
  EXPECT_EQ(content_of(option, items), content);
  option.set_batch_size(17);
  EXPECT_NE(content_of(option, items), content);
}

}  // namespace
}  // namespace starling
