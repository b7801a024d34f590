#include "table/rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "table/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "table/rules.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "table/lanes.inc"
#include "table/probe.inc"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {

// What a rule's step sees of one row.
struct RowStep {
  size_t n;
  float rate;
  float scale;
  float* w;
  float* state;
  const float* g;
  const float* value;
  const double* exact;
  float prelude;  // of g, where the rule has one
};

// What a rule is unless it says otherwise.
struct RuleBase {
  static constexpr bool kSparse = true;
  static constexpr bool kDense = false;
  static constexpr bool kHasRate = true;
  static constexpr bool kDecoupledDecay = false;
  static constexpr size_t kVectors = 0;
  static constexpr size_t kScalars = 0;
  // Whether a part of the step needs the gradient alone: prelude(g, n), not finite where g is not.
  // A walk computes it long before the row is there.
  static constexpr bool kHasPrelude = false;
  // Whether a step is a few instructions that do not wait long for each other.
  static constexpr bool kIsShort = false;
  static float initial(const RuleSettings&, size_t) { return 0; }
  static HWY_INLINE float prelude(const float*, size_t) { return 0; }
};

struct Decayed {
  Floats decay;
  HWY_INLINE void operator()(Floats& g, Floats& w, Floats&, Floats) const {
    g = hn::Add(g, hn::Mul(decay, w));
  }
};

// A NaN weight becomes the lower bound.
struct Bounded {
  Floats low, high;
  HWY_INLINE void operator()(Floats& w, Floats&, Floats&, Floats) const {
    w = hn::IfThenElse(hn::Ge(w, low), w, low);
    w = hn::IfThenElse(hn::Le(w, high), w, high);
  }
};

// One step of one row. `scratch`: n floats. kPlain: the caller knows that there is neither decay of
// the gradient nor a bound.
template <class Rule, bool kPlain>
HWY_INLINE void step_row(const RuleSettings& settings, RowStep step, float* scratch) {
  if (!kPlain && settings.weight_decay != 0) {
    for (size_t i = 0; i < step.n; ++i) scratch[i] = step.g[i];
    for_weights<1>(step.n, scratch, step.w, nullptr, step.g, Decayed{all(settings.weight_decay)});
    step.g = scratch;
    step.prelude = Rule::prelude(step.g, step.n);
  }
  Rule::step(step);
  if (!kPlain && settings.bounded) {
    const Bounded bounded{all(settings.weight_min), all(settings.weight_max)};
    for_weights<0>(step.n, step.w, nullptr, nullptr, step.g, bounded);
  }
}

template <class Rule>
void step_rows(const StepRows& job) {
  const RuleSettings& settings = *job.settings;
  RowStep step{job.n, job.rate, 1, nullptr, nullptr, nullptr, settings.value, settings.exact, 0};
  for (size_t r = 0; r < job.rows; ++r) {
    step.w = job.weights[r];
    step.state = job.state[r];
    step.g = job.gradients[r];
    if (job.scales != nullptr) step.scale = job.scales[r];
    step.prelude = Rule::prelude(step.g, step.n);
    step_row<Rule, false>(settings, step, job.scratch);
  }
}

// Rows of kN floats, a length that the compiler knows, without decay and bounds; kAnyLength: as
// many as the walk says.
inline constexpr size_t kAnyLength = SIZE_MAX;

template <class Rule, size_t kN>
struct WalkStep {
  const RuleSettings settings;  // a copy that no store can change, as far as the compiler knows
  const StepWalk job;
  const uint32_t stamp;
  float* preludes;  // (kProbeRing)
  static constexpr bool kIsLong = !Rule::kIsShort;

