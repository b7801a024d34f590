#include "data/slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/data_testing.h"
#include "data/transform.h"

namespace starling {
namespace {

using data_testing::format_of;
using data_testing::keys_of;
using data_testing::parse_all;
using data_testing::Parsed;
using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(FormatOptions options, std::vector<FieldOptions> fields) {
  return std::string(message_of(Format::make(options, std::move(fields)).status()));
}

const std::vector<FieldOptions> kSlots = {{.name = "click", .kind = FieldKind::kLabel},
                                          {.name = "user"},
                                          {.name = "dense", .kind = FieldKind::kDense, .size = 3}};

TEST(MultislotTest, SlotsBecomeFieldsInTheirOrder) {
  const Parsed parsed = parse_all(*format_of({.name = "multislot"}, kSlots),
                                  "1 1 2 18446744073709551615 0 3 0.5 -1 2e3\n1 0 0 0\n");
  ASSERT_EQ(parsed.block.samples(), 2u) << parsed.result.bad.at(0).reason;
  EXPECT_EQ(parsed.block.labels(0)[0], 1.0f);
  EXPECT_THAT(keys_of(parsed.block, 0, 0), ElementsAre(UINT64_MAX, 0));
  EXPECT_THAT(parsed.block.dense(0), ElementsAre(0.5f, -1.0f, 2000.0f));
  EXPECT_THAT(keys_of(parsed.block, 1, 0), ElementsAre());
  EXPECT_THAT(parsed.block.dense(1), ElementsAre(0.0f, 0.0f, 0.0f));
}

TEST(MultislotTest, IdsAndContentsStandBeforeTheSlots) {
  const Parsed parsed =
      parse_all(*format_of({.name = "multislot", .with_id = true, .with_content = true}, kSlots),
                "1 ins-7 1 some{text} 1 1 1 5 3 1 2 3\n2 a b 1 1 1 5 3 1 2 3\n");
  ASSERT_EQ(parsed.block.samples(), 1u);
  EXPECT_EQ(parsed.block.id(0), "ins-7");
  EXPECT_THAT(keys_of(parsed.block, 0, 0), ElementsAre(5));
  EXPECT_THAT(parsed.result.bad.at(0).describe("f"), HasSubstr("f:2: field id"));
}

TEST(MultislotTest, BadLinesAreNamed) {
  const Parsed parsed = parse_all(*format_of({.name = "multislot"}, kSlots),
                                  "1 1 1 5\n1 1 1 5 2 1 2\n1 1 1 -5 3 1 2 3\n1 1 1 5 3 1 2 3 1 "
                                  "9\n1 1 3 5\n1 1 x 5\n1 1 1 5 3 1 2 z\n");
  EXPECT_EQ(parsed.block.samples(), 0u);
  ASSERT_EQ(parsed.result.bad.size(), 7u);
  const auto what = [&](size_t i) { return parsed.result.bad[i].describe("f"); };
  EXPECT_EQ(what(0), "f:1: the line has 2 slots, not 3");
  EXPECT_EQ(what(1), "f:2: field dense: has 2 numbers, not 3");
  EXPECT_EQ(what(2), "f:3: field user: '-5' is no key");
  EXPECT_EQ(what(3), "f:4: the line has more than 3 slots");
  EXPECT_EQ(what(4), "f:5: field user: the line ends before value 1");
  EXPECT_EQ(what(5), "f:6: field slot 1: 'x' is no number of values");
  EXPECT_EQ(what(6), "f:7: field dense: 'z' is no number");
}

TEST(MultislotTest, SlotsMayBeLeftOut) {
  const Parsed named =
      parse_all(*format_of({.name = "multislot", .columns = {"a", "b", "c"}}, {{.name = "c"}}),
                "2 1 2 1 3 1 4\n");
  EXPECT_THAT(keys_of(named.block, 0, 0), ElementsAre(4));
  const Parsed numbered = parse_all(
      *format_of({.name = "multislot"}, {{.name = "x", .column = "1"}}), "2 1 2 1 3 1 4\n");
  EXPECT_THAT(keys_of(numbered.block, 0, 0), ElementsAre(3));
  EXPECT_THAT(error_of({.name = "multislot", .columns = {"a"}}, {{.name = "c"}}),
              HasSubstr("no slot c"));
}

TEST(MultislotTest, KeysMayBeHashedAsNumbers) {
  const Parsed parsed =
      parse_all(*format_of({.name = "multislot"}, {{.name = "a", .transforms = {{"hash", {}}}}}),
                "2 7 007\n");
  const uint64_t key = hash_number(7, hash_text("a", 0));
  EXPECT_THAT(keys_of(parsed.block, 0, 0), ElementsAre(key, key));
}

TEST(LibsvmTest, IndicesBecomeKeys) {
  const Parsed parsed = parse_all(*format_of({.name = "libsvm"}, {}),
                                  "+1 3:1 10:1 11:0 # note 5:1\n-1 qid:4 7:1.0\n0\n");
  ASSERT_EQ(parsed.block.samples(), 3u);
  EXPECT_EQ(parsed.block.labels(0)[0], 1.0f);
  EXPECT_EQ(parsed.block.labels(1)[0], 0.0f);
  EXPECT_THAT(keys_of(parsed.block, 0, 0), ElementsAre(3, 10));
  EXPECT_THAT(keys_of(parsed.block, 1, 0), ElementsAre(7));
  EXPECT_THAT(keys_of(parsed.block, 2, 0), ElementsAre());
}

TEST(LibsvmTest, ValuesGoToDenseFieldsOrBuckets) {
  const std::vector<FieldOptions> fields = {
      {.name = "label", .kind = FieldKind::kLabel},
      {.name = "rest", .transforms = {{"bucketise", {{"b0", 0.5}}}}},
      {.name = "pair", .kind = FieldKind::kDense, .column = "2", .size = 2},
      {.name = "query", .kind = FieldKind::kGroup}};
  const Parsed parsed =
      parse_all(*format_of({.name = "libsvm"}, fields), "1 qid:9 1:0.7 2:5 3:6 4:0.1\n0 1:0.9\n");
  EXPECT_THAT(parsed.block.dense(0), ElementsAre(5.0f, 6.0f));
  EXPECT_EQ(parsed.block.group(0), 9u);
  EXPECT_EQ(keys_of(parsed.block, 0, 0).size(), 2u);
  EXPECT_EQ(keys_of(parsed.block, 0, 0)[0], keys_of(parsed.block, 1, 0)[0]);
}

TEST(LibsvmTest, AKeyWithAValueIsBad) {
  const Parsed parsed =
      parse_all(*format_of({.name = "libsvm"}, {}), "1 3:0.5\n1 x:1\n1 3\ny 3:1\n");
  ASSERT_EQ(parsed.result.bad.size(), 4u);
  EXPECT_THAT(parsed.result.bad[0].describe("f"), HasSubstr("bucketise"));
  EXPECT_THAT(parsed.result.bad[1].describe("f"), HasSubstr("'x:1', which is no index:value"));
  EXPECT_THAT(parsed.result.bad[3].describe("f"), HasSubstr("field label"));
}

TEST(LibffmTest, FieldsAreTakenByTheirNumbers) {
  const std::vector<FieldOptions> fields = {
      {.name = "label", .kind = FieldKind::kLabel},
      {.name = "user"},
      {.name = "item"},
      {.name = "price", .kind = FieldKind::kDense, .column = "5"}};
  const Parsed parsed =
      parse_all(*format_of({.name = "libffm"}, fields), "1 1:22:1 0:11:1 0:12:1 5:0:3.5 9:1:1\n");
  ASSERT_EQ(parsed.block.samples(), 1u);
  EXPECT_THAT(keys_of(parsed.block, 0, 0), ElementsAre(11, 12));
  EXPECT_THAT(keys_of(parsed.block, 0, 1), ElementsAre(22));
  EXPECT_THAT(parsed.block.dense(0), ElementsAre(3.5f));
}

TEST(LibffmTest, WrongPairsAreBad) {
  const auto format =
      format_of({.name = "libffm"}, {{.name = "label", .kind = FieldKind::kLabel}, {.name = "u"}});
  EXPECT_EQ(parse_all(*format, "1 0:1\n1 0:1:1:1\n1 a:1:1\n").result.counts.bad, 3u);
  EXPECT_THAT(error_of({.name = "libffm"}, {{.name = "u", .column = "x"}}), HasSubstr("column x"));
}

}  // namespace
}  // namespace starling
