// Learner is one worker's model with the memory of its inputs, gradients and predictions.
//
// Uses: base, worker, trainer/model.h. Threads: of one owner.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "trainer/model.h"
#include "worker/worker.h"

namespace starling {

class Learner {
 public:
  static StatusOr<std::unique_ptr<Learner>> make(const Choice& choice, const ModelShape& shape);

  Model& model() { return *model_; }
  // What bind() told the model.
  void bind(std::vector<std::span<float>> values);
  const std::vector<std::span<float>>& values() const { return values_; }

  // The batch as the model takes it; valid until the next call.
  const ModelInput& gather(const StepBatch& batch);
  // Forward and backward of what was gathered; the mean loss.
  StatusOr<double> train();
  Status predict();
  std::span<const float> predictions() const { return predictions_; }

  // After train(): the gradient of what was gathered, and of each variable. These tensors are new
  // at each step: a push may still be on its way with the memory of the last one.
  const StepLayout::Gradients& gradients() const { return pushed_; }
  const std::vector<Tensor>& variable_gradients() const { return variable_gradients_; }
  // Every variable's gradient that is longer is scaled to this length; 0: any length.
  void clip(double norm_max);
  // The first field or variable that holds what is not a number, "the loss" when none does, none
  // when all is well.
  std::optional<std::string> first_bad(double loss) const;

 private:
  Learner(const ModelShape& shape, std::unique_ptr<Model> model);
  std::optional<std::string> bad_field(std::span<const float> pooled,
                                       std::span<const std::vector<float>> sequences) const;

  const ModelShape shape_;
  const std::unique_ptr<Model> model_;
  std::vector<std::span<float>> values_;
  ModelInput input_;
  std::vector<float> pooled_, pooled_gradient_, predictions_;
  std::vector<std::vector<float>> sequences_, sequence_gradients_;
  std::vector<std::vector<uint32_t>> lengths_;
  std::vector<Tensor> variable_gradients_;
  StepLayout::Gradients pushed_;
};

}  // namespace starling
