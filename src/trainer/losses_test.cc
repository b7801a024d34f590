#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/rng.h"
#include "trainer/model.h"

namespace starling {
namespace {

constexpr uint32_t kSamples = 4;

// Layers over one pooled field, or din over a target and a history of 0 to 3 keys.
struct Trial {
  std::unique_ptr<Model> model;
  ModelShape shape;
  std::vector<std::vector<float>> values, gradients;
  std::vector<float> pooled, pooled_gradient, labels, weights, predictions, sequence,
      sequence_gradient;
  std::vector<uint32_t> lengths;

  Trial(ModelShape told, bool is_din) : shape(std::move(told)) {
    Choice choice{.name = is_din ? "din" : "ctr_dnn", .origin = {.text = "job.yaml:1"}};
    const auto give = [&](const std::string& key, ConfValue value) {
      choice.params.members.push_back({.key = key, .value = std::move(value)});
    };
    const ConfValue sizes{.kind = ConfValue::Kind::kList, .items = {{.text = "6"}}};
    give("hidden", sizes);
    if (is_din) {
      give("attention", sizes);
      give("target", {.text = "item"});
      give("history", {.text = "history"});
    }
    auto made = make_model(choice, shape);
    EXPECT_TRUE(made.ok()) << made.status();
    model = *std::move(made);
    Rng rng(3, 0, 0);
    const auto fill = [&](std::vector<float>& out, size_t n) {
      for (size_t i = 0; i < n; ++i) out.push_back(static_cast<float>(rng.normal() * 0.5));
    };
    std::vector<std::span<float>> bound;
    for (const ModelVariable& variable : model->variables()) {
      fill(values.emplace_back(), variable.elements());
      gradients.emplace_back(variable.elements());
    }
    bound.assign(values.begin(), values.end());
    model->bind(bound);
    fill(pooled, kSamples * shape.width());
    if (is_din) lengths = {2, 0, 3, 1};
    if (is_din) fill(sequence, 6 * shape.fields.back().dim);
    for (uint32_t i = 0; i < kSamples * shape.labels; ++i) {
      labels.push_back(static_cast<float>((i * 7 / 3) % 2));
    }
    pooled_gradient.resize(pooled.size());
    sequence_gradient.resize(sequence.size());
    predictions.resize(labels.size());
  }

  double loss() {
    ModelInput input{.samples = kSamples, .pooled = pooled, .labels = labels, .weights = weights};
    ModelOutput out{.predictions = predictions, .pooled = pooled_gradient};
    for (std::vector<float>& one : gradients) out.variables.emplace_back(one);
    if (!lengths.empty()) {
      input.sequences.push_back({.values = sequence, .lengths = lengths});
      out.sequences.emplace_back(sequence_gradient);
    }
    const StatusOr<double> loss = model->train(input, out);
    EXPECT_TRUE(loss.ok()) << loss.status();
    return *loss;
  }

