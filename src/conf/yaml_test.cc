#include "conf/yaml.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

Origin line(int number) { return {fmt::format("f:{}", number)}; }

std::string error_of(const std::string& text) {
  const StatusOr<ConfValue> value = parse_yaml(text, line);
  return value.ok() ? "no error" : std::string(message_of(value.status()));
}

TEST(Yaml, ValuesKnowTheirLine) {
  const StatusOr<ConfValue> value = parse_yaml("a: 1\nb:\n  - x\n  - {c: 'two words'}\n", line);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->flow(), "{a: 1, b: [x, {c: \"two words\"}]}");
  EXPECT_EQ(value->find("a")->origin.text, "f:1");
  EXPECT_EQ(value->find("b")->items[0].origin.text, "f:3");
  EXPECT_EQ(value->find("b")->items[1].find("c")->origin.text, "f:4");
}

TEST(Yaml, QuotedNumbersAreText) {
  const StatusOr<ConfValue> value = parse_yaml("a: \"1\"\nb: 1\n", line);
  ASSERT_TRUE(value.ok());
  EXPECT_TRUE(value->find("a")->quoted);
  EXPECT_FALSE(value->find("b")->quoted);
}

TEST(Yaml, AnEmptyDocumentIsNull) {
  for (const char* text : {"", "\n", "# only a comment\n", "~"}) {
    const StatusOr<ConfValue> value = parse_yaml(text, line);
    ASSERT_TRUE(value.ok()) << text;
    EXPECT_EQ(value->kind, ConfValue::Kind::kNull) << text;
  }
}

TEST(Yaml, AKeyGivenTwiceIsRefusedWithBothLines) {
  EXPECT_EQ(error_of("a: 1\nb: 2\na: 3\n"), "f:3: a: given twice, first at f:1");
  EXPECT_EQ(error_of("x: {dim: 8, dim: 9}\n"), "f:1: dim: given twice, first at f:1");
}

TEST(Yaml, BadYamlNamesItsLine) {
  EXPECT_EQ(error_of("a: 1\nb: [1, 2\n").substr(0, 14), "f:3: bad YAML:");
  EXPECT_EQ(error_of("a: 1\n\tb: 2\n").substr(0, 14), "f:2: bad YAML:");
}

TEST(Yaml, AnchorsAreRefusedBecauseTheyUnfoldToAnySize) {
  EXPECT_EQ(error_of("a: &x [1]\nb: *x\n"), "f:1: anchors and aliases (& and *) are not read");
}

TEST(Yaml, AKeyIsPlainText) {
  EXPECT_EQ(error_of("? [1, 2]\n: 3\n"), "f:1: a list cannot be a key");
}

TEST(Yaml, DepthIsBounded) {
  const std::string deep = std::string(65, '[') + std::string(65, ']');
  EXPECT_EQ(error_of("a: " + deep), "f:1: more than 64 levels");
  EXPECT_NE(error_of(std::string(100'000, '[')), "no error");
}

TEST(Yaml, ASecondDocumentIsRefused) {
  EXPECT_EQ(error_of("a: 1\n---\nb: 2\n"), "f:1: more than one document");
}

TEST(Value, PutMakesTheMapsOnTheWay) {
  ConfValue root;
  ASSERT_TRUE(put(root, "a.b.c", {.kind = ConfValue::Kind::kScalar, .text = "1"}).ok());
  ASSERT_TRUE(put(root, "a.d", {.kind = ConfValue::Kind::kScalar, .text = "2"}).ok());
  ASSERT_TRUE(put(root, "a.b.c", {.kind = ConfValue::Kind::kScalar, .text = "3"}).ok());
  EXPECT_EQ(root.flow(), "{a: {b: {c: 3}, d: 2}}");
}

TEST(Value, PutReachesIntoLists) {
  StatusOr<ConfValue> root = parse_yaml("fields: [{name: x}, {name: y}]", line);
  ASSERT_TRUE(put(*root, "fields.1.name", {.kind = ConfValue::Kind::kScalar, .text = "z"}).ok());
  EXPECT_EQ(root->flow(), "{fields: [{name: x}, {name: z}]}");
  const Status status = put(*root, "fields.2.name", {.origin = {"--set fields.2.name"}});
  EXPECT_EQ(
      message_of(status),
      "--set fields.2.name: fields.2.name: there is no item \"2\", the list has 2, counted from 0");
}

TEST(Value, PutRefusesWhatIsNoPath) {
  ConfValue root;
  for (const char* path : {"", ".", "a.", ".a", "a..b", "a b", "a[0]"}) {
    EXPECT_EQ(put(root, path, {}).code(), StatusCode::kInvalidArgument) << path;
  }
}

TEST(Value, FlowTextReadsBackAsTheSameValue) {
  const ConfValue value{
      .kind = ConfValue::Kind::kScalar, .text = "a \"b\": {c}\n\\", .quoted = true};
  const StatusOr<ConfValue> back = parse_yaml(value.flow(), line);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->text, value.text);
}

}  // namespace
}  // namespace starling
