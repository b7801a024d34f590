#include "trainer/evaluator.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace starling {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
// Predictions of exactly 0 or 1 that are wrong would make the loss infinite.
constexpr double kNearest = 1e-7;
constexpr size_t kSums = 8;

// The chance that a positive is above a negative, ties counting half. `next` gives the weights of
// both labels of the next higher prediction, false at the end.
template <typename Next>
double auc_of(Next next) {
  double below = 0, area = 0, positives = 0;
  double negative = 0, positive = 0;
  while (next(negative, positive)) {
    area += positive * (below + negative / 2);
    below += negative;
    positives += positive;
  }
  return below > 0 && positives > 0 ? area / (below * positives) : kNone;
}

template <typename Points>
double exact_auc(Points points) {
  std::sort(points.begin(), points.end(),
            [](const auto& a, const auto& b) { return a.prediction < b.prediction; });
  size_t i = 0;
  return auc_of([&](double& negative, double& positive) {
    if (i == points.size()) return false;
    negative = positive = 0;
    const float prediction = points[i].prediction;
    for (; i < points.size() && points[i].prediction == prediction; ++i) {
      (points[i].label > 0.5F ? positive : negative) += points[i].weight;
    }
    return true;
  });
}

}  // namespace

Evaluator::Evaluator(EvaluatorOptions options)
    : options_(options), negative_(options.buckets), positive_(options.buckets) {}

void Evaluator::add(std::span<const float> predictions, std::span<const float> labels,
                    std::span<const float> weights, std::span<const uint64_t> groups) {
  STARLING_CHECK(predictions.size() == labels.size(), "as many labels as predictions");
  for (size_t i = 0; i < predictions.size(); ++i) {
    const float weight = weights.empty() ? 1.0F : weights[i];
    if (!std::isfinite(predictions[i])) {
      ++not_numbers_;
      continue;
    }
    const double raw = predictions[i];
    const double p = std::clamp(raw, 0.0, 1.0);
    const double label = labels[i];
    const double sure = std::clamp(p, kNearest, 1 - kNearest);
    sums_.samples += 1;
    sums_.weight += weight;
    sums_.labels += weight * label;
    sums_.predictions += weight * raw;
    sums_.log_loss -= weight * (label * std::log(sure) + (1 - label) * std::log(1 - sure));
    sums_.right += (p >= 0.5) == (label >= 0.5) ? weight : 0.0F;
    sums_.absolute += weight * std::abs(raw - label);
    sums_.squared += weight * (raw - label) * (raw - label);
    const Point point{static_cast<float>(p), labels[i], weight};
    if (options_.buckets == 0) {
      points_.push_back(point);
    } else {
      const size_t bucket =
          std::min<size_t>(static_cast<size_t>(p * options_.buckets), options_.buckets - 1);
      (labels[i] > 0.5F ? positive_ : negative_)[bucket] += weight;
    }
    if (!groups.empty()) groups_[groups[i]].push_back(point);
  }
}

void Evaluator::merge(const Evaluator& other) {
  STARLING_CHECK(other.options_.buckets == options_.buckets, "evaluators of one kind");
  STARLING_CHECK(unpack(other.pack()), "what was packed");
}

void Evaluator::clear() { *this = Evaluator(options_); }

std::vector<double> Evaluator::pack() const {
  std::vector<double> out{sums_.samples,     sums_.weight,   sums_.labels,
                          sums_.predictions, sums_.log_loss, sums_.right,
                          sums_.absolute,    sums_.squared,  static_cast<double>(not_numbers_)};
  out.insert(out.end(), negative_.begin(), negative_.end());
  out.insert(out.end(), positive_.begin(), positive_.end());
  pack_points(points_, out);
  for (const auto& [group, points] : groups_) {
    // A double holds 53 bits.
    out.push_back(static_cast<double>(group >> 32));
    out.push_back(static_cast<double>(group & 0xffffffffU));
    pack_points(points, out);
  }
  return out;
}

