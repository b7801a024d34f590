#include "store/pattern.h"

#include "store/test_tools.h"

namespace starling {
namespace {

TEST(Pattern, WildcardsMatchWhatTheySay) {
  EXPECT_TRUE(matches("*", "anything"));
  EXPECT_TRUE(matches("a*c*e", "abcde"));
  EXPECT_TRUE(matches("a*", "a"));
  EXPECT_FALSE(matches("a*c", "ab"));
  EXPECT_TRUE(matches("a?c", "abc"));
  EXPECT_FALSE(matches("a?c", "ac"));
  EXPECT_FALSE(matches("abc", "abcd"));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_TRUE(matches("", ""));
}

TEST(Pattern, ClassesHaveRangesAndNegation) {
  EXPECT_TRUE(matches("[a-c]x", "bx"));
  EXPECT_FALSE(matches("[a-c]x", "dx"));
  EXPECT_TRUE(matches("[!a-c]x", "dx"));
  EXPECT_TRUE(matches("[^a-c]x", "dx"));
  EXPECT_FALSE(matches("[!a-c]x", "ax"));
  EXPECT_TRUE(matches("[]]", "]"));
  EXPECT_TRUE(matches("[a-]", "-"));
  EXPECT_TRUE(matches("[\\]x]", "]"));
}

TEST(Pattern, OneQuestionMarkIsOneCharacterNotOneByte) {
  EXPECT_TRUE(matches("gr?n", "grün"));
  EXPECT_TRUE(matches("??", "日本"));
  EXPECT_TRUE(matches("[à-ü]", "é"));
  EXPECT_TRUE(matches("?", "\xff"));
  EXPECT_FALSE(matches("\xff", "ÿ"));
}

TEST(Pattern, HiddenNamesAreMatchedByDotsAlone) {
  EXPECT_FALSE(matches("*", ".hidden"));
  EXPECT_FALSE(matches("?hidden", ".hidden"));
  EXPECT_TRUE(matches(".*", ".hidden"));
  EXPECT_TRUE(matches("\\.hidden", ".hidden"));
}

TEST(Pattern, EscapedNamesMatchThemselvesAlone) {
  for (const char* name : {"*", "a?b", "[x]", "back\\slash", "plain"}) {
    EXPECT_TRUE(matches(escape_pattern(name), name)) << name;
    EXPECT_EQ(unescape_pattern(escape_pattern(name)), name);
  }
  EXPECT_FALSE(matches(escape_pattern("*"), "x"));
}

TEST(Pattern, ManyStarsTakeNoMoreThanQuadraticTime) {
  const std::string name(2000, 'a');
  std::string pattern;
  for (int i = 0; i < 500; ++i) pattern += "a*";
  EXPECT_FALSE(matches(pattern + "b", name));
}

TEST(Pattern, BrokenPatternsAreRefused) {
  EXPECT_CODE(check_pattern("a[b"), kInvalidArgument);
  EXPECT_CODE(check_pattern("[]"), kInvalidArgument);
  EXPECT_CODE(check_pattern("a\\"), kInvalidArgument);
  EXPECT_OK(check_pattern("[]]*?\\["));
}

}  // namespace
}  // namespace starling
