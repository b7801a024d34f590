// The list of optimizer rules: what each is called, what it keeps per row, and its step over a
// block of rows.
//
// One rule_*.cc file per family holds the arithmetic, written once and compiled for every vector
// target, and the list of its rules. The arithmetic is that of torch.optim, or of Paddle where the
// name says so. Uses: base. Threads: any; everything here is immutable.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace starling {

// Sum of all values a rule and its user may set, by name; what is not named takes the rule's
// default.
//
// Every rule also knows: weight_decay (added to the gradient as weight_decay * w; adamw decays the
// weight instead), weight_min and weight_max (bounds of every weight after the step), clip_value
// and clip_norm (of the gradient of a row, before anything else; 0 means none).
struct OptimizerOptions {
  std::string rule = "adagrad";
  std::map<std::string, double> values;
};

struct RuleParam {
  const char* name;
  double fallback;
  double low;   // smallest legal value
  double high;  // largest
};

inline constexpr size_t kRuleParamsMax = 6;

struct StepRows;
struct StepWalk;
struct RuleSettings;
struct ProbeView;
struct ProbePass;

// One rule as compiled for one vector target.
struct RuleOps {
  const char* name;
  bool sparse;                        // may be the rule of a sparse table
  bool dense;                         // may be the rule of a dense table
  bool decoupled_decay;               // takes weight_decay as a value of its own
  std::span<const RuleParam> params;  // the first is the learning rate, where the rule has one
  bool has_rate;
  size_t vectors;  // state: this many spans of n floats,
  size_t scalars;  // then this many floats
  // The first value of each element of state vector k, or of scalar k - vectors.
  float (*initial)(const RuleSettings& settings, size_t k);
  void (*step)(const StepRows& rows);
  // One step of the row of every key of the pass, as it is found. Keys with a gradient that is not
  // finite are late too. Returns how many keys are late. Null for a rule that is not sparse.
  size_t (*walk)(const ProbeView& view, const ProbePass& pass, const StepWalk& walk);

  size_t state_floats(size_t n) const { return vectors * n + scalars; }
};

// A rule with its values, checked.
struct RuleSettings {
  const RuleOps* ops = nullptr;
  float value[kRuleParamsMax] = {};   // as the arithmetic sees them
  double exact[kRuleParamsMax] = {};  // before rounding to float
  float weight_decay = 0;             // of the gradient; 0 where the rule decays the weight itself
  bool bounded = false;
  float weight_min = 0;
  float weight_max = 0;
  float clip_value = 0;  // 0: none
  float clip_norm = 0;   // 0: none

  double rate() const { return ops->has_rate ? exact[0] : 0.0; }
};

// One step of one rule on a block of rows (or on one dense variable: rows = 1, n = its length).
struct StepRows {
  const RuleSettings* settings;
  float rate;  // the learning rate of this step
  size_t n;
  size_t rows;
  float* const* weights;          // (rows) -> n
  float* const* state;            // (rows) -> state_floats(n)
  const float* const* gradients;  // (rows) -> n
  const float* scales;            // (rows), or null for 1: the pushed show counts
  float* scratch;                 // n
};

// One step of one rule on every row of a pass, with unscaled gradients.
struct StepWalk {
  const RuleSettings* settings;
  float rate;  // the learning rate of this step
  size_t n;
  size_t state;            // where the state starts in a row, in bytes
  const float* gradients;  // (keys, n)
  bool all_finite;         // the caller knows that all gradients are
  float* scratch;          // n
};

// The rules of each family, for the vector target chosen at run time.
std::span<const RuleOps> plain_rules();
std::span<const RuleOps> adagrad_rules();
std::span<const RuleOps> adam_rules();
std::span<const RuleOps> paddle_rules();
std::span<const RuleOps> paddle_adam_rules();
std::array<std::span<const RuleOps>, 5> rules();

// The values that every rule takes beside its own.
std::span<const RuleParam> shared_params();

// Sets every state float to the rule's first value.
void start_state(const RuleSettings& settings, size_t n, float* state);

enum class RuleUse { kSparse, kDense };

// Finds the rule and checks its values. InvalidArgument names `what`, the unknown name or the value
// and its range.
StatusOr<RuleSettings> make_rule(const OptimizerOptions& options, RuleUse use,
                                 std::string_view what);

}  // namespace starling
