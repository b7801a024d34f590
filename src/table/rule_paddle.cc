// Paddle's rules with sums of squares: paddle_adagrad, paddle_adagrad_v2, paddle_std_adagrad.
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
#define HWY_TARGET_INCLUDE "table/rule_paddle.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "table/rule_step.inc"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {

// Adds squares of g / scale.
struct ScaledSquares {
  Floats scale;
  Sum16 sum;
  HWY_INLINE void operator()(size_t at, Floats g) {
    const Floats scaled = hn::Div(g, scale);
    sum.add(at, hn::Mul(scaled, scaled));
  }
};

HWY_INLINE float mean_square(const float* g, size_t n, float scale) {
  ScaledSquares squares{all(scale), Sum16()};
  for_values(g, n, squares);
  return squares.sum.total() / static_cast<float>(n);
}

struct PaddleAdagrad : RuleBase {
  static constexpr const char* kName = "paddle_adagrad";
  static constexpr size_t kScalars = 1;
  static constexpr RuleParam kParams[] = {{"lr", 0.05, 0, 1e6}, {"initial", 3, 1e-30, 1e30}};

  struct Step {
    Floats lr, scale, ratio;
    HWY_INLINE void operator()(Floats& w, Floats&, Floats&, Floats g) const {
      w = hn::Sub(w, hn::Mul(hn::Mul(lr, hn::Div(g, scale)), ratio));
    }
  };
  static HWY_INLINE void step(const RowStep& s) {
    float& sum = s.state[0];
    const float first = s.value[1];
    const Step step{all(s.rate), all(s.scale), all(std::sqrt(first / (first + sum)))};
    for_weights<0>(s.n, s.w, nullptr, nullptr, s.g, step);
    sum += mean_square(s.g, s.n, s.scale);
  }
};

struct PaddleAdagradV2 : RuleBase {
  static constexpr const char* kName = "paddle_adagrad_v2";
  static constexpr size_t kScalars = 1;
  static constexpr RuleParam kParams[] = {{"lr", 0.05, 0, 1e6}};

  struct Step {
    Floats lr, scale, divisor;
    HWY_INLINE void operator()(Floats& w, Floats&, Floats&, Floats g) const {
      w = hn::Sub(w, hn::Div(hn::Mul(lr, hn::Div(g, scale)), divisor));
    }
  };
  static HWY_INLINE void step(const RowStep& s) {
    float& sum = s.state[0];
    sum += mean_square(s.g, s.n, s.scale);
    const Step step{all(s.rate), all(s.scale), all(std::sqrt(sum) + 1e-8f)};
    for_weights<0>(s.n, s.w, nullptr, nullptr, s.g, step);
  }
};

struct PaddleStdAdagrad : RuleBase {
  static constexpr const char* kName = "paddle_std_adagrad";
  static constexpr size_t kVectors = 1;
  static constexpr RuleParam kParams[] = {{"lr", 0.05, 0, 1e6}, {"initial", 3, 1e-30, 1e30}};

  struct Step {
    Floats lr, scale, first;
    HWY_INLINE void operator()(Floats& w, Floats& sum, Floats&, Floats g) const {
      const Floats scaled = hn::Div(g, scale);
      const Floats ratio = hn::Sqrt(hn::Div(first, hn::Add(first, sum)));
      w = hn::Sub(w, hn::Mul(hn::Mul(lr, scaled), ratio));
      sum = hn::Add(sum, hn::Mul(scaled, scaled));
    }
  };
  static HWY_INLINE void step(const RowStep& s) {
    const Step step{all(s.rate), all(s.scale), all(s.value[1])};
    for_weights<1>(s.n, s.w, s.state, nullptr, s.g, step);
  }
};

std::span<const RuleOps> paddle_ops() {
  static const std::array list = {ops_of<PaddleAdagrad>(), ops_of<PaddleAdagradV2>(),
                                  ops_of<PaddleStdAdagrad>()};
  return list;
}

}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {
namespace {

HWY_EXPORT(paddle_ops);

}  // namespace

std::span<const RuleOps> paddle_rules() { return HWY_DYNAMIC_DISPATCH(paddle_ops)(); }

}  // namespace starling
#endif  // HWY_ONCE
