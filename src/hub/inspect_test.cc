#include "hub/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "conf/load.h"
#include "hub/guess.h"
#include "hub/options.h"
#include "store/file_systems.h"

namespace starling {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

class InspectTest : public testing::Test {
 protected:
  InspectTest() : files_(FileSystems::standard({.incarnation = Incarnation{1}}, clock_)) {}

  // What `starling init` writes for a file, loaded.
  JobOptions guessed(const std::string& text) {
    EXPECT_TRUE(write_file(*files_, "mem://i/file", text).ok());
    const auto yaml = guess_job("mem://i/file", text);
    EXPECT_TRUE(yaml.ok()) << yaml.status();
    if (!yaml.ok()) return {};
    const StatusOr<Job> job = load_text(*yaml, {.file = "job.yaml"});
    EXPECT_TRUE(job.ok()) << job.status() << "\n" << *yaml;
    return job.ok() ? job->options : JobOptions();
  }
  std::string show(const JobOptions& job, uint32_t samples) {
    const auto option = train_dataset(job);
    EXPECT_TRUE(option.ok()) << option.status();
    const auto text = show_samples(*files_, clock_, *option, samples);
    EXPECT_TRUE(text.ok()) << text.status();
    return text.ok() ? *text : "";
  }

  RealClock clock_;
  std::unique_ptr<FileSystems> files_;
};

TEST_F(InspectTest, AGuessedCsvIsReadAsItIs) {
  std::string text = "age, city, clicked\n";
  for (int i = 0; i < 60; ++i)
    text += fmt::format("{}, town{}, {}\n", 20 + i, i % 5, i % 3 == 0 ? 1 : 0);
  const JobOptions job = guessed(text);
  EXPECT_EQ(job.data.format, "csv");
  ASSERT_EQ(job.fields.size(), 3U);
  EXPECT_EQ(job.fields[0].kind, "label");
  EXPECT_EQ(job.fields[1].kind, "dense");
  EXPECT_EQ(job.fields[2].table, "city");
  const std::string shown = show(job, 3);
  EXPECT_THAT(shown, HasSubstr("age"));
  EXPECT_THAT(shown, HasSubstr("keys of city"));
}

TEST_F(InspectTest, TextLabelsAndWideDelimitersAreGuessed) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += fmt::format("{}::{}::{}\n", i % 7, i % 9, i % 10 + 1);
  const JobOptions job = guessed(text);
  EXPECT_THAT(job.data.reader.params.flow(), HasSubstr("::"));
  EXPECT_THAT(show(job, 2), HasSubstr("keys of c0"));
  std::string words = "name,income\n";
  for (int i = 0; i < 40; ++i)
    words += fmt::format("n{},{}\n", i % 4, i % 4 == 0 ? ">50K" : "<=50K");
  EXPECT_THAT(guessed(words).data.reader.params.flow(), HasSubstr(">50K"));
}

// user::movie::rating::time, as MovieTweetings has it.
TEST_F(InspectTest, RatingsWithoutAHeaderHaveIdsGradesAndATime) {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += fmt::format("{}::{:07}::{}::{}\n", 1 + i * 37 % 1500, 110000 + i % 50, i % 10 + 1,
                        1362062307 + i * 60);
  }
  const JobOptions job = guessed(text);
  EXPECT_THAT(job.data.reader.params.flow(), HasSubstr("2 >= 6"));
  ASSERT_EQ(job.fields.size(), 2U);
  EXPECT_EQ(job.fields[0].name, "c0");
  EXPECT_EQ(job.fields[0].kind, "keys");
  EXPECT_EQ(job.fields[1].column, "1");
  EXPECT_EQ(job.fields[1].kind, "keys");
  EXPECT_THAT(show(job, 2), HasSubstr("keys of c1"));
  // The first users of a file that is sorted by them have small numbers.
  std::string sorted;
  for (int i = 0; i < 200; ++i) sorted += fmt::format("{}::{}\n", 1 + i / 4, i % 2);
  const JobOptions by_user = guessed(sorted);
  ASSERT_EQ(by_user.fields.size(), 2U);
  EXPECT_EQ(by_user.fields[1].kind, "keys");
}

