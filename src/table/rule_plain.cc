// sgd, momentum, sum, summary.
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
#define HWY_TARGET_INCLUDE "table/rule_plain.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "table/rule_step.inc"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {

struct Sgd : RuleBase {
  static constexpr const char* kName = "sgd";
  static constexpr bool kIsShort = true;
  static constexpr bool kDense = true;
  static constexpr RuleParam kParams[] = {{"lr", 0.05, 0, 1e6}};

  struct Step {
    Floats lr;
    HWY_INLINE void operator()(Floats& w, Floats&, Floats&, Floats g) const {
      w = hn::Sub(w, hn::Mul(lr, g));
    }
  };
  static HWY_INLINE void step(const RowStep& s) {
    for_weights<0>(s.n, s.w, nullptr, nullptr, s.g, Step{all(s.rate)});
  }
};

struct Momentum : RuleBase {
  static constexpr const char* kName = "momentum";
  static constexpr bool kIsShort = true;
  static constexpr bool kDense = true;
  static constexpr size_t kVectors = 1;
  static constexpr RuleParam kParams[] = {{"lr", 0.05, 0, 1e6}, {"momentum", 0.9, 0, 1}};

  struct Step {
    Floats lr, mu;
    HWY_INLINE void operator()(Floats& w, Floats& b, Floats&, Floats g) const {
      b = hn::Add(hn::Mul(mu, b), g);
      w = hn::Sub(w, hn::Mul(lr, b));
    }
  };
  static HWY_INLINE void step(const RowStep& s) {
    for_weights<1>(s.n, s.w, s.state, nullptr, s.g, Step{all(s.rate), all(s.value[1])});
  }
};

struct Sum : RuleBase {
  static constexpr const char* kName = "sum";
  static constexpr bool kIsShort = true;
  static constexpr bool kDense = true;
  static constexpr bool kHasRate = false;
  static constexpr std::span<const RuleParam> kParams{};

  struct Step {
    HWY_INLINE void operator()(Floats& w, Floats&, Floats&, Floats g) const { w = hn::Add(w, g); }
  };
  static HWY_INLINE void step(const RowStep& s) {
    for_weights<0>(s.n, s.w, nullptr, nullptr, s.g, Step());
  }
};

struct Summary : RuleBase {
  static constexpr const char* kName = "summary";
  static constexpr bool kSparse = false;
  static constexpr bool kDense = true;
  static constexpr bool kHasRate = false;
  static constexpr RuleParam kParams[] = {{"decay", 0.999999, 0, 1}};

  struct Step {
    Floats decay;
    HWY_INLINE void operator()(Floats& w, Floats&, Floats&, Floats g) const {
      w = hn::Add(hn::Mul(w, decay), g);
    }
  };
  static HWY_INLINE void step(const RowStep& s) {
    for_weights<0>(s.n, s.w, nullptr, nullptr, s.g, Step{all(s.value[0])});
  }
};

std::span<const RuleOps> plain_ops() {
  static const std::array list = {ops_of<Sgd>(), ops_of<Momentum>(), ops_of<Sum>(),
                                  ops_of<Summary>()};
  return list;
}

}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {
namespace {

HWY_EXPORT(plain_ops);

}  // namespace

std::span<const RuleOps> plain_rules() { return HWY_DYNAMIC_DISPATCH(plain_ops)(); }

}  // namespace starling
#endif  // HWY_ONCE
