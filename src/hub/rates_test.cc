#include "hub/rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling {
namespace {

using testing::Contains;
using testing::Not;
using testing::Pair;

std::map<std::string, double> told(Rates& rates, TimePoint now, const Rates::Depths& depths) {
  google::protobuf::RepeatedPtrField<v1::NamedValue> out;
  rates.tell(now, depths, &out);
  std::map<std::string, double> values;
  for (const v1::NamedValue& one : out) values[one.name()] = one.value();
  return values;
}

TEST(Rates, TellStagesDepthsAndBytesPerSample) {
  Metrics metrics;
  Rates rates(metrics);
  const TimePoint start = TimePoint() + seconds(100);
  EXPECT_THAT(told(rates, start, {}), Not(Contains(testing::Key("samples_fed_per_s"))));
  metrics.counter(kBytesRead).add(3000);
  metrics.counter(kSamplesParsed).add(40);
  metrics.counter(kSamplesFed).add(20);
  metrics.counter(kBytesFed).add(2000);
  metrics.counter(kBytesLeased).add(200);
  metrics.histogram(kFeedTime, "ns").record(uint64_t{8000});
  const auto now =
      told(rates, start + seconds(2), {.samples_done = 10, .open_batches = 3, .fed_batches = 2});
  EXPECT_THAT(now, Contains(Pair("bytes_read_per_s", 1500)));
  EXPECT_THAT(now, Contains(Pair("samples_parsed_per_s", 20)));
  EXPECT_THAT(now, Contains(Pair("samples_fed_per_s", 10)));
  EXPECT_THAT(now, Contains(Pair("samples_per_s", 5)));
  EXPECT_THAT(now, Contains(Pair("bytes_to_ps_per_sample", 100)));
  EXPECT_THAT(now, Contains(Pair("bytes_to_trainer_per_sample", 10)));
  EXPECT_THAT(now, Contains(Pair("open_batches", 3)));
  EXPECT_THAT(now, Contains(Pair("fed_batches", 2)));
  EXPECT_NEAR(now.at("feed_p99_us"), 8, 0.6);
  EXPECT_THAT(now, Not(Contains(testing::Key("parse_p50_us"))));
}

TEST(Rates, ACountThatFallsHasNoRate) {
  Metrics metrics;
  Rates rates(metrics);
  const TimePoint start = TimePoint() + seconds(100);
  told(rates, start, {.samples_done = 50});
  EXPECT_THAT(told(rates, start + seconds(1), {.samples_done = 0}),
              Not(Contains(testing::Key("samples_per_s"))));
  EXPECT_THAT(told(rates, start + seconds(2), {.samples_done = 7}),
              Contains(Pair("samples_per_s", 7)));
}

}  // namespace
}  // namespace starling
