#include "worker/tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "conf/load.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::HasSubstr;

StatusOr<v1::TableOptions> table(const std::string& rules) {
  const StatusOr<Job> job =
      load_text("tables:\n  users: {dim: 4, " + rules + "}\n", {.file = "job.yaml"});
  STARLING_RETURN_IF_ERROR(job.status());
  return table_of(job->options.tables.at(0), 1);
}

std::string refusal(const std::string& rules) {
  return std::string(table(rules).status().message());
}

std::string flat(const v1::Rule& rule) {
  std::string out = rule.name();
  for (const v1::NamedValue& value : rule.values()) {
    out += fmt::format(" {}={}", value.name(), value.value());
  }
  return out;
}

TEST(Tables, ABareNumberIsTheRulesMainValue) {
  const auto made = table(
      "optimizer: {adagrad: 0.05}, initializer: {normal: 0.01}, admission: {count: 5}, "
      "eviction: {unseen_days: 30, norm: 0.1, lru: 1000}");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(flat(made->optimizer()), "adagrad lr=0.05");
  EXPECT_EQ(flat(made->initializer()), "normal std=0.01");
  EXPECT_EQ(flat(made->admission()), "count count=5");
  ASSERT_EQ(made->eviction_size(), 3);
  EXPECT_EQ(flat(made->eviction(0)), "unseen_days days=30");
  EXPECT_EQ(flat(made->eviction(1)), "norm threshold=0.1");
  EXPECT_EQ(flat(made->eviction(2)), "lru rows=1000");
}

TEST(Tables, EveryRuleAndValueOfAJobIsOneThatAPsTakes) {
  for (const char* rules :
       {"initializer: zero", "initializer: {constant: 1}",
        "initializer: {uniform: {low: 0, high: 1}}",
        "initializer: {truncated_normal: {mean: 0, std: 1}}",
        "initializer: {xavier: {fan_in: 3, fan_out: 4}}", "admission: always",
        "admission: {count: {count: 3, candidates_max: 100}}",
        "admission: {bloom: {count: 3, keys: 1000, error_rate: 0.01}}",
        "admission: {probability: 0.5}", "admission: {score: {threshold: 1, candidates_max: 9}}",
        "eviction: {score: {threshold: 1, decay: 0.9}}", "eviction: {steps: 100}",
        "eviction: {lfu: {rows: 5000}}",
        "optimizer: {adam: {lr: 0.1, beta1: 0.8, weight_decay: 0.1, clip_norm: 2}}"}) {
    EXPECT_TRUE(table(rules).ok()) << rules << ": " << table(rules).status();
  }
}

TEST(Tables, ARefusalNamesTheLineTheKeyAndWhatIsAllowed) {
  EXPECT_THAT(refusal("optimizer: {adagrd: {lr: 1}}"),
              AllOf(HasSubstr(":2: tables.users.optimizer: \"adagrd\" is not known"),
                    HasSubstr("nearest: adagrad"), HasSubstr("sgd, ")));
  EXPECT_THAT(refusal("optimizer: {adagrad: {rate: 1}}"),
              AllOf(HasSubstr(":2: tables.users.optimizer.adagrad: \"rate\""), HasSubstr("lr, ")));
  EXPECT_THAT(
      refusal("optimizer: {adagrad: {lr: -1}}"),
      AllOf(HasSubstr(":2: tables.users.optimizer"), HasSubstr("lr is -1"), HasSubstr("[0, ")));
  EXPECT_THAT(refusal("admission: {count: {cuont: 2}}"), HasSubstr("nearest: count"));
  EXPECT_THAT(refusal("admission: {count: lots}"), HasSubstr("a number is needed"));
  EXPECT_THAT(refusal("admission: {count: [1, 2]}"), HasSubstr("a map of count, candidates_max"));
  EXPECT_THAT(refusal("admission: {bloom: 3}"), HasSubstr("a map of count, keys, error_rate"));
  EXPECT_THAT(refusal("admission: {bloom: {count: 2, keys: 0}}"), HasSubstr(".keys is 0"));
  EXPECT_THAT(refusal("admission: {always: 1}"), HasSubstr("a map of nothing"));
  EXPECT_THAT(refusal("admission: {always: {x: 1}}"), HasSubstr("takes no values"));
  EXPECT_THAT(refusal("admission: {count: 2, probability: 0.5}"), HasSubstr("one rule"));
  EXPECT_THAT(refusal("eviction: {lru: 5, lfu: 5}"), HasSubstr("tables.users"));
  EXPECT_THAT(refusal("optimizer: {adagrad: {\"\": 1}}"), HasSubstr("is not known"));
}

TEST(Tables, DenseRulesAreCheckedToo) {
  const auto with = [](const std::string& rule) {
    return check_tables(
        load_text("dense: {optimizer: " + rule + "}\n", {.file = "job.yaml"})->options);
  };
  EXPECT_TRUE(with("{adam: 0.001}").ok());
  EXPECT_TRUE(with("sgd").ok());
  EXPECT_THAT(std::string(with("{ftrl: 0.1}").message()),
              AllOf(HasSubstr(":1: dense.optimizer: \"ftrl\""), HasSubstr("adamw")));
  EXPECT_THAT(std::string(with("{adam: {beta1: 2}}").message()),
              AllOf(HasSubstr(":1: dense.optimizer"), HasSubstr("beta1 is 2")));
}

}  // namespace
}  // namespace starling
