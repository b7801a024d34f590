#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/rng.h"
#include "trainer/model.h"

namespace starling {
namespace {

using testing::HasSubstr;

constexpr uint32_t kSamples = 5;

Choice choice(const std::string& name) { return {.name = name, .origin = {.text = "job.yaml:1"}}; }

ModelShape shape_of(const std::string& model) {
  const uint32_t dim = model == "lr" ? 1 : 4;
  return {.fields = {{"a", dim}, {"b", dim}, {"c", dim}}, .dense = 2, .labels = 1};
}

// A model with memory and inputs of its own.
struct Trial {
  std::unique_ptr<Model> model;
  std::vector<std::vector<float>> values, gradients;
  std::vector<float> pooled, pooled_gradient, dense, labels, predictions;

  explicit Trial(const std::string& name) {
    const ModelShape shape = shape_of(name);
    auto made = make_model(choice(name), shape);
    EXPECT_TRUE(made.ok()) << made.status();
    model = *std::move(made);
    Rng rng(11, 0, 0);
    std::vector<std::span<float>> bound;
    for (const ModelVariable& variable : model->variables()) {
      std::vector<float>& one = values.emplace_back(variable.elements());
      const double bound = variable.bound > 0 ? variable.bound : 0.1;
      for (float& x : one) x = static_cast<float>(bound * (2 * rng.uniform() - 1));
      gradients.emplace_back(variable.elements());
    }
    for (std::vector<float>& one : values) bound.emplace_back(one);
    model->bind(bound);
    for (size_t i = 0; i < kSamples * shape.width(); ++i) {
      pooled.push_back(static_cast<float>(rng.normal()));
    }
    for (size_t i = 0; i < kSamples * shape.dense; ++i) {
      dense.push_back(static_cast<float>(rng.normal()));
    }
    for (uint32_t i = 0; i < kSamples; ++i) labels.push_back(static_cast<float>(i % 2));
    pooled_gradient.resize(pooled.size());
    predictions.resize(kSamples);
  }
  double loss() {
    ModelOutput out{.predictions = predictions, .pooled = pooled_gradient};
    for (std::vector<float>& one : gradients) out.variables.emplace_back(one);
    const StatusOr<double> loss = model->train(input(), out);
    EXPECT_TRUE(loss.ok()) << loss.status();
    return *loss;
  }
  ModelInput input() const {
    return {.samples = kSamples, .pooled = pooled, .dense = dense, .labels = labels};
  }
};

class Models : public testing::TestWithParam<std::string> {};

TEST_P(Models, GradientsAreTheSlopesOfTheLoss) {
  Trial trial(GetParam());
  const auto expect_slope = [&](float& x, float gradient) {
    // Small, so that few units of a layer turn on or off on the way.
    constexpr float kStep = 2e-3F;
    const float before = x;
    x = before + kStep;
    const double above = trial.loss();
    x = before - kStep;
    const double below = trial.loss();
    x = before;
    EXPECT_NEAR((above - below) / (2 * kStep), gradient, 1e-3 + 0.02 * std::abs(gradient));
  };
  trial.loss();
  const std::vector<float> pooled = trial.pooled_gradient;
  const std::vector<std::vector<float>> variables = trial.gradients;
  for (size_t i = 0; i < pooled.size(); i += 3) expect_slope(trial.pooled[i], pooled[i]);
  for (size_t v = 0; v < variables.size(); ++v) {
    const size_t stride = std::max<size_t>(1, variables[v].size() / 4);
    for (size_t i = 0; i < variables[v].size(); i += stride) {
      expect_slope(trial.values[v][i], variables[v][i]);
    }
  }
}

TEST_P(Models, PredictsWhatItTrainedOn) {
  Trial trial(GetParam());
  const double loss = trial.loss();
  std::vector<float> predictions(kSamples);
  ASSERT_EQ(trial.model->predict(trial.input(), predictions), absl::OkStatus());
  double expected = 0;
  for (uint32_t i = 0; i < kSamples; ++i) {
    EXPECT_FLOAT_EQ(predictions[i], trial.predictions[i]);
    expected -= std::log(trial.labels[i] > 0 ? predictions[i] : 1 - predictions[i]) / kSamples;
  }
  EXPECT_NEAR(loss, expected, 1e-5);
}

TEST_P(Models, ASavedNetworkIsAModelThatPredictsTheSame) {
  Trial trial(GetParam());
  const std::string path = testing::TempDir() + "saved_" + GetParam() + ".pt";
  ASSERT_EQ(trial.model->save(path), absl::OkStatus());
  Choice saved = choice("torchscript");
  saved.params.text = path;
  const auto made = make_model(saved, shape_of(GetParam()));
  std::filesystem::remove(path);
  ASSERT_TRUE(made.ok()) << made.status();
  std::vector<std::vector<float>> values;
  std::vector<std::span<float>> bound;
  for (const ModelVariable& variable : (*made)->variables()) values.push_back(variable.initial);
  bound.assign(values.begin(), values.end());
  (*made)->bind(bound);
  std::vector<float> mine(kSamples), theirs(kSamples);
  ASSERT_EQ(trial.model->predict(trial.input(), mine), absl::OkStatus());
  ASSERT_EQ((*made)->predict(trial.input(), theirs), absl::OkStatus());
  for (uint32_t i = 0; i < kSamples; ++i) EXPECT_NEAR(theirs[i], mine[i], 1e-6);
}

// Those that take pooled fields alone; losses_test.cc has the others.
std::vector<std::string> pooled_models() {
  std::vector<std::string> names = model_names();
  std::erase(names, "din");
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Models, testing::ValuesIn(pooled_models()),
                         [](const auto& info) { return info.param; });

TEST(Model, WhatDoesNotFitIsNamed) {
  const auto refused = [](Choice one, const ModelShape& shape) {
    return std::string(make_model(one, shape).status().message());
  };
  EXPECT_THAT(refused(choice("deepfn"), shape_of("deepfm")), HasSubstr("'deepfm'"));
  EXPECT_THAT(refused(choice("lr"), shape_of("fm")), HasSubstr("'a' has 4"));
  ModelShape sequence = shape_of("fm");
  sequence.fields[2].is_sequence = true;
  EXPECT_THAT(refused(choice("fm"), sequence), HasSubstr("'c' needs pooling"));
  ModelShape uneven = shape_of("fm");
  uneven.fields[1].dim = 6;
  EXPECT_THAT(refused(choice("fm"), uneven), HasSubstr("'b' 6"));
  Choice wrong = choice("ctr_dnn");
  wrong.params.members.push_back({.key = "hiden", .value = {.text = "1"}});
  EXPECT_THAT(refused(wrong, shape_of("ctr_dnn")), HasSubstr("no 'hiden'; it has: hidden"));
}

}  // namespace
}  // namespace starling
