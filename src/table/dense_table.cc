#include "table/dense_table.h"

#include <algorithm>

#include "base/tensor.h"

namespace starling {

StatusOr<std::unique_ptr<DenseTable>> DenseTable::make(const DenseOptions& options) {
  if (options.name.empty() || options.name.size() > kTableNameBytesMax) {
    return invalid_argument("a dense table's name has {} bytes, it must have 1 to {}",
                            options.name.size(), kTableNameBytesMax);
  }
  const std::string what = "dense table '" + options.name + "'";
  const StatusOr<size_t> bytes = tensor_bytes(DType::kFloat32, options.shape);
  if (!bytes.ok()) return with_context(bytes.status(), what + ": shape");
  const uint64_t elements = *bytes / sizeof(float);
  const uint64_t end = options.end == 0 ? elements : options.end;
  if (options.begin > end || end > elements) {
    return invalid_argument("{}: the range [{}, {}) is not inside its {} elements", what,
                            options.begin, end, elements);
  }
  if (options.ranks_max == 0) return invalid_argument("{}: ranks_max is 0, it must be >= 1", what);
  STARLING_RETURN_IF_ERROR(check_schedule(options.schedule, what + ": schedule"));
  std::unique_ptr<DenseTable> table(new DenseTable(options));
  STARLING_ASSIGN_OR_RETURN(table->rule_,
                            make_rule(options.optimizer, RuleUse::kDense, what + ": optimizer"));
  if (table->rule_.clip_norm != 0 && end - options.begin != elements) {
    return invalid_argument(
        "{}: clip_norm needs the whole tensor, this is the range [{}, {}) of {}", what,
        options.begin, end, elements);
  }
  STARLING_ASSIGN_OR_RETURN(
      const Initializer initializer,
      Initializer::make(options.initializer, elements, what + ": initializer"));
  table->begin_ = options.begin;
  table->weights_.resize(end - options.begin);
  table->state_.resize(table->rule_.ops->state_floats(table->weights_.size()));
  start_state(table->rule_, table->weights_.size(), table->state_.data());
  // Each element has draws of its own, so that its first value does not depend on how the tensor is
  // split.
  const uint64_t stream = name_hash(options.name);
  for (uint64_t i = options.begin; i < end; ++i) {
    initializer.fill(options.seed, stream, Key{i}, {&table->weights_[i - options.begin], 1});
  }
  return table;
}

DenseTable::DenseTable(const DenseOptions& options) : options_(options), kernels_(kernels()) {}

size_t DenseTable::memory_bytes() const {
  size_t floats = weights_.capacity() + state_.capacity() + scratch_.capacity();
  for (const auto& [rank, gradient] : staged_) floats += gradient.capacity();
  return sizeof *this + floats * sizeof(float);
}

Status DenseTable::set(std::span<const float> weights) {
  if (weights.size() != weights_.size()) {
    return invalid_argument("dense table '{}': {} weights for a range of {}", options_.name,
                            weights.size(), weights_.size());
  }
  ++operation_;
  std::copy(weights.begin(), weights.end(), weights_.begin());
  return {};
}

Status DenseTable::restore(std::span<const float> weights, std::span<const float> state) {
  if (state.size() != state_.size()) {
    return invalid_argument("dense table '{}': {} state floats, the rule keeps {}", options_.name,
                            state.size(), state_.size());
  }
  STARLING_RETURN_IF_ERROR(set(weights));
  std::copy(state.begin(), state.end(), state_.begin());
  return {};
}

bool DenseTable::is_finite(std::span<const float> gradient) const {
  uint8_t ok = 1;
  return kernels_.finite_rows(gradient.data(), 1, gradient.size(), &ok);
}

Status DenseTable::check_gradient(std::span<const float> gradient) const {
  if (gradient.size() != weights_.size()) {
    return invalid_argument("dense table '{}': {} gradients for a range of {}", options_.name,
                            gradient.size(), weights_.size());
  }
  if (options_.refuse_nonfinite && !is_finite(gradient)) {
    return invalid_argument("dense table '{}': a gradient is NaN or infinite", options_.name);
  }
  return {};
}

void DenseTable::step(std::span<const float> gradient, uint64_t step) {
  ++operation_;
  if (!is_finite(gradient)) {
    ++nonfinite_;
    return;
  }
  const size_t n = weights_.size();
  if (n == 0) return;
  const float* used = gradient.data();
  const bool clips = rule_.clip_value != 0 || rule_.clip_norm != 0;
  if (clips || rule_.weight_decay != 0) scratch_.resize(2 * n);
  if (clips) {
    kernels_.clip(used, n, rule_.clip_value, rule_.clip_norm, scratch_.data());
    used = scratch_.data();
  }
  float* weights = weights_.data();
  float* state = state_.data();
  float* decay = scratch_.empty() ? nullptr : scratch_.data() + n;
  const auto rate = static_cast<float>(rule_.rate() * schedule_factor(options_.schedule, step));
  rule_.ops->step({&rule_, rate, n, 1, &weights, &state, &used, nullptr, decay});
}

Status DenseTable::push(std::span<const float> gradient, uint64_t step) {
  STARLING_RETURN_IF_ERROR(check_gradient(gradient));
  this->step(gradient, step);
  return {};
}

Status DenseTable::stage(Rank rank, std::span<const float> gradient) {
  STARLING_RETURN_IF_ERROR(check_gradient(gradient));
  if (staged_.contains(rank)) {
    return already_exists("dense table '{}': the gradient of rank {} is there", options_.name,
                          value(rank));
  }
  if (staged_.size() >= options_.ranks_max) {
    return resource_exhausted("dense table '{}': {} gradients wait, ranks_max is {}", options_.name,
                              staged_.size(), options_.ranks_max);
  }
  staged_.emplace(rank, std::vector<float>(gradient.begin(), gradient.end()));
  return {};
}

Status DenseTable::apply_staged(Reduction reduction, uint64_t step) {
  if (staged_.empty()) {
    return failed_precondition("dense table '{}': no gradient is staged", options_.name);
  }
  std::vector<float> total(weights_.size());
  for (const auto& [rank, gradient] : staged_) {
    kernels_.add(gradient.data(), gradient.size(), total.data());
  }
  if (reduction == Reduction::kMean) {
    const auto ranks = static_cast<float>(staged_.size());
    for (float& x : total) x /= ranks;
  }
  staged_.clear();
  this->step(total, step);
  return {};
}

}  // namespace starling
