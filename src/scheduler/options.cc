#include "scheduler/options.h"

namespace starling {

Status validate(const SchedulerOptions& options) {
  if (options.lease < milliseconds(100) || options.lease > seconds(3600)) {
    return invalid_argument("scheduler.lease_ms is {}, allowed are 100 to 3600000",
                            options.lease / milliseconds(1));
  }
  if (options.heartbeat < milliseconds(10) || options.heartbeat > options.lease / 2) {
    return invalid_argument("scheduler heartbeat of {} ms: allowed are 10 ms to half of the lease",
                            options.heartbeat / milliseconds(1));
  }
  if (options.work_lease < options.heartbeat) {
    return invalid_argument("scheduler work lease of {} ms is shorter than a heartbeat",
                            options.work_lease / milliseconds(1));
  }
  if (options.lead_clocks == 0) return invalid_argument("scheduler lead_clocks is 0, at least 1");
  return absl::OkStatus();
}

}  // namespace starling
