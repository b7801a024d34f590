#include "data/transform.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

// Tables are filled by these keys: they may never change.
TEST(TransformTest, KeysAreFrozen) {
  EXPECT_EQ(hash_text("", 0), 0x2d06800538d394c2u);
  EXPECT_EQ(hash_text("68fd1e64", 7), 2098783994185471099u);
  EXPECT_EQ(hash_text("a longer text of more than sixteen bytes", 1), 1532091777455162012u);
  EXPECT_EQ(hash_number(1, 0), 3439722301264460078u);
  EXPECT_EQ(hash_number(UINT64_MAX, 42), 4695856486794948766u);
  EXPECT_EQ(seed_of({.name = "C1"}), 4286596853037386291u);
  EXPECT_EQ(seed_of({.name = "C1", .salt = 9}), 9u);
}

TEST(TransformTest, StepsAreTakenInTheirOrder) {
  const std::vector<NumberStep> steps = {{NumberStep::Kind::kClip, 0, 10},
                                         {NumberStep::Kind::kNormalise, 4, 2}};
  EXPECT_EQ(transformed(steps, 100), 3);
  EXPECT_EQ(transformed(steps, -5), -2);
  EXPECT_EQ(transformed(steps, 5), 0.5);
}

TEST(TransformTest, NumbersAreWholeAndFinite) {
  double number = 0;
  for (const char* text : {"1", "-1.5", "+2e3", ".5", "007"})
    EXPECT_TRUE(parse_number(text, number)) << text;
  for (const char* text :
       {"", "+", "-", "1x", " 1", "nan", "inf", "-inf", "++1", "+-1", "1e999", "0x1"})
    EXPECT_FALSE(parse_number(text, number)) << text;
  uint64_t whole = 0;
  EXPECT_TRUE(parse_unsigned("18446744073709551615", whole));
  EXPECT_EQ(whole, UINT64_MAX);
  for (const char* text : {"", "-1", "+1", "18446744073709551616", "1.0", "1 "})
    EXPECT_FALSE(parse_unsigned(text, whole)) << text;
}

TEST(TransformTest, BucketsAreCountedFromTheBoundariesNotAbove) {
  FieldPlan plan;
  plan.boundaries = {1, 2, 4};
  EXPECT_EQ(plan.bucket(0.5), 0u);
  EXPECT_EQ(plan.bucket(1), 1u);
  EXPECT_EQ(plan.bucket(3.9), 2u);
  EXPECT_EQ(plan.bucket(100), 3u);
}

}  // namespace
}  // namespace starling
