#include "data/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace starling {
namespace {

using Row = std::map<std::string, std::string>;

// -1: a column is no number.
double value_of(std::string_view text, const Row& row) {
  const StatusOr<Expression> expression = Expression::parse(text);
  EXPECT_TRUE(expression.ok()) << message_of(expression.status());
  std::vector<std::string_view> values;
  for (const std::string& column : expression->columns()) values.emplace_back(row.at(column));
  double out = 0;
  uint32_t column = 0;
  return expression->evaluate(values, out, column) ? out : -1;
}

TEST(ExpressionTest, NumbersAreComparedAsNumbers) {
  const Row row = {{"rating", "10"}};
  EXPECT_EQ(value_of("rating >= 8", row), 1);
  EXPECT_EQ(value_of("rating<8", row), 0);
  EXPECT_EQ(value_of("rating == 10.0", row), 1);
  EXPECT_EQ(value_of("rating != 10", row), 0);
  EXPECT_EQ(value_of("rating > 10", row), 0);
  EXPECT_EQ(value_of("rating <= 1e1", row), 1);
  EXPECT_EQ(value_of("rating > -3", row), 1);
  EXPECT_EQ(value_of("rating", row), 10);
}

TEST(ExpressionTest, TextIsComparedAsText) {
  const Row row = {{"income", ">50K."}, {"day", "2024-03-01"}};
  EXPECT_EQ(value_of(R"(income in (">50K", ">50K."))", row), 1);
  EXPECT_EQ(value_of(R"(income in ('<=50K'))", row), 0);
  EXPECT_EQ(value_of(R"(income not in ('<=50K'))", row), 1);
  EXPECT_EQ(value_of(R"(day < "2024-10-01")", row), 1);
  EXPECT_EQ(value_of(R"(day = "2024-03-01")", row), 1);
}

TEST(ExpressionTest, ConditionsAreJoined) {
  const Row row = {{"a", "1"}, {"b", "2"}, {"two words", "3"}};
  EXPECT_EQ(value_of("a == 1 and b == 3 or `two words` == 3", row), 1);
  EXPECT_EQ(value_of("a == 1 and (b == 3 or `two words` == 4)", row), 0);
  EXPECT_EQ(value_of("not a == 2 and not (b == 3)", row), 1);
  EXPECT_EQ(value_of("a in (5, 1)", row), 1);
}

TEST(ExpressionTest, AColumnThatIsNoNumberIsTold) {
  EXPECT_EQ(value_of("rating >= 8", {{"rating", "good"}}), -1);
  EXPECT_EQ(value_of("rating", {{"rating", ""}}), -1);
}

TEST(ExpressionTest, EachColumnIsNamedOnce) {
  EXPECT_THAT(Expression::parse("a > 1 and b > 2 and a < 9")->columns(),
              testing::ElementsAre("a", "b"));
}

TEST(ExpressionTest, MistakesAreNamedWithTheirPlace) {
  for (const char* text : {"", "a >=", "a >= 8 )", "(a >= 8", "a in 8", "a in (", "a not 8", "`a",
                           "a == 'x", "and", "a == 1 b"}) {
    EXPECT_EQ(Expression::parse(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(std::string(message_of(Expression::parse("a in 8").status())),
              testing::HasSubstr("expected ( at '8'"));
  EXPECT_FALSE(Expression::parse(std::string(10000, '(')).ok());
}

}  // namespace
}  // namespace starling
