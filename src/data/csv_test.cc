#include "data/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/rng.h"
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

std::shared_ptr<const Format> csv(FormatOptions options, std::vector<FieldOptions> fields) {
  options.name = "csv";
  return format_of(options, std::move(fields));
}

std::vector<std::string> cut(std::string_view line, std::string delimiter = ",",
                             bool trim = false) {
  CsvCutter cutter(std::move(delimiter), trim);
  if (!cutter.cut(line)) return {"bad: " + cutter.reason()};
  return {cutter.values().begin(), cutter.values().end()};
}

uint64_t key(std::string_view field, std::string_view text) {
  return hash_text(text, hash_text(field, 0));
}

// Files that are to be predicted have no answers: neither the column nor, where it is, its values.
TEST(CsvTest, LabelsMayBeMissingWherePredictionsAreWanted) {
  const std::vector<FieldOptions> fields = {{.name = "user"}};
  const auto format =
      csv({.header = true, .label = "rating >= 8", .labels_optional = true}, fields);
  for (const char* text : {"user\nann\nbob\n", "user,rating\nann,\nbob,\n"}) {
    const Parsed parsed = parse_all(*format, text);
    EXPECT_EQ(parsed.result.counts.bad, 0u) << text;
    ASSERT_EQ(parsed.block.samples(), 2u) << text;
    EXPECT_EQ(parsed.block.labels(1)[0], 0.0f);
  }
  const Parsed known = parse_all(*format, "user,rating\nann,9\nbob,x\n");
  EXPECT_EQ(known.block.labels(0)[0], 1.0f);
  EXPECT_EQ(known.result.counts.bad, 1u);
  const auto strict = csv({.header = true, .label = "rating >= 8"}, fields);
  EXPECT_FALSE(strict->parser("user\nann\n").ok());
}