TEST_F(InspectTest, NumbersUnderAHeaderAreIdsWhenItSaysSo) {
  std::string text = "user_id,weight,click\n";
  for (int i = 0; i < 200; ++i) text += fmt::format("{},{},{}\n", i * 31, i * 1009, i % 2);
  const JobOptions job = guessed(text);
  ASSERT_EQ(job.fields.size(), 3U);
  EXPECT_EQ(job.fields[1].kind, "keys");
  EXPECT_EQ(job.fields[2].kind, "dense");
}

TEST_F(InspectTest, OtherFormatsAreKnownByTheirLines) {
  std::string criteo = "1";
  for (int i = 0; i < 13; ++i) criteo += "\t5";
  for (int i = 0; i < 26; ++i) criteo += "\t0a1b2c3d";
  EXPECT_EQ(guessed(criteo + "\n").data.format, "criteo");
  EXPECT_EQ(guessed("1 3:1 9:1\n0 4:1\n").data.format, "libsvm");
  const JobOptions values = guessed("1 3:1 9:0.5\n0 4:1\n");
  ASSERT_EQ(values.fields[1].transforms.size(), 1U);
  EXPECT_EQ(values.fields[1].transforms[0].name, "bucketise");
  EXPECT_THAT(show(values, 2), HasSubstr("keys of all"));
  EXPECT_EQ(guessed("1 0:3:1 1:9:0.5\n0 0:4:1 1:2:1\n").data.format, "libffm");
  EXPECT_EQ(guessed("1 0 2 11 12 1 7\n1 1 1 15 2 8 9\n").data.format, "multislot");
  const JobOptions numbers = guessed("1 0 2 11 12 2 7 8\n1 1 1 15 2 0.5 9\n");
  ASSERT_EQ(numbers.fields.size(), 3U);
  EXPECT_EQ(numbers.fields[1].kind, "keys");
  EXPECT_EQ(numbers.fields[2].kind, "dense");
  EXPECT_EQ(numbers.fields[2].size, 2);
  EXPECT_THAT(std::string(message_of(guess_job("f", "just words\n").status())),
              HasSubstr("its first line is 'just words'"));
  EXPECT_EQ(guess_job("f", "").status().code(), StatusCode::kInvalidArgument);
}

TEST_F(InspectTest, StatisticsTellCoverageKeysAndLabels) {
  std::string text = "label,city,age\n";
  for (int i = 0; i < 1000; ++i)
    text += fmt::format("{},c{},{}\n", i % 4 == 0 ? 1 : 0, i % 200, i % 10);
  ASSERT_TRUE(write_file(*files_, "mem://i/file", text).ok());
  const StatusOr<Job> job = load_text(
      "data: {format: csv, train: mem://i/file, reader: {csv: {header: true}}}\n"
      "fields: [{name: label, kind: label}, {name: city}, {name: age, kind: dense}]\n",
      {});
  ASSERT_TRUE(job.ok()) << job.status();
  const auto stats = sample_stats(*files_, clock_, *train_dataset(job->options), UINT64_MAX);
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_THAT(*stats, HasSubstr("samples  1000"));
  EXPECT_THAT(*stats, ContainsRegex("label +label +mean 0.25"));
  EXPECT_THAT(*stats, ContainsRegex("age +dense +mean 4.5, std 2.87"));
  EXPECT_THAT(*stats, ContainsRegex("city .*in 100.0% of samples"));
}

TEST(DistinctEstimate, IsCloseForFewAndForMany) {
  for (const uint64_t n : {10ULL, 1000ULL, 200'000ULL}) {
    DistinctEstimate estimate;
    for (uint64_t i = 0; i < 3 * n; ++i) estimate.add(i % n * 7919);
    EXPECT_NEAR(estimate.value() / static_cast<double>(n), 1, 0.06) << n;
  }
}

TEST(FrequentNumbers, KeepsTheMostFrequent) {
  FrequentNumbers frequent(10);
  for (uint64_t i = 0; i < 1000; ++i) {
    frequent.add(7);
    if (i % 2 == 0) frequent.add(8);
    frequent.add(1000 + i);
  }
  const auto top = frequent.top(2);
  ASSERT_EQ(top.size(), 2U);
  EXPECT_EQ(top[0].first, 7U);
  EXPECT_EQ(top[1].first, 8U);
}

}  // namespace
}  // namespace starling
