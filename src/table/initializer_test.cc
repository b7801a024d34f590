#include "table/initializer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "table/hash.h"

namespace starling {
namespace {

std::vector<float> fill(const InitializerOptions& options, size_t n, uint64_t seed = 1,
                        uint64_t key = 2) {
  const auto made = Initializer::make(options, n, "initializer");
  EXPECT_TRUE(made.ok()) << made.status();
  std::vector<float> out(n, 99);
  made->fill(seed, name_hash("users"), Key{key}, out);
  return out;
}

InitializerOptions kind(const std::string& name) {
  InitializerOptions options;
  options.kind = name;
  return options;
}

double mean_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float x : values) sum += x;
  return sum / static_cast<double>(values.size());
}

double deviation_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float x : values) sum += x * static_cast<double>(x);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(Initializer, ZeroAndConstantFillOneValue) {
  EXPECT_EQ(fill(kind("zero"), 3), (std::vector<float>{0, 0, 0}));
  InitializerOptions options = kind("constant");
  options.value = 0.5;
  EXPECT_EQ(fill(options, 2), (std::vector<float>{0.5, 0.5}));
}

TEST(Initializer, ARowIsAFunctionOfSeedTableAndKeyAlone) {
  const InitializerOptions options = kind("uniform");
  EXPECT_EQ(fill(options, 16), fill(options, 16));
  EXPECT_NE(fill(options, 16), fill(options, 16, 2));
  EXPECT_NE(fill(options, 16), fill(options, 16, 1, 3));
}

// A restart with another build must draw the same rows.
TEST(Initializer, TheFirstUniformDrawIsFrozen) {
  InitializerOptions options = kind("uniform");
  options.low = 0;
  options.high = 1;
  Rng rng(1, name_hash("users"), 2);
  EXPECT_EQ(fill(options, 1)[0], rng.uniform_float());
}

TEST(Initializer, DrawsHaveTheAskedShape) {
  constexpr size_t kMany = 4096;
  InitializerOptions uniform = kind("uniform");
  uniform.low = -1;
  uniform.high = 3;
  const auto flat = fill(uniform, kMany);
  EXPECT_NEAR(mean_of(flat), 1, 0.1);
  EXPECT_GE(*std::min_element(flat.begin(), flat.end()), -1);
  EXPECT_LT(*std::max_element(flat.begin(), flat.end()), 3);
  InitializerOptions normal = kind("normal");
  normal.std = 2;
  EXPECT_NEAR(deviation_of(fill(normal, kMany)), 2, 0.1);
  normal.kind = "truncated_normal";
  const auto cut = fill(normal, kMany);
  EXPECT_LE(*std::max_element(cut.begin(), cut.end()), 4);
  EXPECT_NEAR(deviation_of(cut), 2 * 0.88, 0.1);
  InitializerOptions xavier = kind("xavier");
  const auto spread = fill(xavier, kMany);
  EXPECT_LE(*std::max_element(spread.begin(), spread.end()), std::sqrt(6.0 / (1 + kMany)));
}

TEST(Initializer, BadOptionsAreRefused) {
  InitializerOptions unknown = kind("gaussian");
  InitializerOptions reversed = kind("uniform");
  reversed.low = 1;
  InitializerOptions negative = kind("normal");
  negative.std = -1;
  InitializerOptions nan = kind("constant");
  nan.value = NAN;
  for (const auto& options : {unknown, reversed, negative, nan}) {
    EXPECT_EQ(Initializer::make(options, 4, "initializer").status().code(),
              StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace starling
