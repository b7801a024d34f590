// The learning rate as a function of the step number, so that a restart continues the same curve.
//
// Uses: base. Threads: any; a schedule is a value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace starling {

struct ScheduleOptions {
  // constant; step: times `factor` every `period_steps`; exponential: times factor^(step /
  // period_steps), smoothly; cosine: from 1 down to `floor` over `period_steps`, then `floor`.
  std::string kind = "constant";
  uint64_t warmup_steps = 0;  // of any kind: the rate first rises linearly over this many steps
  uint64_t period_steps = 1;
  double factor = 1;
  double floor = 0;
};

// InvalidArgument names `what`, the option and its range.
Status check_schedule(const ScheduleOptions& options, std::string_view what);

// What the base rate is multiplied with at `step`, counted from 0. The periods start after the
// warm-up.
double schedule_factor(const ScheduleOptions& options, uint64_t step);

}  // namespace starling
