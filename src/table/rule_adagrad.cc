// adagrad, rowwise_adagrad, ftrl: torch.optim's and FTRL-proximal's arithmetic.
//
// Uses: rule_step.inc. Threads: any; all are pure.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "table/kernels.h"
#include "table/rules.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "table/rule_adagrad.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "table/rule_step.inc"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {

struct Adagrad : RuleBase {
  static constexpr const char* kName = "adagrad";
  static constexpr bool kDense = true;
  static constexpr size_t kVectors = 1;
  static constexpr RuleParam kParams[] = {
      {"lr", 0.05, 0, 1e6}, {"initial", 0, 0, 1e30}, {"eps", 1e-10, 0, 1}};
  static float initial(const RuleSettings& settings, size_t) { return settings.value[1]; }

  struct Step {
    Floats lr, eps;
    HWY_INLINE void operator()(Floats& w, Floats& sum, Floats&, Floats g) const {
      sum = hn::Add(sum, hn::Mul(g, g));
      w = hn::Sub(w, hn::Div(hn::Mul(lr, g), hn::Add(hn::Sqrt(sum), eps)));
    }
  };
  static HWY_INLINE void step(const RowStep& s) {
    for_weights<1>(s.n, s.w, s.state, nullptr, s.g, Step{all(s.rate), all(s.value[2])});
  }
};

struct RowwiseAdagrad : RuleBase {
  static constexpr const char* kName = "rowwise_adagrad";
  static constexpr size_t kScalars = 1;
  static constexpr RuleParam kParams[] = {
      {"lr", 0.05, 0, 1e6}, {"initial", 0, 0, 1e30}, {"eps", 1e-10, 0, 1}};
  static float initial(const RuleSettings& settings, size_t) { return settings.value[1]; }
  static constexpr bool kHasPrelude = true;
  static HWY_INLINE float prelude(const float* g, size_t n) {
    return mean_of(sum_of_squares(g, n), n);
  }

  struct Step {
    Floats lr, divisor;
    HWY_INLINE void operator()(Floats& w, Floats&, Floats&, Floats g) const {
      w = hn::Sub(w, hn::Div(hn::Mul(lr, g), divisor));
    }
  };
  static HWY_INLINE void step(const RowStep& s) {
    float& sum = s.state[0];
    sum += s.prelude;
    const Step step{all(s.rate), all(std::sqrt(sum) + s.value[2])};
    for_weights<0>(s.n, s.w, nullptr, nullptr, s.g, step);
  }
};

struct Ftrl : RuleBase {
  static constexpr const char* kName = "ftrl";
  static constexpr size_t kVectors = 2;
  static constexpr RuleParam kParams[] = {
      {"alpha", 0.05, 1e-12, 1e6}, {"beta", 1, 0, 1e6}, {"l1", 0, 0, 1e6}, {"l2", 0, 0, 1e6}};

  struct Step {
    Floats alpha, beta, l1, l2;
    HWY_INLINE void operator()(Floats& w, Floats& z, Floats& squares, Floats g) const {
      const Floats grown = hn::Add(squares, hn::Mul(g, g));
      const Floats root = hn::Sqrt(grown);
      const Floats sigma = hn::Div(hn::Sub(root, hn::Sqrt(squares)), alpha);
      z = hn::Add(z, hn::Sub(g, hn::Mul(sigma, w)));
      squares = grown;
      const Floats reach = hn::Sub(z, hn::CopySign(l1, z));
      const Floats divisor = hn::Add(hn::Div(hn::Add(beta, root), alpha), l2);
      const Floats moved = hn::Neg(hn::Div(reach, divisor));
      w = hn::IfThenZeroElse(hn::Le(hn::Abs(z), l1), moved);
    }
  };
  static HWY_INLINE void step(const RowStep& s) {
    const Step step{all(s.rate), all(s.value[1]), all(s.value[2]), all(s.value[3])};
    for_weights<2>(s.n, s.w, s.state, s.state + s.n, s.g, step);
  }
};

std::span<const RuleOps> adagrad_ops() {
  static const std::array list = {ops_of<Adagrad>(), ops_of<RowwiseAdagrad>(), ops_of<Ftrl>()};
  return list;
}

}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {
namespace {

HWY_EXPORT(adagrad_ops);

}  // namespace

std::span<const RuleOps> adagrad_rules() { return HWY_DYNAMIC_DISPATCH(adagrad_ops)(); }

}  // namespace starling
#endif  // HWY_ONCE
