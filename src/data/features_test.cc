#include "data/features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "data/data_testing.h"
#include "data/features.pb.h"
#include "data/transform.h"

namespace starling {
namespace {

using data_testing::keys_of;
using data_testing::parse_all;
using data_testing::Parsed;
using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<FieldOptions> kFields = {
    {.name = "y", .kind = FieldKind::kLabel},
    {.name = "user"},
    {.name = "tags", .keys_max = 3, .column = "t"},
    {.name = "price", .kind = FieldKind::kDense, .transforms = {{"log", {}}}},
    {.name = "image", .kind = FieldKind::kDense, .size = 2},
    {.name = "id", .kind = FieldKind::kId},
    {.name = "query", .kind = FieldKind::kGroup}};

std::shared_ptr<const Format> features(std::vector<FieldOptions> fields = kFields) {
  return data_testing::format_of({.name = "features"}, std::move(fields));
}

std::string with_prefix(const std::string& record) {
  std::string out;
  append_prefix(record.size(), out);
  return out + record;
}

data::Sample sample_of(std::vector<uint64_t> user, std::vector<uint64_t> tags) {
  data::Sample sample;
  data::Keys* keys = sample.add_keys();
  keys->set_field("user");
  for (const uint64_t key : user) keys->add_keys(key);
  keys = sample.add_keys();
  keys->set_number(1);
  for (const uint64_t key : tags) keys->add_keys(key);
  data::Numbers* numbers = sample.add_numbers();
  numbers->set_field("y");
  numbers->add_values(1);
  return sample;
}

TEST(FeaturesTest, RecordsOfTheProtoAreRead) {
  data::Sample sample = sample_of({UINT64_MAX}, {1, 2, 3, 4});
  data::Numbers* price = sample.add_numbers();
  price->set_field("price");
  price->add_values(9);
  data::Numbers* image = sample.add_numbers();
  image->set_number(1);
  image->add_values(0.5f);
  image->add_values(-2);
  data::Numbers* unknown = sample.add_numbers();
  unknown->set_field("nobody's");
  sample.set_id("s-1");
  sample.set_group(77);
  const Parsed parsed =
      parse_all(*features(), with_prefix(sample.SerializeAsString()) +
                                 with_prefix(sample_of({}, {}).SerializeAsString()));
  ASSERT_EQ(parsed.block.samples(), 2u) << parsed.result.bad.at(0).reason;
  EXPECT_THAT(keys_of(parsed.block, 0, 0), ElementsAre(UINT64_MAX));
  EXPECT_THAT(keys_of(parsed.block, 0, 1), ElementsAre(1, 2, 3));
  EXPECT_EQ(parsed.result.counts.keys_dropped, 1u);
  EXPECT_THAT(parsed.block.dense(0), ElementsAre(testing::FloatEq(2.3025851f), 0.5f, -2.0f));
  EXPECT_EQ(parsed.block.labels(0)[0], 1.0f);
  EXPECT_EQ(parsed.block.id(0), "s-1");
  EXPECT_EQ(parsed.block.group(0), 77u);
  EXPECT_THAT(parsed.block.dense(1), ElementsAre(0.0f, 0.0f, 0.0f));
}

TEST(FeaturesTest, BadRecordsAreNamedByTheirNumber) {
  data::Sample wrong_number = sample_of({1}, {});
  wrong_number.mutable_keys(1)->set_number(9);
  wrong_number.mutable_keys(1)->add_keys(1);
  data::Sample keys_of_numbers = sample_of({1}, {});
  keys_of_numbers.mutable_keys(0)->set_field("price");
  data::Sample too_many = sample_of({1}, {});
  too_many.mutable_numbers(0)->add_values(2);
  const std::string good = with_prefix(sample_of({1}, {2}).SerializeAsString());
  const Parsed parsed =
      parse_all(*features(),
                good + with_prefix("\x0a\x05xx") + with_prefix(wrong_number.SerializeAsString()) +
                    with_prefix(keys_of_numbers.SerializeAsString()) +
                    with_prefix(too_many.SerializeAsString()) + with_prefix("") + good);
  EXPECT_EQ(parsed.block.samples(), 2u);
  ASSERT_EQ(parsed.result.bad.size(), 5u);
  EXPECT_EQ(parsed.result.bad[0].describe("f"), "f:2: the line is no record");
  EXPECT_THAT(parsed.result.bad[1].describe("f"), HasSubstr("number 9"));
  EXPECT_THAT(parsed.result.bad[2].describe("f"), HasSubstr("field price: keys"));
  EXPECT_THAT(parsed.result.bad[3].describe("f"), HasSubstr("field y: more numbers"));
  EXPECT_EQ(parsed.result.bad[4].describe("f"), "f:6: field y: is missing");
}

TEST(FeaturesTest, FallbacksStandForMissingFields) {
  std::vector<FieldOptions> fields = kFields;
  fields[1].fallback = "5";
  fields[3].fallback = "0";
  const Parsed parsed =
      parse_all(*features(fields), with_prefix(sample_of({}, {1}).SerializeAsString()));
  EXPECT_THAT(keys_of(parsed.block, 0, 0), ElementsAre(5));
}

TEST(FeaturesTest, SamplesSurviveTheWayBetweenHubs) {
  const auto format = features();
  SampleBlock block(format->schema());
  Rng rng(1, 1, 1);
  for (int i = 0; i < 200; ++i) {
    float* numbers = block.begin();
    for (uint32_t n = 0; n < format->schema()->numbers(); ++n)
      numbers[n] = static_cast<float>(rng.normal());
    for (uint64_t n = rng.below(3); n > 0; --n) block.add_key(0, static_cast<Key>(rng.next_u64()));
    for (uint64_t n = rng.below(4); n > 0; --n) block.add_key(1, static_cast<Key>(rng.next_u64()));
    block.end(std::string(rng.below(5), 'x'), rng.next_u64());
  }
  SampleBlock back(format->schema());
  for (uint32_t i = 0; i < block.samples(); ++i) {
    std::string record;
    encode_sample(block, i, record);
    data::Sample read;
    ASSERT_TRUE(read.ParseFromString(record)) << "not protobuf";
    ASSERT_TRUE(decode_sample(record, back).ok());
  }
  for (uint32_t i = 0; i < block.samples(); ++i) {
    EXPECT_EQ(keys_of(back, i, 0), keys_of(block, i, 0));
    EXPECT_EQ(keys_of(back, i, 1), keys_of(block, i, 1));
    EXPECT_THAT(back.numbers(i), testing::ElementsAreArray(block.numbers(i)));
    EXPECT_EQ(back.id(i), block.id(i));
    EXPECT_EQ(back.group(i), block.group(i));
  }
}

TEST(FeaturesTest, ARecordThatDoesNotFitTheSchemaIsRefusedAndLeavesNothing) {
  SampleBlock block(features()->schema());
  data::Sample sample = sample_of({1}, {2});
  sample.mutable_numbers(0)->clear_field();
  ASSERT_TRUE(decode_sample(sample.SerializeAsString(), block).ok());
  sample.mutable_numbers(0)->set_number(4);
  EXPECT_FALSE(decode_sample(sample.SerializeAsString(), block).ok());
  sample.mutable_numbers(0)->set_number(0);
  sample.mutable_keys(1)->set_number(2);
  EXPECT_FALSE(decode_sample(sample.SerializeAsString(), block).ok());
  EXPECT_FALSE(decode_sample("\xff\xff", block).ok());
  EXPECT_EQ(block.samples(), 1u);
  EXPECT_EQ(block.keys(), 2u);
}

}  // namespace
}  // namespace starling
