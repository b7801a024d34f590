// Evaluator measures predictions against labels: AUC, log loss, accuracy, errors, calibration, and
// AUC per group. Parts of several workers add up to the same numbers as one over all.
//
// Uses: base. Threads: a value of one owner.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace starling {

// Of predictions and labels; a weight counts as that many samples. AUC, log loss and accuracy are
// of probabilities and labels that are 0 or 1, the others of any. NaN where a number is not
// defined, such as the AUC of one class.
struct Evaluation {
  uint64_t samples = 0;
  double auc = 0;
  double log_loss = 0;
  double accuracy = 0;           // at 0.5
  double mae = 0;                // mean absolute error
  double rmse = 0;               // root of the mean squared error
  double calibration = 0;        // sum of predictions / sum of labels
  double group_auc = 0;          // mean over the groups that have both labels, by their weight
  uint64_t groups = 0;           // of these
  std::vector<Evaluation> more;  // of the labels behind the first, where a job has several
};

struct EvaluatorOptions {
  // 0: exact, keeping every prediction. Otherwise predictions are counted in so many buckets of
  // [0, 1]; with 2^16 the AUC is within 1e-4 of the exact one unless predictions crowd together.
  uint32_t buckets = 1U << 16;
};

class Evaluator {
 public:
  explicit Evaluator(EvaluatorOptions options = {});

  // `weights` and `groups` may be empty: 1 each, and no groups. For AUC, log loss and accuracy
  // predictions outside of [0, 1] are clipped; those that are not numbers are counted and left out.
  void add(std::span<const float> predictions, std::span<const float> labels,
           std::span<const float> weights = {}, std::span<const uint64_t> groups = {});
  // Of an evaluator with the same options.
  void merge(const Evaluator& other);
  void clear();

  Evaluation result() const;
  uint64_t not_numbers() const { return not_numbers_; }

  // All of it as numbers, to be sent and merged elsewhere.
  std::vector<double> pack() const;
  // False: not what pack() made with these options.
  bool unpack(std::span<const double> packed);

 private:
  struct Point {
    float prediction;
    float label;
    float weight;
  };
  struct Sums {
    double samples = 0, weight = 0, labels = 0, predictions = 0;
    double log_loss = 0, right = 0, absolute = 0, squared = 0;
  };

  static void pack_points(const std::vector<Point>& points, std::vector<double>& out);
  // Takes a list off the front.
  static bool unpack_points(std::span<const double>& packed, std::vector<Point>& out);

  EvaluatorOptions options_;
  Sums sums_;
  uint64_t not_numbers_ = 0;
  std::vector<double> negative_, positive_;  // (buckets): weights of each label
  std::vector<Point> points_;                // of an exact one
  std::map<uint64_t, std::vector<Point>> groups_;
};

}  // namespace starling
