// Paddle's rules with moments: paddle_adam (sparse and dense), paddle_shared_adam, adam_d2sum.
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
#define HWY_TARGET_INCLUDE "table/rule_paddle_adam.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "table/rule_step.inc"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {

inline constexpr RuleParam kPaddleAdamParams[] = {{"lr", 0.001, 0, 1e6},
                                                  {"beta1", 0.9, 0, 0.9999999},
                                                  {"beta2", 0.999, 0, 0.9999999},
                                                  {"eps", 1e-8, 0, 1}};

// One element's step from the old moments m and v, which it moves.
struct PaddleAdamStep {
  Floats size, b1, b2, rest1, rest2, eps;
  HWY_INLINE void operator()(Floats& w, Floats& m, Floats& v, Floats g) const {
    m = hn::Add(hn::Mul(b1, m), hn::Mul(rest1, g));
    v = hn::Add(hn::Mul(b2, v), hn::Mul(rest2, hn::Mul(g, g)));
    w = hn::Sub(w, hn::Mul(size, hn::Div(m, hn::Add(hn::Sqrt(v), eps))));
  }
  static HWY_INLINE PaddleAdamStep of(const RowStep& s, float p1, float p2) {
    return {all(s.rate * std::sqrt(1 - p2) / (1 - p1)),
            all(s.value[1]),
            all(s.value[2]),
            all(1 - s.value[1]),
            all(1 - s.value[2]),
            all(s.value[3])};
  }
};

struct PaddleAdam : RuleBase {
  static constexpr const char* kName = "paddle_adam";
  static constexpr size_t kVectors = 2;
  static constexpr size_t kScalars = 2;
  static constexpr std::span<const RuleParam> kParams{kPaddleAdamParams};
  // The powers start at the betas themselves.
  static float initial(const RuleSettings& settings, size_t k) {
    return k < kVectors ? 0.0f : settings.value[k - kVectors + 1];
  }

  static HWY_INLINE void step(const RowStep& s) {
    float* powers = s.state + 2 * s.n;
    const auto step = PaddleAdamStep::of(s, powers[0], powers[1]);
    for_weights<2>(s.n, s.w, s.state, s.state + s.n, s.g, step);
    powers[0] *= s.value[1];
    powers[1] *= s.value[2];
  }
};

// The dense variable's form: the powers move before their use, eps is scaled, and 1 - beta is
// rounded from double.
struct DensePaddleAdam : PaddleAdam {
  static constexpr bool kSparse = false;
  static constexpr bool kDense = true;

  static HWY_INLINE void step(const RowStep& s) {
    float* powers = s.state + 2 * s.n;
    powers[0] *= s.value[1];
    powers[1] *= s.value[2];
    auto step = PaddleAdamStep::of(s, powers[0], powers[1]);
    step.rest1 = all(static_cast<float>(1 - s.exact[1]));
    step.rest2 = all(static_cast<float>(1 - s.exact[2]));
    step.eps = all(s.value[3] * std::sqrt(1 - powers[1]));
    for_weights<2>(s.n, s.w, s.state, s.state + s.n, s.g, step);
  }
};

struct PaddleSharedAdam : RuleBase {
  static constexpr const char* kName = "paddle_shared_adam";
  static constexpr size_t kScalars = 4;
  static constexpr std::span<const RuleParam> kParams{kPaddleAdamParams};
  static float initial(const RuleSettings& settings, size_t k) {
    return k < 2 ? 0.0f : settings.value[k - 1];
  }

  static HWY_INLINE void step(const RowStep& s) {
    float* m = s.state;
    float* powers = s.state + 2;
    const auto step = PaddleAdamStep::of(s, powers[0], powers[1]);
    Sum16 sum_m;
    Sum16 sum_v;
    for (size_t i = 0; i < s.n; i += kLanes) {
      const size_t left = s.n - i < kLanes ? s.n - i : kLanes;
      const bool whole = left == kLanes;
      Floats w = whole ? hn::LoadU(Lanes16(), s.w + i) : load_tail(s.w + i, left);
      const Floats g = whole ? hn::LoadU(Lanes16(), s.g + i) : load_tail(s.g + i, left);
      Floats vm = all(m[0]);
      Floats vv = all(m[1]);
      step(w, vm, vv, g);
      store_tail(w, s.w + i, left);
      // Lanes past the end hold the old moments, which belong to no element.
      const auto inside = hn::FirstN(Lanes16(), left);
      sum_m.add(i, hn::IfThenElseZero(inside, vm));
      sum_v.add(i, hn::IfThenElseZero(inside, vv));
    }
    m[0] = sum_m.total() / static_cast<float>(s.n);
    m[1] = sum_v.total() / static_cast<float>(s.n);
    powers[0] *= s.value[1];
    powers[1] *= s.value[2];
  }
};

// State: the squares, the momentum, and d2, which is the same for every element.
struct AdamD2Sum : RuleBase {
  static constexpr const char* kName = "adam_d2sum";
  static constexpr bool kSparse = false;
  static constexpr bool kDense = true;
  static constexpr size_t kVectors = 2;
  static constexpr size_t kScalars = 1;
  static constexpr RuleParam kParams[] = {
      {"lr", 0.001, 0, 1e6}, {"momentum", 0.99, 0, 1}, {"rho", 0.9999, 0, 1}, {"eps", 1e-8, 0, 1}};

  struct Step {
    Floats lr, mu, rho, top, spare;
    HWY_INLINE void operator()(Floats& w, Floats& squares, Floats& mom, Floats g) const {
      squares = hn::Add(hn::Mul(squares, rho), hn::Mul(g, g));
      const Floats scale = hn::Sqrt(hn::Div(top, hn::Add(squares, spare)));
      mom = hn::Sub(hn::Mul(hn::Add(mom, g), mu), g);
      w = hn::Add(w, hn::Mul(hn::Mul(lr, mom), scale));
    }
  };
  static HWY_INLINE void step(const RowStep& s) {
    float& d2 = s.state[2 * s.n];
    d2 = d2 * s.value[2] + 1;
    const float spare = d2 * s.value[3];
    const Step step{all(s.rate), all(s.value[1]), all(s.value[2]), all(d2 + spare), all(spare)};
    for_weights<2>(s.n, s.w, s.state, s.state + s.n, s.g, step);
  }
};

std::span<const RuleOps> paddle_adam_ops() {
  static const std::array list = {ops_of<PaddleAdam>(), ops_of<DensePaddleAdam>(),
                                  ops_of<PaddleSharedAdam>(), ops_of<AdamD2Sum>()};
  return list;
}

}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {
namespace {

HWY_EXPORT(paddle_adam_ops);

}  // namespace

std::span<const RuleOps> paddle_adam_rules() { return HWY_DYNAMIC_DISPATCH(paddle_adam_ops)(); }

}  // namespace starling
#endif  // HWY_ONCE
