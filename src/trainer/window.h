// TrainWindow is what a stretch of training came to: its loss, and its predictions measured. The
// windows of several trainers add up to one.
//
// Uses: base, trainer/evaluator.h. Threads: a value of one owner.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer/evaluator.h"

namespace starling {

struct TrainWindow {
  // Few buckets, so that it is small to send; the AUC is good to three digits.
  Evaluator scores{EvaluatorOptions{.buckets = 1U << 10}};
  double loss = 0;  // sum over batches
  double batches = 0;

  double mean_loss() const { return batches > 0 ? loss / batches : 0; }
  std::string pack() const;
  // Adds what pack() made. False: something else, and nothing is added.
  bool merge(std::string_view packed);
};

}  // namespace starling