  void expect_slopes(std::vector<float>& xs, const std::vector<float>& told, double scale) {
    constexpr float kStep = 2e-3F;
    const std::vector<float> gradient = told;
    for (size_t i = 0; i < xs.size(); ++i) {
      const float before = xs[i];
      xs[i] = before + kStep;
      const double above = loss();
      xs[i] = before - kStep;
      const double below = loss();
      xs[i] = before;
      EXPECT_NEAR(scale * (above - below) / (2 * kStep), gradient[i],
                  2e-3 * scale + 0.03 * std::abs(gradient[i]));
    }
  }
};

ModelShape plain_shape(LossKind kind, uint32_t labels) {
  return {.fields = {{"a", 3}}, .labels = labels, .loss = {.kind = kind}};
}

TEST(Losses, EachIsTheMeanOverSamplesOfItsDefinition) {
  for (const LossKind kind : {LossKind::kBinary, LossKind::kSoftmax, LossKind::kSquared}) {
    ModelShape shape = plain_shape(kind, 3);
    shape.loss.label_weights = {1, 0.5, 2};
    Trial trial(shape, false);
    trial.weights = {1, 2, 0, 0.5};
    const double loss = trial.loss();
    double expected = 0;
    for (uint32_t i = 0; i < kSamples; ++i) {
      for (uint32_t label = 0; label < 3; ++label) {
        const double y = trial.labels[i * 3 + label];
        const double p = trial.predictions[i * 3 + label];
        double one = (p - y) * (p - y);
        if (kind == LossKind::kBinary) one = -y * std::log(p) - (1 - y) * std::log(1 - p);
        if (kind == LossKind::kSoftmax) one = -y * std::log(p);
        expected += one * trial.weights[i] * shape.loss.label_weights[label] / kSamples;
      }
    }
    EXPECT_NEAR(loss, expected, 1e-5 * std::max(1.0, expected));
    trial.expect_slopes(trial.pooled, trial.pooled_gradient, 1);
  }
}

TEST(Losses, SoftmaxPredictionsAreParts) {
  Trial trial(plain_shape(LossKind::kSoftmax, 3), false);
  trial.loss();
  for (uint32_t i = 0; i < kSamples; ++i) {
    EXPECT_NEAR(
        trial.predictions[i * 3] + trial.predictions[i * 3 + 1] + trial.predictions[i * 3 + 2], 1,
        1e-5);
  }
}

TEST(Losses, TheScaleIsOfGradientsAlone) {
  Trial plain(plain_shape(LossKind::kBinary, 1), false);
  ModelShape shape = plain_shape(LossKind::kBinary, 1);
  shape.loss.gradient_scale = 8;
  Trial scaled(shape, false);
  EXPECT_EQ(plain.loss(), scaled.loss());
  for (size_t i = 0; i < plain.pooled_gradient.size(); ++i) {
    EXPECT_FLOAT_EQ(8 * plain.pooled_gradient[i], scaled.pooled_gradient[i]);
  }
  EXPECT_FLOAT_EQ(8 * plain.gradients[0][0], scaled.gradients[0][0]);
}

TEST(Din, GradientsOfHistoriesAreTheSlopesOfTheLoss) {
  Trial trial({.fields = {{"item", 3}, {"history", 3, true}}, .labels = 1}, true);
  trial.loss();
  trial.expect_slopes(trial.sequence, trial.sequence_gradient, 1);
  trial.loss();
  trial.expect_slopes(trial.pooled, trial.pooled_gradient, 1);
}

TEST(Din, AHistoryDoesNotReachOtherSamples) {
  Trial trial({.fields = {{"item", 3}, {"history", 3, true}}, .labels = 1}, true);
  trial.loss();
  const std::vector<float> before = trial.predictions;
  trial.sequence[3 * 2] += 1;  // the first key of sample 2: samples 0 and 1 have two keys together
  trial.loss();
  EXPECT_EQ(trial.predictions[0], before[0]);
  EXPECT_EQ(trial.predictions[1], before[1]);
  EXPECT_NE(trial.predictions[2], before[2]);
  EXPECT_EQ(trial.predictions[3], before[3]);
}

TEST(Din, IsSavedForHistoriesOfAnyLength) {
  const Trial trial({.fields = {{"item", 3}, {"history", 3, true}}, .labels = 1}, true);
  const std::string path = testing::TempDir() + "saved_din.pt";
  EXPECT_EQ(trial.model->save(path), absl::OkStatus());
  std::filesystem::remove(path);
}

TEST(Din, FieldsThatItNeedsAreNamed) {
  const Choice choice{.name = "din", .origin = {.text = "job.yaml:1"}};
  const auto made = make_model(choice, {.fields = {{"item", 3}, {"history", 3, true}}});
  EXPECT_NE(std::string(made.status().message()).find("model.din.target is missing"),
            std::string::npos)
      << made.status();
}

}  // namespace
}  // namespace starling
