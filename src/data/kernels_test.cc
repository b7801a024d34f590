#include "data/kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/rng.h"

namespace starling {
namespace {

// Runs `check` once per vector target of this machine.
template <typename Check>
void on_every_target(Check check) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    SCOPED_TRACE(hwy::TargetName(target));
    check();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(KernelsTest, EverySeparatorIsFoundOnEveryTarget) {
  Rng rng(1, 2, 3);
  for (const size_t size : {0, 1, 63, 64, 65, 127, 1000}) {
    std::string text(size, 'x');
    for (char& c : text) {
      const uint64_t draw = rng.below(size == 127 ? 2 : 5);
      c = draw == 0 ? '\t' : draw == 1 ? '\n' : draw == 2 ? '\0' : '\x89';
    }
    std::vector<uint32_t> tabs, lines;
    for (uint32_t i = 0; i < size; ++i) {
      if (text[i] == '\t') tabs.push_back(i);
      if (text[i] == '\n') lines.push_back(i);
    }
    on_every_target([&] {
      Tail<uint32_t> first, second;
      find_both(text, '\t', '\n', first, second);
      EXPECT_EQ(std::vector<uint32_t>(first.span().begin(), first.span().end()), tabs);
      EXPECT_EQ(std::vector<uint32_t>(second.span().begin(), second.span().end()), lines);
    });
  }
}

TEST(KernelsTest, ZeroBytesBehindTheTextAreNotInIt) {
  Tail<uint32_t> zeros, others;
  find_both("ab", '\0', 'b', zeros, others);
  EXPECT_EQ(zeros.size(), 0u);
  EXPECT_EQ(others.size(), 1u);
}

TEST(KernelsTest, TheLogIsThatOfTheLibrary) {
  Rng rng(5, 5, 5);
  for (int i = 0; i < 100000; ++i) {
    const double x = (rng.uniform() - 0.5) * std::pow(10.0, rng.uniform() * 60 - 20);
    const double exact = std::copysign(std::log1p(std::fabs(x)), x);
    ASSERT_NEAR(log_of(x), exact, 1e-11 * std::max(std::fabs(exact), 1e-3)) << x;
  }
  EXPECT_EQ(log_of(0.0), 0.0);
}

TEST(KernelsTest, ColumnsAreLoggedAlikeOnEveryTarget) {
  for (const size_t stride : {1, 3, 14, 17}) {
    for (const size_t rows : {1, 2, 7, 33}) {
      std::vector<uint8_t> logged(stride);
      for (size_t i = 0; i < stride; ++i) logged[i] = i % 3 != 1 ? 1 : 0;
      std::vector<float> numbers(stride * rows), expected;
      Rng rng(7, stride, rows);
      for (float& x : numbers) {
        const uint64_t kind = rng.below(8);
        x = kind == 0   ? std::numeric_limits<float>::quiet_NaN()
            : kind == 1 ? 0.0f
                        : static_cast<float>(rng.normal() * std::pow(10.0, rng.uniform() * 6));
      }
      for (size_t i = 0; i < numbers.size(); ++i) {
        const float x = numbers[i];
        expected.push_back(std::isnan(x)             ? 0.0f
                           : logged[i % stride] != 0 ? static_cast<float>(log_of(double{x}))
                                                     : x);
      }
      on_every_target([&] {
        std::vector<float> out = numbers;
        log_columns(out, logged);
        EXPECT_EQ(out, expected);
      });
    }
  }
}

}  // namespace
}  // namespace starling
