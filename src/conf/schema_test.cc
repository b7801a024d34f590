#include "conf/schema.h"

#include <gtest/gtest.h>

#include "conf/yaml.h"

namespace starling {
namespace {

struct Thing {
  bool on = false;
  int64_t count = 5;
  int64_t wait_ms = 100;
  double rate = 0.5;
  std::string kind = "sum";
  std::vector<std::string> files;
  Choice rule;
  std::vector<Choice> rules;
  struct Inner {
    int64_t size = 1;
  } inner;
};

Schema schema_of(Thing& thing) {
  Schema inner;
  inner.add("size", &thing.inner.size, WholeRule{.least = 1, .unit = Unit::kBytes, .doc = "size"});
  Schema schema;
  schema.add("on", &thing.on, "on");
  schema.add("count", &thing.count,
             WholeRule{.least = 1, .most = 64, .may_be_inf = true, .doc = "count"});
  schema.add("wait_ms", &thing.wait_ms,
             WholeRule{.most = 1000, .unit = Unit::kMilliseconds, .doc = "wait"});
  schema.add("rate", &thing.rate, RealRule{.least = 0, .most = 1, .doc = "rate"});
  schema.add("kind", &thing.kind, TextRule{.one_of = {"sum", "mean"}, .doc = "kind"});
  schema.add("files", &thing.files, "files");
  schema.add("rule", &thing.rule, "rule");
  schema.add("rules", &thing.rules, "rules");
  schema.add_section("inner", std::move(inner));
  return schema;
}

Status bind_text(const std::string& yaml, Thing& thing, std::vector<Setting>* settings = nullptr) {
  const StatusOr<ConfValue> value =
      parse_yaml(yaml, [](int line) { return Origin{fmt::format("f:{}", line)}; });
  if (!value.ok()) return value.status();
  return schema_of(thing).bind(*value, "", settings);
}

std::string error_of(const std::string& yaml) {
  Thing thing;
  return std::string(message_of(bind_text(yaml, thing)));
}

TEST(Schema, GivenKeysAreWrittenAndOthersKeepTheirDefault) {
  Thing thing;
  const Status status = bind_text(
      "on: yes\ncount: inf\nwait_ms: 1s\nfiles: [a, b]\nrule: {adam: {lr: 0.1}}\n"
      "rules: {count: 2, score: {least: 1}}\ninner: {size: 2KiB}\n",
      thing);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(thing.on);
  EXPECT_EQ(thing.count, kInfinite);
  EXPECT_EQ(thing.wait_ms, 1000);
  EXPECT_EQ(thing.rate, 0.5);
  EXPECT_EQ(thing.files, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(thing.rule.name, "adam");
  EXPECT_EQ(thing.rule.params.flow(), "{lr: 0.1}");
  ASSERT_EQ(thing.rules.size(), 2);
  EXPECT_EQ(thing.rules[0].name, "count");
  EXPECT_EQ(thing.rules[0].params.text, "2");
  EXPECT_EQ(thing.inner.size, 2048);
}

TEST(Schema, OneTextIsAListOfOne) {
  Thing thing;
  ASSERT_TRUE(bind_text("files: a\nrule: adam\n", thing).ok());
  EXPECT_EQ(thing.files, std::vector<std::string>{"a"});
  EXPECT_EQ(thing.rule.name, "adam");
}

TEST(Schema, AnUnknownKeyNamesTheNearestAndItsRange) {
  EXPECT_EQ(error_of("\ncuont: 3\n"), "f:2: cuont: unknown key; nearest: count (1 to 64 or inf)");
  EXPECT_EQ(error_of("inner:\n  sise: 3\n"),
            "f:2: inner.sise: unknown key; nearest: inner.size (at least 1B)");
  EXPECT_EQ(error_of("size: 3\n"), "f:1: size: unknown key; nearest: inner.size (at least 1B)");
}

TEST(Schema, AWrongTypeNamesTheRange) {
  EXPECT_EQ(error_of("count: many\n"),
            "f:1: count: \"many\" is not a whole number; allowed: 1 to 64 or inf");
  EXPECT_EQ(error_of("count: \"3\"\n"),
            "f:1: count: \"3\" is not a whole number; allowed: 1 to 64 or inf");
  EXPECT_EQ(error_of("count: [3]\n"),
            "f:1: count: a list is not a whole number; allowed: 1 to 64 or inf");
  EXPECT_EQ(error_of("count:\n"),
            "f:1: count: nothing is not a whole number; allowed: 1 to 64 or inf");
  EXPECT_EQ(error_of("wait_ms: 1500us\n"),
            "f:1: wait_ms: \"1500us\" is not a whole number of ms; allowed: 0 to 1000ms");
  EXPECT_EQ(error_of("rate: fast\n"), "f:1: rate: \"fast\" is not a number; allowed: 0 to 1");
  EXPECT_EQ(error_of("on: 2\n"), "f:1: on: \"2\" is not true or false");
  EXPECT_EQ(error_of("kind: {a: b}\n"), "f:1: kind: a map is not text; allowed: sum, mean");
  EXPECT_EQ(error_of("files: [a, [b]]\n"), "f:1: files.1: a list is not text");
  EXPECT_EQ(error_of("inner: 3\n"), "f:1: inner: \"3\" is not a map");
  EXPECT_EQ(error_of("rule: [adam]\n"),
            "f:1: rule: a list is not a rule; allowed: one rule, such as {name: {key: value}}");
  EXPECT_EQ(error_of("rules: [adam]\n"), "f:1: rules: a list is not a rule or a map of rules");
  EXPECT_EQ(error_of("- a\n"), "f:1: a list is not a map");
}

TEST(Schema, AValueOutOfBoundsNamesTheRange) {
  EXPECT_EQ(error_of("count: 0\n"), "f:1: count: 0 is out of range; allowed: 1 to 64 or inf");
  EXPECT_EQ(error_of("count: 65\n"), "f:1: count: 65 is out of range; allowed: 1 to 64 or inf");
  EXPECT_EQ(error_of("wait_ms: 2s\n"), "f:1: wait_ms: 2s is out of range; allowed: 0 to 1000ms");
  EXPECT_EQ(error_of("wait_ms: inf\n"),
            "f:1: wait_ms: \"inf\" is not a whole number of ms; allowed: 0 to 1000ms");
  EXPECT_EQ(error_of("rate: 1.5\n"), "f:1: rate: 1.5 is out of range; allowed: 0 to 1");
  EXPECT_EQ(error_of("rate: inf\n"), "f:1: rate: inf is out of range; allowed: 0 to 1");
}

TEST(Schema, AnUnknownWordNamesTheNearest) {
  EXPECT_EQ(error_of("kind: maen\n"),
            "f:1: kind: \"maen\" is not known; allowed: sum, mean; nearest: mean");
}

TEST(Schema, TwoRulesWhereOneIsWantedAreRefused) {
  EXPECT_EQ(error_of("rule: {adam: {}, sgd: {}}\n"),
            "f:1: rule: \"adam\" and \"sgd\" are given; allowed: one rule");
}

TEST(Schema, AllProblemsAreToldAtOnce) {
  EXPECT_EQ(error_of("on: maybe\ncount: 0\n"),
            "f:1: on: \"maybe\" is not true or false\nf:2: count: 0 is out of range; allowed: 1 to "
            "64 or inf");
}

TEST(Schema, ARequiredKeyThatIsMissingNamesItsMap) {
  int64_t dim = 0;
  Schema schema;
  schema.add("dim", &dim, WholeRule{.least = 1, .most = 64, .required = true, .doc = "dim"});
  const ConfValue map{.kind = ConfValue::Kind::kMap, .origin = {"f:7"}};
  EXPECT_EQ(message_of(schema.bind(map, "tables.users")),
            "f:7: tables.users.dim: is missing; allowed: 1 to 64");
}

TEST(Schema, SettingsTellEveryValueAndItsOrigin) {
  Thing thing;
  std::vector<Setting> settings;
  ASSERT_TRUE(bind_text("on: true\nrule: {adam: {lr: 0.1, eps: 1e-8}}\n", thing, &settings).ok());
  std::string told;
  for (const Setting& setting : settings) {
    told += fmt::format("{}={} {}\n", setting.path, setting.value, setting.origin.text);
  }
  EXPECT_EQ(told,
            "on=true f:1\ncount=5 default\nwait_ms=100ms default\nrate=0.5 default\nkind=sum "
            "default\nfiles=[] default\n"
            "rule.adam.lr=0.1 f:2\nrule.adam.eps=1e-8 f:2\ninner.size=1B default\n");
}

TEST(Schema, ASwapOfNeighboursIsOneEdit) {
  EXPECT_EQ(nearest("ab", {"xb", "ba"}), "xb") << "the first of two that are equally near";
  EXPECT_EQ(nearest("trian", {"brain", "train"}), "train");
  EXPECT_EQ(nearest("anything", {}), "");
}

}  // namespace
}  // namespace starling
