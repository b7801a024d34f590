#include "data/ctr_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "data/format.h"

namespace starling {
namespace {

TEST(CtrModel, ASampleDependsOnSeedAndNumberAlone) {
  const CtrModel model({.seed = 5}), same({.seed = 5}), other({.seed = 6});
  std::string a, b, c;
  for (const uint64_t number : {9, 3, 9}) model.append_criteo(model.sample(number), a);
  for (const uint64_t number : {9, 3, 9}) same.append_criteo(same.sample(number), b);
  for (const uint64_t number : {9, 3, 9}) other.append_criteo(other.sample(number), c);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

TEST(CtrModel, ClicksFollowTheirRates) {
  const CtrModel model({.seed = 1});
  double expected = 0, clicked = 0, variance = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    const CtrSample sample = model.sample(i);
    expected += sample.rate;
    variance += sample.rate * (1 - sample.rate);
    clicked += sample.clicked ? 1 : 0;
  }
  EXPECT_NEAR(clicked, expected, 5 * std::sqrt(variance));
  EXPECT_GT(expected / 20000, 0.1);
  EXPECT_LT(expected / 20000, 0.5);
}

TEST(CtrModel, FrequentIdsAreFewAndRareOnesMany) {
  const CtrModel model({.seed = 2, .keys = 100000});
  std::vector<int64_t> seen;
  for (uint64_t i = 0; i < 20000; ++i) seen.push_back(model.sample(i).categories[25]);
  const auto first = std::count(seen.begin(), seen.end(), 0);
  EXPECT_GT(first, 20000 / 20);
  EXPECT_GT(std::set<int64_t>(seen.begin(), seen.end()).size(), 2000U);
  EXPECT_LT(*std::max_element(seen.begin(), seen.end()), static_cast<int64_t>(model.ids(25)));
}

TEST(CtrModel, ItsLinesAreReadByTheFormats) {
  const CtrModel model({.seed = 3});
  std::string lines;
  for (uint64_t i = 0; i < 50; ++i) model.append_criteo(model.sample(i), lines);
  FormatOptions options;
  options.name = "criteo";
  const auto format = Format::make(options, {});
  ASSERT_TRUE(format.ok()) << format.status();
  SampleBlock samples((*format)->schema());
  const auto parser = (*format)->parser("");
  ASSERT_TRUE(parser.ok()) << parser.status();
  const auto parsed = (*parser)->parse({.bytes = lines}, samples, 1);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(samples.samples(), 50U);
  for (uint32_t i = 0; i < 50; ++i) {
    const CtrSample sample = model.sample(i);
    EXPECT_EQ(samples.labels(i)[0], sample.clicked ? 1.0F : 0.0F);
    const auto there = std::count_if(sample.categories.begin(), sample.categories.end(),
                                     [](int64_t id) { return id >= 0; });
    EXPECT_EQ(samples.sample_keys(i).size(), static_cast<size_t>(there));
  }
}

}  // namespace
}  // namespace starling
