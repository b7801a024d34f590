#include "hub/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "conf/load.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

JobOptions job_of(const std::string& yaml) {
  const StatusOr<Job> job = load_text(yaml, {.file = "job.yaml"});
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? job->options : JobOptions();
}

constexpr const char* kJob = R"(
seed: 7
data:
  format: csv
  train: [a.csv]
  reader: {csv: {header: true, delimiter: "::", label: rating >= 8, trim: true}}
  split: {rate: {test: 0.25}}
  batch_size: 64
  epochs: 3
  shuffle_samples: 1000
  on_bad_line: skip
fields:
  - {name: user, table: users}
  - {name: genres, pooling: mean, separator: "|", keys_max: 5}
  - {name: age, kind: dense, transforms: {log: , clip: {low: 0, high: 9}}}
  - {name: bucket, column: age, transforms: {bucketise: {boundaries: [10, 20]}}}
tables: {users: {dim: 4}, genres: {dim: 2}, bucket: {dim: 1}}
train: {staleness: 0, threads: 2}
cluster: {trainers: 3}
)";

TEST(HubOptions, AJobBecomesATrainingDataset) {
  const auto start = train_dataset(job_of(kJob));
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->dataset(), "train");
  EXPECT_THAT(start->files(), ElementsAre("a.csv"));
  EXPECT_EQ(start->format().delimiter(), "::");
  EXPECT_TRUE(start->format().header());
  EXPECT_EQ(start->format().label(), "rating >= 8");
  EXPECT_EQ(start->epochs(), 3U);
  EXPECT_EQ(start->seed(), 7U);
  EXPECT_EQ(start->on_bad_line(), v1::ON_BAD_LINE_SKIP);
  EXPECT_TRUE(start->has_staleness());
  EXPECT_EQ(start->ranks(), 6U);
  EXPECT_EQ(start->format().split().rule().name(), "rate");
  EXPECT_EQ(start->format().split().rule().values(1).value(), 0.75);
  const auto fields = field_options(*start);
  ASSERT_TRUE(fields.ok()) << fields.status();
  ASSERT_EQ(fields->size(), 4U);
  EXPECT_EQ((*fields)[1].pooling, FieldPooling::kMean);
  EXPECT_EQ((*fields)[1].separator, "|");
  EXPECT_EQ((*fields)[1].keys_max, 5U);
  EXPECT_EQ((*fields)[2].kind, FieldKind::kDense);
  ASSERT_EQ((*fields)[2].transforms.size(), 2U);
  EXPECT_EQ((*fields)[2].transforms[0].name, "log");
  EXPECT_EQ((*fields)[2].transforms[1].values[1].second, 9);
  EXPECT_EQ((*fields)[3].column, "age");
  EXPECT_THAT((*fields)[3].transforms[0].values,
              ElementsAre(std::pair<std::string, double>("b0", 10),
                          std::pair<std::string, double>("b1", 20)));
}

TEST(HubOptions, TheTestHasTheRestOfTheSplitAndEpochsOfItsOwn) {
  const auto start = test_dataset(job_of(kJob), 2);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->dataset(), "test-2");
  EXPECT_EQ(start->purpose(), v1::PURPOSE_EVAL);
  EXPECT_EQ(start->first_epoch(), kEvalEpoch + 2);
  EXPECT_EQ(start->format().split().rule().values(0).value(), 0.75);
  EXPECT_EQ(start->format().split().rule().values(1).value(), 1);
  EXPECT_FALSE(start->has_staleness());
}

std::string error_of(const std::string& yaml) {
  return std::string(message_of(train_dataset(job_of(yaml)).status()));
}

TEST(HubOptions, MistakesNameTheirKey) {
  EXPECT_THAT(error_of("data: {format: csv}"), HasSubstr("data.train names no files"));
  EXPECT_THAT(error_of("data: {format: csv, train: a, reader: {csv: {headr: true}}}"),
              HasSubstr("data.reader.csv.headr"));
  EXPECT_THAT(error_of("data: {format: csv, train: a, reader: {criteo: {}}}"),
              HasSubstr("data.format is csv"));
  EXPECT_THAT(error_of("data: {format: csv, train: a, split: {rat: {test: 1}}}"),
              HasSubstr("\"rat\" is not known; allowed: rate, equals, from; nearest: rate"));
  EXPECT_THAT(error_of("data: {format: csv, train: a}\n"
                       "fields: [{name: f, transforms: {clip: {low: x}}}]"),
              HasSubstr("job.yaml:2: fields.f.transforms.clip.low is \"x\""));
  EXPECT_THAT(error_of("data: {format: csv, train: a}\n"
                       "fields: [{name: f, transforms: {bucketize: [1, 2]}}]"),
              AllOf(HasSubstr("job.yaml:2: fields.f.transforms: \"bucketize\" is not known"),
                    HasSubstr("nearest: bucketise")));
}

TEST(HubOptions, FieldKindsOfTheProtocolAreThoseOfTheData) {
  EXPECT_EQ(static_cast<int>(v1::FIELD_KIND_GROUP), static_cast<int>(FieldKind::kGroup));
  EXPECT_EQ(static_cast<int>(v1::FIELD_KIND_LABEL), static_cast<int>(FieldKind::kLabel));
  EXPECT_EQ(static_cast<int>(v1::POOLING_NONE), static_cast<int>(FieldPooling::kNone));
  v1::StartSampleOption option;
  option.add_fields()->set_kind(static_cast<v1::FieldKind>(99));
  option.mutable_fields(0)->set_name("f");
  EXPECT_EQ(message_of(field_options(option).status()),
            "field f: kind is 99, which FieldKind does not have");
  option.mutable_fields(0)->set_kind(v1::FIELD_KIND_KEYS);
  option.mutable_fields(0)->set_pooling(static_cast<v1::Pooling>(99));
  EXPECT_EQ(message_of(field_options(option).status()),
            "field f: pooling is 99, which Pooling does not have");
}

}  // namespace
}  // namespace starling
