// The data sets that the project is measured on, parsed to known counts. They are not part of the
// tree: shared/data beside it.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "data/data_testing.h"

namespace starling {
namespace {

using data_testing::parse_all;
using data_testing::Parsed;

// Empty: not there.
std::string read(const std::string& name) {
  std::ifstream in(std::filesystem::path(STARLING_SHARED_DATA) / name, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

double label_sum(const SampleBlock& block) {
  double sum = 0;
  for (uint32_t i = 0; i < block.samples(); ++i) sum += block.labels(i)[0];
  return sum;
}

size_t distinct_keys(const SampleBlock& block, uint32_t field) {
  std::set<uint64_t> keys;
  for (uint32_t i = 0; i < block.samples(); ++i) {
    for (const uint64_t key : data_testing::keys_of(block, i, field)) keys.insert(key);
  }
  return keys.size();
}

std::shared_ptr<const Format> adult() {
  std::vector<FieldOptions> fields;
  for (const char* name : {"workclass", "education", "marital_status", "occupation", "relationship",
                           "race", "sex", "native_country"})
    fields.push_back({.name = name});
  for (const char* name : {"age", "capital_gain", "capital_loss", "hours_per_week"})
    fields.push_back({.name = name, .kind = FieldKind::kDense});
  return Format::make({.name = "csv",
                       .header = true,
                       .label = R"(wage_class in (">50K", ">50K."))",
                       .trim = true},
                      std::move(fields))
      .value();
}

TEST(RealDataTest, AdultHasItsRowsAndLabels) {
  const std::string train = read("adult/adult.data"), test = read("adult/adult.test");
  if (train.empty()) GTEST_SKIP() << "no " << STARLING_SHARED_DATA << "/adult";
  const Parsed parsed = parse_all(*adult(), train);
  EXPECT_EQ(parsed.result.counts.bad, 0u);
  EXPECT_EQ(parsed.block.samples(), 32561u);
  EXPECT_EQ(label_sum(parsed.block), 7841);
  EXPECT_EQ(distinct_keys(parsed.block, 0), 9u);
  EXPECT_EQ(distinct_keys(parsed.block, 1), 16u);
  EXPECT_EQ(distinct_keys(parsed.block, 7), 42u);
  double age = 0;
  for (uint32_t i = 0; i < parsed.block.samples(); ++i) age += parsed.block.dense(i)[0];
  EXPECT_NEAR(age / 32561, 38.5816, 1e-4);
  const Parsed tested = parse_all(*adult(), test);
  EXPECT_EQ(tested.block.samples(), 16281u);
  EXPECT_EQ(label_sum(tested.block), 3846);
}

TEST(RealDataTest, MovieTweetingsHasItsRatings) {
  const std::string bytes = read("movietweetings/ratings.dat");
  if (bytes.empty()) GTEST_SKIP() << "no " << STARLING_SHARED_DATA << "/movietweetings";
  FormatOptions options{.name = "csv",
                        .delimiter = "::",
                        .columns = {"user", "movie", "rating", "time"},
                        .label = "rating >= 8"};
  const std::vector<FieldOptions> fields = {{.name = "user"}, {.name = "movie"}};
  const Parsed all = parse_all(*Format::make(options, fields).value(), bytes);
  EXPECT_EQ(all.result.counts.bad, 0u);
  EXPECT_EQ(all.block.samples(), 100000u);
  EXPECT_NEAR(label_sum(all.block) / 100000, 0.505, 0.0005);
  EXPECT_EQ(distinct_keys(all.block, 0), 16554u);
  EXPECT_EQ(distinct_keys(all.block, 1), 10506u);
  uint32_t both = 0;
  for (const char* rule : {"below", "from"}) {
    options.split = {{rule, {}}, "time", {"1373000000"}};
    both += parse_all(*Format::make(options, fields).value(), bytes).block.samples();
  }
  EXPECT_EQ(both, 100000u);
}

TEST(RealDataTest, MovieTweetingsHasManyGenresPerMovie) {
  const std::string bytes = read("movietweetings/movies.dat");
  if (bytes.empty()) GTEST_SKIP() << "no " << STARLING_SHARED_DATA << "/movietweetings";
  const auto format = Format::make({.name = "csv", .delimiter = "::"},
                                   {{.name = "movie", .column = "0"},
                                    {.name = "genres", .column = "2", .separator = "|"}})
                          .value();
  const Parsed parsed = parse_all(*format, bytes);
  EXPECT_EQ(parsed.result.counts.bad, 0u);
  EXPECT_EQ(distinct_keys(parsed.block, 0), parsed.block.samples());
  EXPECT_EQ(distinct_keys(parsed.block, 1), 25u);
}

}  // namespace
}  // namespace starling
