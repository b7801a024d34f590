#include "trainer/evaluator.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "trainer/window.h"

namespace starling {
namespace {

struct Samples {
  std::vector<float> predictions, labels, weights;
  std::vector<uint64_t> groups;
};

// `steps`: predictions take so few values that there are ties.
Samples random_samples(uint64_t seed, size_t n, uint32_t steps) {
  Rng rng(seed, 7, 0);
  Samples out;
  for (size_t i = 0; i < n; ++i) {
    const double p = static_cast<double>(rng.below(steps + 1)) / steps;
    out.predictions.push_back(static_cast<float>(p));
    out.labels.push_back(rng.uniform() < 0.2 + 0.6 * p ? 1.0F : 0.0F);
    out.weights.push_back(static_cast<float>(1 + rng.below(3)));
    out.groups.push_back(rng.below(5));
  }
  return out;
}

// Over all pairs, as the definition says.
double slow_auc(const Samples& samples, bool with_weights, int64_t group = -1) {
  double wins = 0, pairs = 0;
  for (size_t i = 0; i < samples.labels.size(); ++i) {
    for (size_t j = 0; j < samples.labels.size(); ++j) {
      if (samples.labels[i] < 0.5F || samples.labels[j] > 0.5F) continue;
      if (group >= 0 && (samples.groups[i] != static_cast<uint64_t>(group) ||
                         samples.groups[j] != static_cast<uint64_t>(group))) {
        continue;
      }
      const double weight = with_weights ? samples.weights[i] * samples.weights[j] : 1;
      pairs += weight;
      if (samples.predictions[i] > samples.predictions[j]) wins += weight;
      if (samples.predictions[i] == samples.predictions[j]) wins += weight / 2;
    }
  }
  return wins / pairs;
}

TEST(Evaluator, ExactAucCountsEveryPair) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Samples samples = random_samples(seed, 150, seed % 2 == 0 ? 7 : 100000);
    Evaluator plain({.buckets = 0});
    plain.add(samples.predictions, samples.labels);
    EXPECT_NEAR(plain.result().auc, slow_auc(samples, false), 1e-12);
    Evaluator weighted({.buckets = 0});
    weighted.add(samples.predictions, samples.labels, samples.weights);
    EXPECT_NEAR(weighted.result().auc, slow_auc(samples, true), 1e-12);
  }
}

TEST(Evaluator, BucketsComeCloseToTheExactAuc) {
  const Samples samples = random_samples(3, 20000, 1U << 20);
  Evaluator exact({.buckets = 0}), buckets;
  exact.add(samples.predictions, samples.labels);
  buckets.add(samples.predictions, samples.labels);
  EXPECT_NEAR(buckets.result().auc, exact.result().auc, 1e-4);
}

TEST(Evaluator, PartsAddUpToTheWhole) {
  const Samples samples = random_samples(5, 3000, 1000);
  const std::span<const float> predictions(samples.predictions), labels(samples.labels);
  const std::span<const float> weights(samples.weights);
  const std::span<const uint64_t> groups(samples.groups);
  for (const uint32_t buckets : {0U, 1U << 10}) {
    Evaluator whole({.buckets = buckets}), first({.buckets = buckets}),
        second({.buckets = buckets});
    whole.add(predictions, labels, weights, groups);
    first.add(predictions.first(1000), labels.first(1000), weights.first(1000), groups.first(1000));
    second.add(predictions.subspan(1000), labels.subspan(1000), weights.subspan(1000),
               groups.subspan(1000));
    first.merge(second);
    const Evaluation a = whole.result(), b = first.result();
    EXPECT_EQ(a.samples, b.samples);
    EXPECT_NEAR(a.auc, b.auc, 1e-12);
    EXPECT_NEAR(a.log_loss, b.log_loss, 1e-9);
    EXPECT_NEAR(a.group_auc, b.group_auc, 1e-12);
    EXPECT_EQ(a.groups, b.groups);
  }
}

