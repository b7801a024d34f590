#include "table/rules.h"

#include <algorithm>
#include <cmath>

namespace starling {

namespace {

// Values that every rule knows.
constexpr RuleParam kSharedParams[] = {{"weight_decay", 0, 0, 1e3},
                                       {"weight_min", -INFINITY, -INFINITY, INFINITY},
                                       {"weight_max", INFINITY, -INFINITY, INFINITY},
                                       {"clip_value", 0, 0, 1e30},
                                       {"clip_norm", 0, 0, 1e30}};

// Takes the value of `param` out of `left`, or its default.
StatusOr<double> take(std::map<std::string, double>& left, const RuleParam& param,
                      std::string_view what) {
  const auto found = left.find(param.name);
  if (found == left.end()) return param.fallback;
  const double value = found->second;
  left.erase(found);
  if (!(value >= param.low && value <= param.high)) {
    return invalid_argument("{}.{} is {}, it must lie in [{}, {}]", what, param.name, value,
                            param.low, param.high);
  }
  return value;
}

}  // namespace

std::array<std::span<const RuleOps>, 5> rules() {
  return {plain_rules(), adagrad_rules(), adam_rules(), paddle_rules(), paddle_adam_rules()};
}

std::span<const RuleParam> shared_params() { return kSharedParams; }

void start_state(const RuleSettings& settings, size_t n, float* state) {
  const RuleOps& ops = *settings.ops;
  for (size_t k = 0; k < ops.vectors; ++k) {
    std::fill_n(state + k * n, n, ops.initial(settings, k));
  }
  for (size_t k = 0; k < ops.scalars; ++k) {
    state[ops.vectors * n + k] = ops.initial(settings, ops.vectors + k);
  }
}

StatusOr<RuleSettings> make_rule(const OptimizerOptions& options, RuleUse use,
                                 std::string_view what) {
  RuleSettings settings;
  std::string known;
  for (const std::span<const RuleOps> family : rules()) {
    for (const RuleOps& ops : family) {
      if (use == RuleUse::kSparse ? !ops.sparse : !ops.dense) continue;
      known += fmt::format("{}{}", known.empty() ? "" : ", ", ops.name);
      if (options.rule == ops.name) settings.ops = &ops;
    }
  }
  if (settings.ops == nullptr) {
    return invalid_argument("{}: no rule is called '{}'; there are {}", what, options.rule, known);
  }
  std::map<std::string, double> left = options.values;
  for (size_t i = 0; i < settings.ops->params.size(); ++i) {
    STARLING_ASSIGN_OR_RETURN(settings.exact[i], take(left, settings.ops->params[i], what));
    settings.value[i] = static_cast<float>(settings.exact[i]);
  }
  double shared[std::size(kSharedParams)];
  for (size_t i = 0; i < std::size(kSharedParams); ++i) {
    STARLING_ASSIGN_OR_RETURN(shared[i], take(left, kSharedParams[i], what));
  }
  if (!left.empty()) {
    return invalid_argument("{}: the rule {} has no value '{}'", what, options.rule,
                            left.begin()->first);
  }
  if (shared[1] > shared[2]) {
    return invalid_argument("{}.weight_min is {}, above weight_max {}", what, shared[1], shared[2]);
  }
  settings.weight_decay = static_cast<float>(shared[0]);
  settings.bounded = std::isfinite(shared[1]) || std::isfinite(shared[2]);
  settings.weight_min = static_cast<float>(shared[1]);
  settings.weight_max = static_cast<float>(shared[2]);
  settings.clip_value = static_cast<float>(shared[3]);
  settings.clip_norm = static_cast<float>(shared[4]);
  return settings;
}

}  // namespace starling
