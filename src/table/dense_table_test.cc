#include "table/dense_table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace starling {
namespace {

DenseOptions base_options(std::vector<int64_t> shape) {
  DenseOptions options;
  options.name = "fc1.weight";
  options.seed = 3;
  options.shape = std::move(shape);
  options.optimizer = {"sgd", {{"lr", 1}}};
  return options;
}

std::unique_ptr<DenseTable> make(const DenseOptions& options) {
  auto made = DenseTable::make(options);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

std::vector<float> floats(std::span<const float> values) { return {values.begin(), values.end()}; }

TEST(DenseTable, ARangeIsThatPartOfTheWhole) {
  for (const char* rule : {"sgd", "momentum", "adam", "adamw", "adagrad", "paddle_adam",
                           "adam_d2sum", "sum", "summary"}) {
    DenseOptions options = base_options({5, 7});
    options.optimizer = {rule, {}};
    auto whole = make(options);
    options.begin = 10;
    options.end = 23;
    auto part = make(options);
    ASSERT_EQ(part->size(), 13u);
    std::vector<float> gradient(35);
    for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i) * 0.1f - 1;
    for (uint64_t step = 0; step < 3; ++step) {
      ASSERT_TRUE(whole->push(gradient, step).ok());
      ASSERT_TRUE(part->push(std::span(gradient).subspan(10, 13), step).ok());
    }
    EXPECT_EQ(floats(part->weights()), floats(whole->weights().subspan(10, 13))) << rule;
  }
}

// Two trainers push 20 consecutive values 10.0 + 0.1 k at the same time, lr 1.
TEST(DenseTable, TheReservoirSumsOverRanks) {
  auto table = make(base_options({20}));
  const auto first = floats(table->weights());
  std::vector<float> gradient(20);
  for (int k = 0; k < 20; ++k) gradient[k] = 10.0f + 0.1f * static_cast<float>(k);
  ASSERT_TRUE(table->stage(Rank{1}, gradient).ok());
  ASSERT_TRUE(table->stage(Rank{0}, gradient).ok());
  EXPECT_EQ(table->stage(Rank{1}, gradient).code(), StatusCode::kAlreadyExists);
  ASSERT_TRUE(table->apply_staged(Reduction::kSum, 0).ok());
  for (int k = 0; k < 20; ++k) EXPECT_NEAR(table->weights()[k], first[k] - 2 * gradient[k], 1e-5);
  EXPECT_EQ(table->staged(), 0u);
  EXPECT_EQ(table->apply_staged(Reduction::kSum, 1).code(), StatusCode::kFailedPrecondition);
}

TEST(DenseTable, TheReservoirAddsInRankOrder) {
  DenseOptions options = base_options({1});
  options.initializer.kind = "zero";
  const auto sum = [&](const std::vector<int>& order, Reduction reduction) {
    auto table = make(options);
    const float values[] = {1e8f, 3, -1e8f};
    for (const int rank : order) {
      EXPECT_TRUE(table->stage(Rank(rank), std::vector<float>{values[rank]}).ok());
    }
    EXPECT_TRUE(table->apply_staged(reduction, 0).ok());
    return table->weights()[0];
  };
  const float expected = -((1e8f + 3.0f) + -1e8f);
  EXPECT_EQ(sum({0, 1, 2}, Reduction::kSum), expected);
  EXPECT_EQ(sum({2, 1, 0}, Reduction::kSum), expected);
  EXPECT_EQ(sum({1, 2, 0}, Reduction::kMean), expected / 3);
}

TEST(DenseTable, StateComesBackWithRestore) {
  DenseOptions options = base_options({3});
  options.optimizer = {"adam", {}};
  auto one = make(options);
  const std::vector<float> gradient = {1, -2, 3};
  ASSERT_TRUE(one->push(gradient, 0).ok());
  auto two = make(options);
  ASSERT_TRUE(two->restore(one->weights(), one->state()).ok());
  ASSERT_TRUE(one->push(gradient, 1).ok());
  ASSERT_TRUE(two->push(gradient, 1).ok());
  EXPECT_EQ(floats(one->weights()), floats(two->weights()));
  EXPECT_EQ(two->restore(one->weights(), {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(two->set(std::vector<float>{1}).code(), StatusCode::kInvalidArgument);
}

TEST(DenseTable, NonfiniteGradientsAreCountedOrRefused) {
  DenseOptions options = base_options({2});
  const std::vector<float> bad = {1, NAN};
  auto counting = make(options);
  const auto before = floats(counting->weights());
  ASSERT_TRUE(counting->push(bad, 0).ok());
  EXPECT_EQ(counting->nonfinite(), 1u);
  EXPECT_EQ(floats(counting->weights()), before);
  options.refuse_nonfinite = true;
  auto refusing = make(options);
  EXPECT_EQ(refusing->push(bad, 0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refusing->stage(Rank{0}, bad).code(), StatusCode::kInvalidArgument);
}

TEST(DenseTable, ClippingAndDecayApplyToTheWholeVariable) {
  DenseOptions options = base_options({2});
  options.initializer = {"constant", 1};
  options.optimizer.values = {{"lr", 1}, {"clip_norm", 1}, {"weight_decay", 0.5}};
  auto table = make(options);
  ASSERT_TRUE(table->push(std::vector<float>{3, 4}, 0).ok());
  EXPECT_NEAR(table->weights()[0], 1 - 0.6 - 0.5, 1e-6);
  EXPECT_NEAR(table->weights()[1], 1 - 0.8 - 0.5, 1e-6);
}

TEST(DenseTable, BadOptionsAreRefused) {
  const auto refused = [](DenseOptions options, const std::string& part) {
    const auto made = DenseTable::make(options);
    ASSERT_FALSE(made.ok()) << part;
    EXPECT_NE(message_of(made.status()).find(part), std::string_view::npos) << made.status();
  };
  DenseOptions options = base_options({4});
  options.name = "";
  refused(options, "name");
  refused(base_options({-1}), "shape");
  options = base_options({4});
  options.begin = 3;
  options.end = 9;
  refused(options, "[3, 9)");
  options.end = 4;
  options.optimizer.values["clip_norm"] = 1;
  refused(options, "clip_norm");
  options = base_options({4});
  options.optimizer.rule = "ftrl";
  refused(options, "ftrl");
  options = base_options({4});
  options.ranks_max = 0;
  refused(options, "ranks_max");
}

}  // namespace
}  // namespace starling
