#include "table/rules.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/rng.h"
#include "base/sanitized.h"
#include "table/rules_oracle.h"

namespace starling {
namespace {

std::vector<float> ramp(size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

struct Stepped {
  std::vector<float> w;
  std::vector<float> state;
};

RuleSettings rule_of(const std::string& rule, const std::map<std::string, double>& values,
                     RuleUse use = RuleUse::kSparse) {
  auto made = make_rule({rule, values}, use, "test");
  EXPECT_TRUE(made.ok()) << made.status();
  return *made;
}

Stepped run(const RuleSettings& rule, std::vector<float> w, const std::vector<float>& g, int steps,
            float scale = 1) {
  Stepped row{std::move(w), std::vector<float>(rule.ops->state_floats(g.size()))};
  start_state(rule, g.size(), row.state.data());
  std::vector<float> scratch(g.size());
  for (int i = 0; i < steps; ++i) {
    float* weights = row.w.data();
    float* state = row.state.data();
    const float* gradient = g.data();
    rule.ops->step({&rule, static_cast<float>(rule.rate()), g.size(), 1, &weights, &state,
                    &gradient, &scale, scratch.data()});
  }
  return row;
}

// dim 10, lr 0.1, w = 0, g = 1..10, bounds +-10.
Stepped golden(const std::string& name, std::map<std::string, double> values, int steps,
               float w = 0) {
  const bool is_ftrl = name == "ftrl";
  if (!is_ftrl) values.emplace("lr", 0.1);
  values.emplace("weight_min", -10);
  values.emplace("weight_max", 10);
  return run(rule_of(name, values), std::vector<float>(10, w), ramp(10), steps);
}

void expect_three(const Stepped& row, float first, float fifth, float tenth, double relative) {
  EXPECT_NEAR(row.w[0], first, std::abs(first) * relative);
  EXPECT_NEAR(row.w[4], fifth, std::abs(fifth) * relative);
  EXPECT_NEAR(row.w[9], tenth, std::abs(tenth) * relative);
}

int ulps(float a, float b) {
  return std::abs(std::bit_cast<int32_t>(a) - std::bit_cast<int32_t>(b));
}

TEST(RuleGolden, SgdStepsByTheGradient) {
  const Stepped row = golden("sgd", {}, 1);
  for (int i = 0; i < 10; ++i) EXPECT_LE(ulps(row.w[i], -0.1f * static_cast<float>(i + 1)), 1);
}

TEST(RuleGolden, MomentumGathersSpeed) {
  expect_three(golden("momentum", {}, 1), -0.1f, -0.5f, -1.0f, 2e-6);
  expect_three(golden("momentum", {}, 2), -0.29f, -1.45f, -2.9f, 2e-6);
}

TEST(RuleGolden, AdagradDividesByTheRootOfSquares) {
  expect_three(golden("adagrad", {}, 1), -0.1f, -0.1f, -0.1f, 2e-6);
  expect_three(golden("adagrad", {}, 2), -0.170710683f, -0.170710683f, -0.170710683f, 2e-6);
}

TEST(RuleGolden, RowwiseAdagradKeepsOneSumPerRow) {
  const Stepped one = golden("rowwise_adagrad", {}, 1);
  expect_three(one, -0.0161164608f, -0.0805822983f, -0.161164597f, 2e-6);
  EXPECT_EQ(one.state, std::vector<float>{38.5f});
  const Stepped two = golden("rowwise_adagrad", {}, 2);
  expect_three(two, -0.0275125187f, -0.137562588f, -0.275125176f, 2e-6);
  EXPECT_EQ(two.state, std::vector<float>{77.0f});
}

TEST(RuleGolden, AdamEqualsTorch) {
  expect_three(golden("adam", {}, 1), -0.0999999866f, -0.0999999940f, -0.0999999940f, 2e-6);
  expect_three(golden("adam", {}, 2), -0.199999988f, -0.199999988f, -0.199999988f, 2e-6);
  EXPECT_EQ(golden("adam", {}, 2).state.back(), 2.0f);
}

TEST(RuleGolden, AdamwDecaysTheWeightFirst) {
  expect_three(golden("adamw", {}, 1, 1), 0.899000049f, 0.899000049f, 0.899000049f, 2e-6);
  expect_three(golden("adamw", {}, 2, 1), 0.798101008f, 0.798101068f, 0.798101068f, 2e-6);
}

TEST(RuleGolden, FtrlStaysAtZeroBelowL1) {
  const std::map<std::string, double> values = {{"alpha", 0.05}, {"beta", 1}, {"l1", 1}, {"l2", 1}};
  const Stepped one = golden("ftrl", values, 1);
  EXPECT_EQ(one.w[0], 0.0f);
  expect_three(one, 0, -0.0330578499f, -0.0407239832f, 2e-6);
  expect_three(golden("ftrl", values, 2), -0.0202904493f, -0.0638419762f, -0.0736357495f, 4e-6);
}

TEST(RuleGolden, PaddleAdagradScalesByShow) {
  const Stepped row = golden("paddle_adagrad", {{"initial", 0.2}}, 1);
  for (int i = 0; i < 10; ++i) EXPECT_LE(ulps(row.w[i], -0.1f * static_cast<float>(i + 1)), 1);
  EXPECT_EQ(row.state[0], 38.5f);
  const Stepped shown = run(rule_of("paddle_adagrad", {}), {0, 0}, {2, 4}, 1, 2);
  EXPECT_LE(ulps(shown.w[0], -0.05f), 1);
  EXPECT_LE(ulps(shown.w[1], -0.1f), 1);
  EXPECT_EQ(shown.state[0], 2.5f);
}

TEST(RuleGolden, PaddleAdamMatchesItsPublishedTest) {
  const Stepped row = golden("paddle_adam", {}, 1);
  const float w[] = {-0.0999999642f, -0.099999994f, -0.099999994f, -0.099999994f, -0.099999994f,
                     -0.099999994f,  -0.099999994f, -0.100000001f, -0.100000009f, -0.100000001f};
  const float m[] = {0.100000024f, 0.200000048f, 0.300000072f, 0.400000095f, 0.500000119f,
                     0.600000143f, 0.700000167f, 0.800000191f, 0.900000215f, 1.00000024f};
  const float v[] = {0.000999987125f, 0.0039999485f, 0.00899988413f, 0.015999794f,  0.0249996781f,
                     0.0359995365f,   0.0489993691f, 0.063999176f,   0.0809989572f, 0.0999987125f};
  for (int i = 0; i < 10; ++i) {
    EXPECT_LE(ulps(row.w[i], w[i]), 4) << i;
    EXPECT_LE(ulps(row.state[i], m[i]), 4) << i;
    EXPECT_LE(ulps(row.state[10 + i], v[i]), 4) << i;
  }
  EXPECT_LE(ulps(row.state[20], 0.809999943f), 4);
  EXPECT_LE(ulps(row.state[21], 0.998001039f), 4);
}

TEST(RuleGolden, PaddleStdAdagradKeepsASumPerWeight) {
  const Stepped row = golden("paddle_std_adagrad", {{"initial", 0.2}}, 1);
  for (int i = 0; i < 10; ++i) {
    EXPECT_LE(ulps(row.w[i], -0.1f * static_cast<float>(i + 1)), 1);
    EXPECT_EQ(row.state[i], static_cast<float>((i + 1) * (i + 1)));
  }
}

TEST(RuleGolden, PaddleAdagradV2AddsFirst) {
  const Stepped row = golden("paddle_adagrad_v2", {}, 1);
  EXPECT_NEAR(row.w[0], -0.0161164589f, 1e-7 * 0.3);
  EXPECT_NEAR(row.w[9], -0.161164597f, 1e-7 * 3);
  EXPECT_EQ(row.state[0], 38.5f);
}

TEST(RuleGolden, PaddleSharedAdamSharesTheMoments) {
  const Stepped row = golden("paddle_shared_adam", {}, 1);
  EXPECT_LE(ulps(row.w[0], -0.0999999717f), 4);
  EXPECT_LE(ulps(row.w[9], -0.100000001f), 4);
  EXPECT_LE(ulps(row.state[0], 0.550000131f), 4);
  EXPECT_LE(ulps(row.state[1], 0.0384995043f), 4);
}

TEST(RuleGolden, DensePaddleAdamMovesThePowersFirst) {
  const RuleSettings rule = rule_of("paddle_adam", {{"lr", 0.1}}, RuleUse::kDense);
  EXPECT_LE(ulps(run(rule, {0}, {1}, 1).w[0], -0.0744129345f), 4);
}

TEST(RuleGolden, SumAddsAndSummaryDecays) {
  for (const RuleUse use : {RuleUse::kSparse, RuleUse::kDense}) {
    EXPECT_EQ(run(rule_of("sum", {}, use), {1, 2}, {3, 4}, 2).w, (std::vector<float>{7, 10}));
  }
  EXPECT_EQ(run(rule_of("summary", {}, RuleUse::kDense), {2}, {3}, 1).w[0], 2 * 0.999999f + 3);
}

TEST(Rules, AWeightOutsideTheBoundsIsClampedAndNanBecomesTheLowest) {
  const RuleSettings rule = rule_of("sgd", {{"lr", 1}, {"weight_min", -2}, {"weight_max", 3}});
  const Stepped row = run(rule, {0, 0, NAN, 1}, {5, -5, 0, 0}, 1);
  EXPECT_EQ(row.w, (std::vector<float>{-2, 3, -2, 1}));
}

TEST(Rules, WeightDecayAddsToTheGradient) {
  const RuleSettings rule = rule_of("sgd", {{"lr", 0.5}, {"weight_decay", 0.25}});
  EXPECT_EQ(run(rule, {4}, {1}, 1).w[0], 4 - 0.5f * (1 + 0.25f * 4));
}

TEST(Rules, UnknownNamesAndBadValuesAreRefusedByName) {
  const auto refused = [](const OptimizerOptions& options, RuleUse use, const std::string& part) {
    const auto made = make_rule(options, use, "table 'x': optimizer");
    ASSERT_FALSE(made.ok()) << part;
    EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(message_of(made.status()).find(part), std::string_view::npos) << made.status();
  };
  refused({"adagrda", {}}, RuleUse::kSparse, "adagrda");
  refused({"summary", {}}, RuleUse::kSparse, "summary");
  refused({"rowwise_adagrad", {}}, RuleUse::kDense, "rowwise_adagrad");
  refused({"sgd", {{"lr", -0.1}}}, RuleUse::kSparse, "optimizer.lr");
  refused({"sgd", {{"lr", NAN}}}, RuleUse::kSparse, "optimizer.lr");
  refused({"sgd", {{"momentum", 0.9}}}, RuleUse::kSparse, "momentum");
  refused({"adam", {{"beta1", 1}}}, RuleUse::kSparse, "beta1");
  refused({"sgd", {{"weight_min", 1}, {"weight_max", 0}}}, RuleUse::kSparse, "weight_min");
  refused({"sgd", {{"clip_norm", -1}}}, RuleUse::kSparse, "clip_norm");
}

std::vector<RuleOps> all_rules() {
  std::vector<RuleOps> all;
  for (const std::span<const RuleOps> family : rules()) {
    all.insert(all.end(), family.begin(), family.end());
  }
  return all;
}

// Every rule, several steps, odd lengths: vector code of every target against the plain loops of
// the oracle.
TEST(Rules, EveryVectorTargetGivesTheBitsOfTheScalarOracle) {
  size_t compared = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    for (const RuleOps& ops : all_rules()) {
      const RuleUse use = ops.sparse ? RuleUse::kSparse : RuleUse::kDense;
      const auto made = make_rule({ops.name, {}}, use, "test");
      ASSERT_TRUE(made.ok());
      for (const size_t n : {1, 3, 8, 15, 16, 17, 31, 64, 100}) {
        Rng rng(3, n, 5);
        Stepped ours{std::vector<float>(n), std::vector<float>(ops.state_floats(n))};
        start_state(*made, n, ours.state.data());
        for (float& w : ours.w) w = static_cast<float>(rng.normal());
        OracleRow theirs{ours.w, ours.state};
        std::vector<float> scratch(n);
        for (int step = 0; step < 4; ++step) {
          std::vector<float> g(n);
          for (float& x : g) x = static_cast<float>(rng.normal());
          float* w = ours.w.data();
          float* state = ours.state.data();
          const float* gradient = g.data();
          const float scale = 1 + static_cast<float>(step % 3);
          const auto rate = static_cast<float>(made->rate());
          ops.step({&*made, rate, n, 1, &w, &state, &gradient, &scale, scratch.data()});
          oracle_step(oracle_name(ops), *made, rate, g, scale, theirs);
          for (size_t i = 0; i < n; ++i) {
            ASSERT_EQ(std::bit_cast<uint32_t>(ours.w[i]), std::bit_cast<uint32_t>(theirs.w[i]))
                << ops.name << " n " << n << " step " << step << " weight " << i << " target "
                << target;
          }
          for (size_t i = 0; i < ours.state.size(); ++i) {
            ASSERT_EQ(std::bit_cast<uint32_t>(ours.state[i]),
                      std::bit_cast<uint32_t>(theirs.state[i]))
                << ops.name << " n " << n << " step " << step << " state " << i << " target "
                << target;
          }
          ++compared;
        }
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  const size_t targets = kSanitized ? 1 : 2;  // at least
  EXPECT_GE(compared, targets * 16 * 9 * 4);
}

}  // namespace
}  // namespace starling
