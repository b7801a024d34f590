#include "ps/schema.h"

#include <gmock/gmock.h>

#include <limits>

#include "ps/cut_testing.h"

namespace starling {
namespace {

using testing::HasSubstr;

v1::TableOptions plain() { return cut_table("t", rule_of("sgd")); }

struct RuleValue {
  std::string rule;
  std::string value;
  v1::Rule* (*of)(v1::TableOptions&);
};
v1::Rule* admission(v1::TableOptions& table) { return table.mutable_admission(); }
v1::Rule* eviction(v1::TableOptions& table) { return table.add_eviction(); }
v1::Rule* schedule(v1::TableOptions& table) { return table.mutable_schedule(); }
v1::Rule* initializer(v1::TableOptions& table) { return table.mutable_initializer(); }

void expect_refused(const RuleValue& one, double value) {
  v1::TableOptions table = plain();
  *one.of(table) = rule_of(one.rule, {{one.value, value}});
  const Status status = table_options(table, 1).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << one.value << " " << value;
  EXPECT_THAT(std::string(message_of(status)), HasSubstr("." + one.value + " is"));
}

// A cast of such a double is undefined.
TEST(Schema, AValueThatIsNoWholeNumberOfItsRangeIsRefused) {
  const RuleValue wholes[] = {
      {"count", "count", admission},
      {"bloom", "keys", admission},
      {"count", "candidates_max", admission},
      {"unseen_days", "days", eviction},
      {"steps", "steps", eviction},
      {"lru", "rows", eviction},
      {"lfu", "rows", eviction},
      {"constant", "warmup_steps", schedule},
      {"step", "period_steps", schedule},
  };
  for (const RuleValue& one : wholes) {
    for (const double value : {-1.0, 2.7, 1e30, std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN()}) {
      expect_refused(one, value);
    }
  }
}

TEST(Schema, AValueThatIsNotFiniteIsRefused) {
  const RuleValue reals[] = {
      {"bloom", "error_rate", admission}, {"probability", "probability", admission},
      {"score", "threshold", admission},  {"score", "decay", eviction},
      {"score", "threshold", eviction},   {"norm", "threshold", eviction},
      {"step", "factor", schedule},       {"cosine", "floor", schedule},
      {"uniform", "low", initializer},    {"xavier", "fan_in", initializer},
  };
  for (const RuleValue& one : reals) {
    expect_refused(one, std::numeric_limits<double>::infinity());
    expect_refused(one, std::numeric_limits<double>::quiet_NaN());
  }
}

TEST(Schema, TheWholeNumbersOfARuleAreTaken) {
  v1::TableOptions table = plain();
  *table.mutable_admission() =
      rule_of("bloom", {{"count", 3}, {"keys", 0x1p40}, {"candidates_max", 7}});
  *table.add_eviction() = rule_of("steps", {{"steps", 0x1p63}});
  *table.mutable_schedule() = rule_of("step", {{"period_steps", 10}, {"factor", 0.5}});
  const auto options = table_options(table, 1);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->admission.count, 3U);
  EXPECT_EQ(options->admission.expected_keys, uint64_t{1} << 40);
  EXPECT_EQ(options->admission.candidates_max, 7U);
  EXPECT_EQ(options->eviction.idle_steps_max, uint64_t{1} << 63);
  EXPECT_EQ(options->schedule.period_steps, 10U);
  EXPECT_EQ(options->schedule.factor, 0.5);
}

TEST(Schema, ANumberThatAnEnumDoesNotHaveIsRefused) {
  v1::TableOptions table = plain();
  table.set_nan_policy(static_cast<v1::NanPolicy>(7));
  EXPECT_THAT(std::string(message_of(table_options(table, 1).status())),
              HasSubstr("t.nan_policy is 7"));
  table = plain();
  table.set_not_admitted(static_cast<v1::NotAdmitted>(7));
  EXPECT_THAT(std::string(message_of(table_options(table, 1).status())),
              HasSubstr("t.not_admitted is 7"));
  v1::DenseOptions variable;
  variable.set_name("w");
  variable.set_reduce(static_cast<v1::Reduce>(7));
  EXPECT_THAT(std::string(message_of(dense_options(variable, 1).status())),
              HasSubstr("w.reduce is 7"));
  variable.set_reduce(v1::REDUCE_SUM);
  variable.set_nan_policy(static_cast<v1::NanPolicy>(7));
  EXPECT_THAT(std::string(message_of(dense_options(variable, 1).status())),
              HasSubstr("w.nan_policy is 7"));
}

TEST(Schema, ASecondPartLeavesOneWeightToTheFirstAndStartsAsTheTableDoes) {
  v1::TableOptions table = plain();
  table.mutable_second()->set_first_dim(1);
  EXPECT_TRUE(table_options(table, 1).ok());
  table.mutable_second()->set_first_dim(2);
  EXPECT_THAT(std::string(message_of(table_options(table, 1).status())), HasSubstr("first_dim"));
  table.mutable_second()->clear_first_dim();
  *table.mutable_second()->mutable_initializer() = rule_of("zero");
  EXPECT_THAT(std::string(message_of(table_options(table, 1).status())), HasSubstr("initializer"));
}

TEST(Schema, AScheduleThatIsOnlyAWarmUpIsConstant) {
  v1::TableOptions table = plain();
  *table.mutable_schedule() = rule_of("warmup", {{"warmup_steps", 100}});
  const auto options = table_options(table, 1);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->schedule.kind, "constant");
  EXPECT_EQ(options->schedule.warmup_steps, 100U);
}

TEST(Schema, AnUnknownValueIsRefusedByName) {
  v1::TableOptions table = plain();
  *table.mutable_admission() = rule_of("count", {{"number", 3}});
  EXPECT_EQ(message_of(table_options(table, 1).status()), "t.admission: unknown value 'number'");
}

}  // namespace
}  // namespace starling