void Evaluator::pack_points(const std::vector<Point>& points, std::vector<double>& out) {
  out.push_back(static_cast<double>(points.size()));
  for (const Point& point : points) {
    out.insert(out.end(), {point.prediction, point.label, point.weight});
  }
}

bool Evaluator::unpack_points(std::span<const double>& packed, std::vector<Point>& out) {
  if (packed.empty() || !(packed[0] >= 0) || packed[0] * 3 > static_cast<double>(packed.size())) {
    return false;
  }
  const auto count = static_cast<size_t>(packed[0]);
  packed = packed.subspan(1);
  if (packed.size() < 3 * count) return false;
  for (size_t i = 0; i < 3 * count; i += 3) {
    out.push_back({static_cast<float>(packed[i]), static_cast<float>(packed[i + 1]),
                   static_cast<float>(packed[i + 2])});
  }
  packed = packed.subspan(3 * count);
  return true;
}

bool Evaluator::unpack(std::span<const double> packed) {
  const size_t head = kSums + 1 + 2 * size_t{options_.buckets};
  if (packed.size() < head) return false;
  std::span<const double> rest = packed.subspan(head);
  std::vector<Point> points;
  if (!unpack_points(rest, points) || (options_.buckets > 0 && !points.empty())) return false;
  std::map<uint64_t, std::vector<Point>> groups;
  while (!rest.empty()) {
    if (rest.size() < 3 || !(rest[0] >= 0) || !(rest[0] < 0x1p32) || !(rest[1] >= 0) ||
        !(rest[1] < 0x1p32)) {
      return false;
    }
    const uint64_t group = (static_cast<uint64_t>(rest[0]) << 32) | static_cast<uint64_t>(rest[1]);
    rest = rest.subspan(2);
    if (!unpack_points(rest, groups[group]) || groups[group].empty()) return false;
  }
  double* const sums[] = {&sums_.samples,  &sums_.weight, &sums_.labels,   &sums_.predictions,
                          &sums_.log_loss, &sums_.right,  &sums_.absolute, &sums_.squared};
  for (size_t i = 0; i < kSums; ++i) *sums[i] += packed[i];
  not_numbers_ += static_cast<uint64_t>(packed[kSums]);
  for (size_t b = 0; b < options_.buckets; ++b) {
    negative_[b] += packed[kSums + 1 + b];
    positive_[b] += packed[kSums + 1 + options_.buckets + b];
  }
  points_.insert(points_.end(), points.begin(), points.end());
  for (const auto& [group, more] : groups) {
    std::vector<Point>& mine = groups_[group];
    mine.insert(mine.end(), more.begin(), more.end());
  }
  return true;
}

Evaluation Evaluator::result() const {
  Evaluation out;
  out.samples = static_cast<uint64_t>(sums_.samples);
  const double weight = sums_.weight;
  out.log_loss = weight > 0 ? sums_.log_loss / weight : kNone;
  out.accuracy = weight > 0 ? sums_.right / weight : kNone;
  out.mae = weight > 0 ? sums_.absolute / weight : kNone;
  out.rmse = weight > 0 ? std::sqrt(sums_.squared / weight) : kNone;
  out.calibration = sums_.labels > 0 ? sums_.predictions / sums_.labels : kNone;
  size_t bucket = 0;
  out.auc =
      options_.buckets == 0 ? exact_auc(points_) : auc_of([&](double& negative, double& positive) {
        if (bucket == options_.buckets) return false;
        negative = negative_[bucket];
        positive = positive_[bucket++];
        return true;
      });
  double total = 0, sum = 0;
  for (const auto& [group, points] : groups_) {
    const double auc = exact_auc(points);
    if (std::isnan(auc)) continue;
    double of_group = 0;
    for (const Point& point : points) of_group += point.weight;
    sum += auc * of_group;
    total += of_group;
    ++out.groups;
  }
  out.group_auc = total > 0 ? sum / total : kNone;
  return out;
}

}  // namespace starling