  HWY_INLINE size_t length() const { return kN == kAnyLength ? job.n : kN; }
  HWY_INLINE void ahead(size_t i, size_t at) const {
    if constexpr (Rule::kHasPrelude) {
      preludes[at] = Rule::prelude(job.gradients + i * length(), length());
    }
  }
  HWY_INLINE bool operator()(size_t i, std::byte* row, size_t at) const {
    const size_t n = length();
    const float* g = job.gradients + i * n;
    float prelude = 0;
    if constexpr (Rule::kHasPrelude) prelude = preludes[at];
    // A prelude that is finite tells that all of the gradient is.
    const bool may_differ = !Rule::kHasPrelude || !(prelude <= std::numeric_limits<float>::max());
    if (may_differ && !job.all_finite && !is_finite(g, n)) return false;
    set_stamp(row, stamp);
    const RowStep step{n,
                       job.rate,
                       1,
                       reinterpret_cast<float*>(row + kWeightsOffset),
                       reinterpret_cast<float*>(row + job.state),
                       g,
                       settings.value,
                       settings.exact,
                       prelude};
    step_row<Rule, kN != kAnyLength>(settings, step, job.scratch);
    return true;
  }
};

template <class Rule, size_t kN>
size_t walk_length(const ProbeView& view, const ProbePass& pass, const StepWalk& job) {
  ProbeRing ring;
  float preludes[kProbeRing];
  const WalkStep<Rule, kN> work{*job.settings, job, pass.stamp, preludes};
  const size_t n = pass.keys.size();
  return walk_keys<RowSource::kAsThePassSays, false>(view, pass, 0, n, ring, work);
}

template <class Rule>
size_t walk_rows(const ProbeView& view, const ProbePass& pass, const StepWalk& job) {
  const bool is_plain = job.settings->weight_decay == 0 && !job.settings->bounded;
  switch (is_plain ? job.n : kAnyLength) {
    case 8:
      return walk_length<Rule, 8>(view, pass, job);
    case 16:
      return walk_length<Rule, 16>(view, pass, job);
    case 32:
      return walk_length<Rule, 32>(view, pass, job);
    case 64:
      return walk_length<Rule, 64>(view, pass, job);
    default:
      return walk_length<Rule, kAnyLength>(view, pass, job);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#include "table/rule_adam.inc"
#include "table/rule_paddle.inc"
#include "table/rule_plain.inc"

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {

template <class Rule>
RuleOps ops_of() {
  RuleOps ops{Rule::kName,    Rule::kSparse,    Rule::kDense,   Rule::kDecoupledDecay,
              Rule::kParams,  Rule::kHasRate,   Rule::kVectors, Rule::kScalars,
              &Rule::initial, &step_rows<Rule>, nullptr};
  if constexpr (Rule::kSparse) ops.walk = &walk_rows<Rule>;
  return ops;
}

// The list. A new rule is a struct in a rule_*.inc file and a line here.
std::span<const RuleOps> all_rules() {
  static const std::array list = {
      ops_of<Sgd>(),
      ops_of<Momentum>(),
      ops_of<Adagrad>(),
      ops_of<RowwiseAdagrad>(),
      ops_of<Adam>(),
      ops_of<AdamW>(),
      ops_of<Ftrl>(),
      ops_of<PaddleAdagrad>(),
      ops_of<PaddleAdagradV2>(),
      ops_of<PaddleStdAdagrad>(),
      ops_of<PaddleAdam>(),
      ops_of<PaddleSharedAdam>(),
      ops_of<DensePaddleAdam>(),
      ops_of<AdamD2Sum>(),
      ops_of<Sum>(),
      ops_of<Summary>(),
  };
  return list;
}

}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

namespace {

HWY_EXPORT(all_rules);

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

std::span<const RuleOps> rules() { return HWY_DYNAMIC_DISPATCH(all_rules)(); }

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
  for (const RuleOps& ops : rules()) {
    if (use == RuleUse::kSparse ? !ops.sparse : !ops.dense) continue;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", ops.name);
    if (options.rule == ops.name) settings.ops = &ops;
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
#endif  // HWY_ONCE
