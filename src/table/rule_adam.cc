// adam, adamw: torch.optim's arithmetic with a step count of the row's (or the variable's) own.
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
#define HWY_TARGET_INCLUDE "table/rule_adam.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "table/rule_step.inc"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {

// base^count by squaring: the same bits on every machine, which libm's pow does not promise.
HWY_INLINE double power(double base, uint32_t count) {
  double result = 1;
  for (; count != 0; count >>= 1, base *= base) {
    if ((count & 1) != 0) result *= base;
  }
  return result;
}

struct Adam : RuleBase {
  static constexpr const char* kName = "adam";
  static constexpr bool kDense = true;
  static constexpr size_t kVectors = 2;
  static constexpr size_t kScalars = 1;
  static constexpr RuleParam kParams[] = {{"lr", 0.001, 0, 1e6},
                                          {"beta1", 0.9, 0, 0.9999999},
                                          {"beta2", 0.999, 0, 0.9999999},
                                          {"eps", 1e-8, 0, 1}};

  struct Step {
    Floats size, b1, b2, rest1, rest2, root, eps;
    HWY_INLINE void operator()(Floats& w, Floats& m, Floats& v, Floats g) const {
      m = hn::Add(hn::Mul(b1, m), hn::Mul(rest1, g));
      v = hn::Add(hn::Mul(b2, v), hn::Mul(rest2, hn::Mul(g, g)));
      const Floats divisor = hn::Add(hn::Div(hn::Sqrt(v), root), eps);
      w = hn::Sub(w, hn::Mul(size, hn::Div(m, divisor)));
    }
  };
  static HWY_INLINE void step(const RowStep& s) {
    float& count = s.state[2 * s.n];
    count += 1;
    const auto t = static_cast<uint32_t>(count);
    const double rest1 = 1 - power(s.exact[1], t);
    const double rest2 = 1 - power(s.exact[2], t);
    const Step step{all(static_cast<float>(static_cast<double>(s.rate) / rest1)),
                    all(s.value[1]),
                    all(s.value[2]),
                    all(static_cast<float>(1 - s.exact[1])),
                    all(static_cast<float>(1 - s.exact[2])),
                    all(static_cast<float>(std::sqrt(rest2))),
                    all(s.value[3])};
    for_weights<2>(s.n, s.w, s.state, s.state + s.n, s.g, step);
  }
};

struct AdamW : Adam {
  static constexpr const char* kName = "adamw";
  static constexpr bool kDecoupledDecay = true;
  static constexpr RuleParam kParams[] = {{"lr", 0.001, 0, 1e6},
                                          {"beta1", 0.9, 0, 0.9999999},
                                          {"beta2", 0.999, 0, 0.9999999},
                                          {"eps", 1e-8, 0, 1},
                                          {"weight_decay", 0.01, 0, 1e3}};

  struct Decay {
    Floats keep;
    HWY_INLINE void operator()(Floats& w, Floats&, Floats&, Floats) const { w = hn::Mul(w, keep); }
  };
  static HWY_INLINE void step(const RowStep& s) {
    const Decay decay{all(static_cast<float>(1 - static_cast<double>(s.rate) * s.exact[4]))};
    for_weights<0>(s.n, s.w, nullptr, nullptr, s.g, decay);
    Adam::step(s);
  }
};

std::span<const RuleOps> adam_ops() {
  static const std::array list = {ops_of<Adam>(), ops_of<AdamW>()};
  return list;
}

}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {
namespace {

HWY_EXPORT(adam_ops);

}  // namespace

std::span<const RuleOps> adam_rules() { return HWY_DYNAMIC_DISPATCH(adam_ops)(); }

}  // namespace starling
#endif  // HWY_ONCE