TEST(CsvTest, LinesAreCutAtDelimiters) {
  EXPECT_THAT(cut("a,b,,c"), ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(cut(","), ElementsAre("", ""));
  EXPECT_THAT(cut("1::2::3", "::"), ElementsAre("1", "2", "3"));
  EXPECT_THAT(cut("1:2:::3", "::"), ElementsAre("1:2", ":3"));
  EXPECT_THAT(cut(" a , b", ","), ElementsAre(" a ", " b"));
  EXPECT_THAT(cut(" a ,\tb", ",", true), ElementsAre("a", "b"));
  EXPECT_THAT(cut("a\t\tb", "\t", true), ElementsAre("a", "", "b"));
}

TEST(CsvTest, QuotesHoldDelimitersAndQuotes) {
  EXPECT_THAT(cut(R"("a,b",c)"), ElementsAre("a,b", "c"));
  EXPECT_THAT(cut(R"("say ""hi""","","x")"), ElementsAre("say \"hi\"", "", "x"));
  EXPECT_THAT(cut(R"( "a" , b)", ",", true), ElementsAre("a", "b"));
  EXPECT_THAT(cut(R"(a"b,c)"), ElementsAre("a\"b", "c"));
  EXPECT_THAT(cut(R"("a)"), ElementsAre(HasSubstr("not closed in column 0")));
  EXPECT_THAT(cut(R"(x,"a"b)"), ElementsAre(HasSubstr("behind the quotes of column 1")));
}

TEST(CsvTest, TheHeaderNamesColumns) {
  const auto format = csv({.header = true}, {{.name = "city"},
                                             {.name = "age", .kind = FieldKind::kDense},
                                             {.name = "y", .kind = FieldKind::kLabel}});
  const Parsed parsed = parse_all(*format, "\xef\xbb\xbfy, age ,city\n1,30,Bonn\n0,,\n");
  ASSERT_EQ(parsed.block.samples(), 2u);
  EXPECT_THAT(keys_of(parsed.block, 0, 0), ElementsAre(key("city", "Bonn")));
  EXPECT_EQ(parsed.block.dense(0)[0], 30.0f);
  EXPECT_EQ(parsed.block.labels(0)[0], 1.0f);
  EXPECT_THAT(keys_of(parsed.block, 1, 0), ElementsAre());
  EXPECT_EQ(parsed.block.dense(1)[0], 0.0f);
  EXPECT_EQ(parsed.result.counts.records, 2u);
}

TEST(CsvTest, AHeaderOfAnotherFileMayHaveAnotherOrder) {
  const auto format = csv({.header = true}, {{.name = "a"}, {.name = "b"}});
  const Parsed one = parse_all(*format, "a,b\n1,2\n");
  const Parsed two = parse_all(*format, "b,a\n2,1\n");
  EXPECT_EQ(keys_of(one.block, 0, 0), keys_of(two.block, 0, 0));
  EXPECT_EQ(keys_of(one.block, 0, 1), keys_of(two.block, 0, 1));
  EXPECT_THAT(std::string(message_of(format->parser("a,c\n").status())),
              HasSubstr("field b: no column b; there are a, c"));
  EXPECT_FALSE(format->parser("a,a\n").ok());
}

TEST(CsvTest, LabelsComeFromExpressions) {
  const auto format = csv(
      {.delimiter = "::", .columns = {"user", "movie", "rating", "time"}, .label = "rating >= 8"},
      {{.name = "user"}, {.name = "movie"}});
  const Parsed parsed = parse_all(*format, "1::10::8::99\n1::11::7::99\n1::12::good::99\n");
  ASSERT_EQ(parsed.block.samples(), 2u);
  EXPECT_EQ(parsed.block.labels(0)[0], 1.0f);
  EXPECT_EQ(parsed.block.labels(1)[0], 0.0f);
  ASSERT_EQ(parsed.result.bad.size(), 1u);
  EXPECT_EQ(parsed.result.bad[0].describe("r.dat"), "r.dat:3: field rating: 'good' is no number");
  EXPECT_THAT(format->schema()->labels, ElementsAre("label"));
}

TEST(CsvTest, AColumnIsSplitIntoManyKeys) {
  const auto format = csv({}, {{.name = "genres", .keys_max = 2, .column = "0", .separator = "|"}});
  const Parsed parsed = parse_all(*format, "Crime|Drama|War\nWar\n|\n\"\"\n");
  ASSERT_EQ(parsed.block.samples(), 4u);
  EXPECT_THAT(keys_of(parsed.block, 0, 0),
              ElementsAre(key("genres", "Crime"), key("genres", "Drama")));
  EXPECT_THAT(keys_of(parsed.block, 1, 0), ElementsAre(key("genres", "War")));
  EXPECT_THAT(keys_of(parsed.block, 2, 0), ElementsAre());
  EXPECT_EQ(parsed.result.counts.keys_dropped, 1u);
}

TEST(CsvTest, NumbersAreTransformed) {
  const DataRule log{"log", {}};
  const DataRule clip{"clip", {{"low", 0}, {"high", 2}}};
  const DataRule normalise{"normalise", {{"mean", 1}, {"std", 2}}};
  const DataRule buckets{"bucketise", {{"b0", 18}, {"b1", 30}, {"b2", 65}}};
  const auto format = csv(
      {}, {{.name = "l", .kind = FieldKind::kDense, .column = "0", .transforms = {log}},
           {.name = "c", .kind = FieldKind::kDense, .column = "0", .transforms = {clip, normalise}},
           {.name = "d", .kind = FieldKind::kDense, .column = "0", .transforms = {buckets}},
           {.name = "k", .column = "0", .transforms = {buckets}}});
  const Parsed parsed = parse_all(*format, "30\n-4\n\n64.9\n\"\"\n");
  ASSERT_EQ(parsed.block.samples(), 4u);
  EXPECT_FLOAT_EQ(parsed.block.dense(0)[0], 3.4339872f);
  EXPECT_EQ(parsed.block.dense(0)[1], 0.5f);
  EXPECT_EQ(parsed.block.dense(0)[2], 2.0f);
  EXPECT_EQ(parsed.block.dense(1)[1], -0.5f);
  EXPECT_EQ(parsed.block.dense(1)[2], 0.0f);
  EXPECT_EQ(parsed.block.dense(3)[1], 0.0f) << "missing is 0 after the transforms";
  const uint64_t seed = hash_text("k", 0);
  EXPECT_THAT(keys_of(parsed.block, 0, 0), ElementsAre(hash_number(2, seed)));
  EXPECT_THAT(keys_of(parsed.block, 1, 0), ElementsAre(hash_number(0, seed)));
  EXPECT_THAT(keys_of(parsed.block, 2, 0), ElementsAre(hash_number(2, seed)));
  EXPECT_THAT(keys_of(parsed.block, 3, 0), ElementsAre());
}

TEST(CsvTest, FallbacksStandForMissingValues) {
  const auto format =
      csv({}, {{.name = "a", .column = "0", .fallback = "none"},
               {.name = "x", .kind = FieldKind::kDense, .column = "1", .fallback = "7"}});
  const Parsed parsed = parse_all(*format, ",\n");
  EXPECT_THAT(keys_of(parsed.block, 0, 0), ElementsAre(key("a", "none")));
  EXPECT_EQ(parsed.block.dense(0)[0], 7.0f);
}

TEST(CsvTest, ACrossHasAKeyForEachPair) {
  const auto format = csv({}, {{.name = "ab", .cross = {"a", "b"}},
                               {.name = "a", .column = "0", .separator = "|"},
                               {.name = "b", .column = "1"}});
  const Parsed parsed = parse_all(*format, "x|y,1\nx,2\ny,1\n,1\n");
  const auto first = keys_of(parsed.block, 0, 0);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_NE(first[0], first[1]);
  EXPECT_THAT(keys_of(parsed.block, 2, 0), ElementsAre(first[1]));
  EXPECT_THAT(keys_of(parsed.block, 1, 0), testing::Not(ElementsAre(first[0])));
  EXPECT_THAT(keys_of(parsed.block, 3, 0), ElementsAre());
}

TEST(CsvTest, SaltsSeparateAndJoinFields) {
  const auto format = csv({}, {{.name = "a", .column = "0", .salt = 5},
                               {.name = "b", .column = "0", .salt = 5},
                               {.name = "c", .column = "0"}});
  const Parsed parsed = parse_all(*format, "x\n");
  EXPECT_EQ(keys_of(parsed.block, 0, 0), keys_of(parsed.block, 0, 1));
  EXPECT_NE(keys_of(parsed.block, 0, 0), keys_of(parsed.block, 0, 2));
}

uint32_t samples_with(FormatOptions options, SplitOptions split, std::string_view bytes) {
  options.split = std::move(split);
  const auto format = csv(options, {{.name = "v", .column = "0"}});
  const Parsed parsed = parse_all(*format, bytes);
  EXPECT_EQ(
      parsed.result.counts.records,
      parsed.result.counts.samples + parsed.result.counts.skipped_split + parsed.result.counts.bad);
  return parsed.block.samples();
}

TEST(CsvTest, RecordsAreSplitByColumn) {
  const std::string bytes = "5,train,2024-01-05\n11,test,2024-02-01\n9,test,2024-02-03\n";
  EXPECT_EQ(samples_with({}, {{"equals", {}}, "1", {"test", "other"}}, bytes), 2u);
  EXPECT_EQ(samples_with({}, {{"below", {}}, "0", {"10"}}, bytes), 2u);
  EXPECT_EQ(samples_with({}, {{"from", {}}, "0", {"10"}}, bytes), 1u);
  EXPECT_EQ(samples_with({}, {{"below", {}}, "2", {"2024-02-01"}}, bytes), 1u);
  EXPECT_EQ(samples_with({}, {{"from", {}}, "2", {"2024-02-01"}}, bytes), 2u);
}

TEST(CsvTest, ASplitByRateTakesEachRecordOnce) {
  std::string bytes;
  for (int i = 0; i < 2000; ++i) bytes += std::to_string(i) + "\n";
  const DataRule train{"rate", {{"from", 0}, {"to", 0.8}, {"seed", 3}}};
  const DataRule test{"rate", {{"from", 0.8}, {"to", 1}, {"seed", 3}}};
  const uint32_t trained = samples_with({}, {train, "", {}}, bytes);
  const uint32_t tested = samples_with({}, {test, "", {}}, bytes);
  EXPECT_EQ(trained + tested, 2000u);
  EXPECT_NEAR(tested, 400, 80);
}

TEST(CsvTest, NegativesAreDrawnByRate) {
  std::string bytes;
  for (int i = 0; i < 3000; ++i) bytes += i % 3 == 0 ? "1\n" : "0\n";
  FormatOptions options{.negatives_rate = 0.25};
  const auto format = csv(options, {{.name = "y", .kind = FieldKind::kLabel, .column = "0"}});
  const Parsed parsed = parse_all(*format, bytes);
  float positives = 0;
  for (uint32_t i = 0; i < parsed.block.samples(); ++i) positives += parsed.block.labels(i)[0];
  EXPECT_EQ(positives, 1000.0f);
  EXPECT_NEAR(parsed.block.samples() - 1000.0, 500, 100);
  EXPECT_EQ(parsed.result.counts.skipped_negatives, 3000 - parsed.block.samples());
}

TEST(CsvTest, WrongOptionsAreNamed) {
  const auto wrong = [](FormatOptions options, std::vector<FieldOptions> fields) {
    options.name = "csv";
    return std::string(message_of(Format::make(options, std::move(fields)).status()));
  };
  EXPECT_THAT(wrong({}, {{.name = "a", .transforms = {{"square", {}}}}}),
              HasSubstr("field a: no transform named square"));
  EXPECT_THAT(wrong({}, {{.name = "0", .transforms = {{"log", {}}}}}), HasSubstr("bucketise"));
  EXPECT_THAT(wrong({}, {{.name = "0", .kind = FieldKind::kDense, .transforms = {{"hash", {}}}}}),
              HasSubstr("hash"));
  EXPECT_THAT(wrong({}, {{.name = "0"}, {.name = "0"}}), HasSubstr("twice"));
  EXPECT_THAT(wrong({}, {{.name = "x", .cross = {"a", "b"}}}),
              HasSubstr("no field of keys named a"));
  EXPECT_THAT(wrong({.columns = {"a"}}, {{.name = "b"}}), HasSubstr("no column b"));
  EXPECT_THAT(wrong({.label = "a >"}, {{.name = "0"}}), HasSubstr("expected a literal"));
  EXPECT_THAT(wrong({.split = {{"rate", {{"from", 0.5}, {"to", 0.5}}}, "", {}}}, {{.name = "0"}}),
              HasSubstr("rate"));
  for (const double seed : {-1.0, 0.5, 1e30, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(wrong({.split = {{"rate", {{"seed", seed}}}, "", {}}}, {{.name = "0"}}),
                HasSubstr("split.rate.seed is"));
    EXPECT_THAT(wrong({}, {{.name = "0", .transforms = {{"hash", {{"salt", seed}}}}}}),
                HasSubstr("hash.salt is"));
  }
  EXPECT_THAT(wrong({.split = {{"below", {}}, "", {"7"}}}, {{.name = "0"}}), HasSubstr("column"));
  EXPECT_THAT(wrong({.negatives_rate = 2}, {{.name = "0"}}), HasSubstr("negatives_rate"));
  EXPECT_THAT(wrong({.delimiter = "\n"}, {{.name = "0"}}), HasSubstr("delimiter"));
}

// The other formats read every record of such a split.
TEST(CsvTest, OnlyCsvIsSplitByAColumn) {
  for (const char* name : {"multislot", "criteo", "libsvm", "libffm", "features"}) {
    for (const char* rule : {"equals", "below", "from"}) {
      const Status status =
          Format::make({.name = name, .split = {{rule, {}}, "time", {"7"}}}, {{.name = "a"}})
              .status();
      EXPECT_EQ(message_of(status),
                fmt::format("split: {} is split by rate, only csv by a column", name));
    }
  }
}

// RFC 4180 as it reads, one character at a time.
std::vector<std::string> slow_cut(std::string_view line, std::string_view delimiter) {
  std::vector<std::string> values(1);
  bool quoted = false, started = false, ended = false;
  for (size_t i = 0; i < line.size();) {
    if (quoted) {
      if (line[i] == '"' && line.substr(i + 1, 1) == "\"") {
        values.back() += '"';
        i += 2;
      } else if (line[i] == '"') {
        quoted = false;
        ended = true;
        ++i;
      } else {
        values.back() += line[i++];
      }
    } else if (line.substr(i, delimiter.size()) == delimiter) {
      values.emplace_back();
      started = ended = false;
      i += delimiter.size();
    } else if (ended) {
      return {"bad"};
    } else if (line[i] == '"' && !started) {
      quoted = started = true;
      ++i;
    } else {
      started = true;
      values.back() += line[i++];
    }
  }
  return quoted ? std::vector<std::string>{"bad"} : values;
}

TEST(CsvTest, RandomLinesAreCutAsTheSlowCutterDoes) {
  Rng rng(4, 4, 4);
  const std::string letters = "ab,\"\"::| ";
  for (int round = 0; round < 20000; ++round) {
    std::string line;
    for (uint64_t n = rng.below(14); n > 0; --n) line += letters[rng.below(letters.size())];
    const std::string delimiter = round % 2 == 0 ? "," : "::";
    std::vector<std::string> ours = cut(line, delimiter);
    if (ours[0].substr(0, 4) == "bad:") ours = {"bad"};
    ASSERT_EQ(ours, slow_cut(line, delimiter)) << line;
  }
}

}  // namespace
}  // namespace starling
