#include "trainer/learner.h"

#include <bit>
#include <cmath>

namespace starling {
namespace {

std::span<const float> floats(const std::optional<Tensor>& tensor) {
  return tensor.has_value() ? tensor->values<float>() : std::span<const float>();
}

bool is_finite(std::span<const float> values) {
  // An exponent of ones is an infinity or a NaN; without a branch, so that it runs in vectors.
  uint32_t bad = 0;
  for (const float x : values) {
    bad |= (std::bit_cast<uint32_t>(x) & 0x7f800000U) == 0x7f800000U ? 1U : 0U;
  }
  return bad == 0;
}

double norm_of(std::span<const float> values) {
  double sum = 0;
  for (const float x : values) sum += static_cast<double>(x) * x;
  return std::sqrt(sum);
}

}  // namespace

Learner::Learner(const ModelShape& shape, std::unique_ptr<Model> model)
    : shape_(shape), model_(std::move(model)) {}

StatusOr<std::unique_ptr<Learner>> Learner::make(const Choice& choice, const ModelShape& shape) {
  STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, make_model(choice, shape));
  return std::unique_ptr<Learner>(new Learner(shape, std::move(model)));
}

void Learner::bind(std::vector<std::span<float>> values) {
  values_ = std::move(values);
  model_->bind(values_);
}

const ModelInput& Learner::gather(const StepBatch& batch) {
  const StepLayout& layout = batch.layout;
  pooled_.resize(size_t{layout.samples()} * layout.width());
  layout.gather(pooled_);
  input_ = {.samples = layout.samples(),
            .pooled = pooled_,
            .dense = floats(batch.dense),
            .labels = floats(batch.labels),
            .weights = floats(batch.weights)};
  pushed_.sequences.assign(layout.fields().size(), {});
  size_t number = 0;
  for (size_t i = 0; i < layout.fields().size(); ++i) {
    if (layout.fields()[i].pooling != v1::POOLING_NONE) continue;
    if (sequences_.size() == number) {
      sequences_.emplace_back();
      sequence_gradients_.emplace_back();
      lengths_.emplace_back();
    }
    lengths_[number] = layout.lengths(i);
    size_t keys = 0;
    for (const uint32_t length : lengths_[number]) keys += length;
    sequences_[number].resize(keys * layout.fields()[i].dim);
    sequence_gradients_[number].resize(sequences_[number].size());
    layout.gather_sequence(i, sequences_[number]);
    input_.sequences.push_back({.values = sequences_[number], .lengths = lengths_[number]});
    pushed_.sequences[i] = sequence_gradients_[number];
    ++number;
  }
  predictions_.resize(size_t{input_.samples} * shape_.labels);
  return input_;
}

StatusOr<double> Learner::train() {
  pooled_gradient_.resize(pooled_.size());
  pushed_.pooled = pooled_gradient_;
  ModelOutput out{.predictions = predictions_, .pooled = pooled_gradient_};
  variable_gradients_.clear();
  for (const ModelVariable& variable : model_->variables()) {
    variable_gradients_.push_back(
        Tensor::allocate(DType::kFloat32, {static_cast<int64_t>(variable.elements())}));
    out.variables.push_back(variable_gradients_.back().mutable_values<float>());
  }
  for (size_t i = 0; i < input_.sequences.size(); ++i) {
    out.sequences.emplace_back(sequence_gradients_[i]);
  }
  return model_->train(input_, out);
}

Status Learner::predict() { return model_->predict(input_, predictions_); }

void Learner::clip(double norm_max) {
  if (norm_max == 0) return;
  for (Tensor& gradient : variable_gradients_) {
    const std::span<float> values = gradient.mutable_values<float>();
    const double norm = norm_of(values);
    if (!(norm > norm_max)) continue;
    const auto factor = static_cast<float>(norm_max / norm);
    for (float& x : values) x *= factor;
  }
}

std::optional<std::string> Learner::bad_field(std::span<const float> pooled,
                                              std::span<const std::vector<float>> sequences) const {
  bool is_bad = !is_finite(pooled);
  for (size_t i = 0; i < input_.sequences.size(); ++i) is_bad |= !is_finite(sequences[i]);
  if (!is_bad) return std::nullopt;
  size_t column = 0, sequence = 0;
  for (const ModelField& field : shape_.fields) {
    if (field.is_sequence) {
      if (!is_finite(sequences[sequence++])) return "field '" + field.name + "'";
      continue;
    }
    for (uint32_t i = 0; i < input_.samples; ++i) {
      if (!is_finite(pooled.subspan(i * shape_.width() + column, field.dim))) {
        return "field '" + field.name + "'";
      }
    }
    column += field.dim;
  }
  return std::nullopt;
}

std::optional<std::string> Learner::first_bad(double loss) const {
  if (!std::isfinite(loss)) {
    if (auto field = bad_field(pooled_, sequences_)) return *field;
    if (!is_finite(input_.dense)) return "the dense fields";
    if (!is_finite(input_.labels)) return "the labels";
    for (size_t i = 0; i < values_.size(); ++i) {
      if (!is_finite(values_[i])) return "variable '" + model_->variables()[i].name + "'";
    }
    return "the loss";
  }
  if (auto field = bad_field(pooled_gradient_, sequence_gradients_)) {
    return "the gradient of " + *field;
  }
  for (size_t i = 0; i < variable_gradients_.size(); ++i) {
    if (!is_finite(variable_gradients_[i].values<float>())) {
      return "the gradient of variable '" + model_->variables()[i].name + "'";
    }
  }
  return std::nullopt;
}

}  // namespace starling
