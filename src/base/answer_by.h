// When a request that waits is answered with what it waited for: while its caller still listens.
//
// Uses: clock. Threads: any.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace starling {

// An eighth of the caller's time, at most two seconds, is left for the answer's way: on a loaded
// machine that takes long, and a caller that hears nothing does not learn what was missing. A
// caller without a deadline waits for 30 s.
inline TimePoint answer_by(Deadline deadline, TimePoint now) {
  if (deadline.is_never()) return now + seconds(30);
  return deadline.at() - std::min<Duration>(deadline.left(now) / 8, seconds(2));
}

}  // namespace starling
