// Backoff spaces attempts to connect: doubling from a minimum to a maximum, each drawn from the
// upper half of its span, so that many clients of a restarted server do not come all at once.
//
// Uses: base. Threads: lane-local.
#pragma once

#include <algorithm>

#include "base/clock.h"
#include "base/rng.h"

namespace starling {

class Backoff {
 public:
  Backoff(Duration min, Duration max, uint64_t seed)
      : min_(min), max_(max), next_(min), rng_(seed, 0, 0) {}

  Duration next() {
    const Duration span = next_;
    next_ = std::min(next_ * 2, max_);
    const Duration half = span / 2;
    return half +
           Duration(static_cast<int64_t>(rng_.uniform() * static_cast<double>(half.count())));
  }
  void reset() { next_ = min_; }

 private:
  const Duration min_;
  const Duration max_;
  Duration next_;
  Rng rng_;
};

}  // namespace starling
