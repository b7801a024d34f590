#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "data/data_testing.h"
#include "data/format.h"
#include "data/transform.h"

namespace starling {
namespace {

using data_testing::keys_of;
using data_testing::parse_all;
using data_testing::Parsed;

std::string line_of(std::string label, std::vector<std::string> integers,
                    std::vector<std::string> categories) {
  integers.resize(13);
  categories.resize(26);
  std::string line = std::move(label);
  for (const auto& x : integers) line += '\t' + x;
  for (const auto& x : categories) line += '\t' + x;
  return line + '\n';
}

std::shared_ptr<const Format> criteo(std::vector<FieldOptions> fields = {}) {
  return Format::make({.name = "criteo"}, std::move(fields)).value();
}

TEST(CriteoTest, ALineBecomesLabelNumbersAndKeys) {
  std::vector<std::string> categories(26, "68fd1e64");
  categories[25] = "";
  const Parsed parsed = parse_all(*criteo(), line_of("1", {"1", "-2", "", "100"}, categories));
  ASSERT_EQ(parsed.block.samples(), 1u);
  EXPECT_EQ(parsed.block.labels(0)[0], 1.0f);
  const auto dense = parsed.block.dense(0);
  EXPECT_FLOAT_EQ(dense[0], std::log(2.0f));
  EXPECT_FLOAT_EQ(dense[1], -std::log(3.0f));
  EXPECT_EQ(dense[2], 0.0f);
  EXPECT_FLOAT_EQ(dense[3], std::log(101.0f));
  for (uint32_t field = 0; field < 25; ++field) {
    const uint64_t seed = hash_text(fmt::format("C{}", field + 1), 0);
    EXPECT_THAT(keys_of(parsed.block, 0, field), testing::ElementsAre(hash_text("68fd1e64", seed)));
  }
  EXPECT_THAT(keys_of(parsed.block, 0, 25), testing::IsEmpty());
}

TEST(CriteoTest, BadLinesAreNamedByLineAndField) {
  const std::string good = line_of("0", {"1"}, {"ab"});
  const Parsed parsed =
      parse_all(*criteo(), good + "1\t2\n" + good + line_of("", {}, {}) +
                               line_of("0", {"1", "x7"}, {}) + line_of("0", {}, {}) + "\t\n");
  EXPECT_EQ(parsed.block.samples(), 3u);
  ASSERT_EQ(parsed.result.bad.size(), 4u);
  EXPECT_EQ(parsed.result.bad[0].describe("f"), "f:2: the line has 2 columns, not 40");
  EXPECT_EQ(parsed.result.bad[1].describe("f"), "f:4: field label: is missing");
  EXPECT_EQ(parsed.result.bad[2].describe("f"), "f:5: field I2: 'x7' is no number");
  EXPECT_EQ(parsed.result.bad[3].line, 7u);
  EXPECT_EQ(parsed.result.counts.records, 7u);
  EXPECT_EQ(parsed.result.counts.bad, 4u);
}

TEST(CriteoTest, TooManyColumnsAreBad) {
  std::string line = line_of("0", {}, {});
  line.back() = '\t';
  const Parsed parsed = parse_all(*criteo(), line + "\n");
  EXPECT_EQ(parsed.result.counts.bad, 1u);
}

TEST(CriteoTest, LinesMayEndWithCarriageReturn) {
  std::string line = line_of("1", {}, {});
  std::vector<std::string> categories(26);
  categories[25] = "ab";
  const Parsed plain = parse_all(*criteo(), line_of("1", {}, categories));
  line = line_of("1", {}, categories);
  line.insert(line.size() - 1, "\r");
  const Parsed parsed = parse_all(*criteo(), line);
  EXPECT_EQ(keys_of(parsed.block, 0, 25), keys_of(plain.block, 0, 25));
}

TEST(CriteoTest, FieldsMayBeChosenAndReordered) {
  const auto format = criteo({{.name = "second", .column = "C2"},
                              {.name = "first", .column = "C1"},
                              {.name = "y", .kind = FieldKind::kLabel, .column = "label"},
                              {.name = "raw", .kind = FieldKind::kDense, .column = "I3"}});
  const Parsed parsed = parse_all(*format, line_of("1", {"5", "6", "7"}, {"a", "b"}));
  EXPECT_THAT(keys_of(parsed.block, 0, 0),
              testing::ElementsAre(hash_text("b", hash_text("second", 0))));
  EXPECT_THAT(keys_of(parsed.block, 0, 1),
              testing::ElementsAre(hash_text("a", hash_text("first", 0))));
  EXPECT_EQ(parsed.block.dense(0)[0], 7.0f);
}

TEST(CriteoTest, LinesToPredictMayLackTheLabel) {
  const auto format = Format::make({.name = "criteo", .labels_optional = true}, {}).value();
  const std::string line = line_of("1", {"7"}, {"a"});
  const Parsed parsed = parse_all(*format, line + line.substr(2) + line_of("", {"7"}, {"a"}));
  ASSERT_EQ(parsed.block.samples(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(parsed.block.labels(i)[0], i == 0 ? 1.0f : 0.0f);
    EXPECT_EQ(parsed.block.dense(i)[0], parsed.block.dense(0)[0]);
    EXPECT_EQ(keys_of(parsed.block, i, 0), keys_of(parsed.block, 0, 0));
  }
  EXPECT_EQ(parse_all(*criteo(), line.substr(2)).result.counts.bad, 1u);
}

TEST(CriteoTest, AnUnknownColumnIsNamed) {
  const auto format = Format::make({.name = "criteo"}, {{.name = "C27"}});
  EXPECT_THAT(std::string(message_of(format.status())), testing::HasSubstr("C27"));
}

}  // namespace
}  // namespace starling