TEST(Evaluator, OtherNumbersAreThoseOfASlowLoop) {
  const Samples samples = random_samples(9, 500, 90);
  Evaluator evaluator;
  evaluator.add(samples.predictions, samples.labels, samples.weights, samples.groups);
  double weight = 0, loss = 0, right = 0, absolute = 0, squared = 0, predicted = 0, positive = 0;
  for (size_t i = 0; i < samples.labels.size(); ++i) {
    const double p = samples.predictions[i], y = samples.labels[i], w = samples.weights[i];
    const double sure = std::min(std::max(p, 1e-7), 1 - 1e-7);
    weight += w;
    loss -= w * std::log(y > 0.5 ? sure : 1 - sure);
    right += (p >= 0.5) == (y > 0.5) ? w : 0;
    absolute += w * std::abs(p - y);
    squared += w * (p - y) * (p - y);
    predicted += w * p;
    positive += w * y;
  }
  const Evaluation result = evaluator.result();
  EXPECT_EQ(result.samples, 500U);
  EXPECT_NEAR(result.log_loss, loss / weight, 1e-9);
  EXPECT_NEAR(result.accuracy, right / weight, 1e-12);
  EXPECT_NEAR(result.mae, absolute / weight, 1e-12);
  EXPECT_NEAR(result.rmse, std::sqrt(squared / weight), 1e-12);
  EXPECT_NEAR(result.calibration, predicted / positive, 1e-12);
}

TEST(Evaluator, GroupsCountByTheirWeight) {
  const Samples samples = random_samples(11, 200, 50);
  Evaluator evaluator;
  evaluator.add(samples.predictions, samples.labels, {}, samples.groups);
  double sum = 0;
  for (int64_t group = 0; group < 5; ++group) {
    const double share =
        static_cast<double>(std::count(samples.groups.begin(), samples.groups.end(), group));
    sum += share * slow_auc(samples, false, group);
  }
  EXPECT_NEAR(evaluator.result().group_auc, sum / 200, 1e-9);
  EXPECT_EQ(evaluator.result().groups, 5U);
}

TEST(Evaluator, WhatIsNotDefinedIsNotANumber) {
  Evaluator evaluator;
  EXPECT_TRUE(std::isnan(evaluator.result().log_loss));
  evaluator.add(std::vector<float>{0.2F, NAN}, std::vector<float>{1, 1});
  EXPECT_TRUE(std::isnan(evaluator.result().auc)) << "one class";
  EXPECT_EQ(evaluator.not_numbers(), 1U);
  EXPECT_EQ(evaluator.result().samples, 1U);
}

TEST(Evaluator, MeanErrorsAreOfAnyNumbers) {
  Evaluator evaluator;
  evaluator.add(std::vector<float>{3, -1}, std::vector<float>{5, -2});
  EXPECT_DOUBLE_EQ(evaluator.result().mae, 1.5);
  EXPECT_DOUBLE_EQ(evaluator.result().rmse, std::sqrt(2.5));
  EXPECT_DOUBLE_EQ(evaluator.result().calibration, 2.0 / 3);
}

TEST(Evaluator, PackedGroupsAreThoseOfTheWhole) {
  Evaluator one;
  one.add(std::vector<float>{0.1F, 0.9F}, std::vector<float>{0, 1}, {},
          std::vector<uint64_t>{UINT64_MAX, UINT64_MAX});
  Evaluator two;
  ASSERT_TRUE(two.unpack(one.pack()));
  EXPECT_EQ(two.result().groups, 1U);
  EXPECT_EQ(two.result().group_auc, 1.0);
  std::vector<double> cut = one.pack();
  cut.pop_back();
  EXPECT_FALSE(two.unpack(cut));
  EXPECT_EQ(two.result().samples, 2U) << "what is refused changes nothing";
}

TEST(Evaluator, PackedNumbersOfAnotherKindAreRefused) {
  Evaluator few({.buckets = 8}), many({.buckets = 16});
  EXPECT_FALSE(few.unpack(many.pack()));
  EXPECT_FALSE(few.unpack(std::vector<double>(3)));
}

TEST(TrainWindow, WindowsOfSeveralTrainersAreOne) {
  const std::vector<float> predictions{0.1F, 0.7F, 0.4F, 0.9F, 0.2F}, labels{0, 1, 1, 0, 0};
  TrainWindow whole, first, second;
  whole.scores.add(predictions, labels);
  first.scores.add(std::span(predictions).first(2), std::span(labels).first(2));
  second.scores.add(std::span(predictions).subspan(2), std::span(labels).subspan(2));
  first.loss = 1;
  first.batches = 2;
  second.loss = 5;
  second.batches = 1;
  TrainWindow merged;
  ASSERT_TRUE(merged.merge(first.pack()));
  ASSERT_TRUE(merged.merge(second.pack()));
  EXPECT_EQ(merged.mean_loss(), 2);
  EXPECT_EQ(merged.scores.result().samples, 5U);
  EXPECT_EQ(merged.scores.result().auc, whole.scores.result().auc);
  EXPECT_EQ(merged.scores.result().log_loss, whole.scores.result().log_loss);
  EXPECT_FALSE(merged.merge(first.pack() + "x"));
  EXPECT_FALSE(merged.merge(""));
  EXPECT_EQ(merged.batches, 3);
}

}  // namespace
}  // namespace starling
