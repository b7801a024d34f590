// The last windows of all trainers of a job as one, through the scheduler's key-value space: each
// puts its own, whoever leads reads all.
//
// Uses: scheduler/client.h, trainer/window.h. Threads: free functions.
#pragma once

#include "scheduler/client.h"
#include "trainer/window.h"

namespace starling {

// The key goes when the node does.
Status put_window(SchedulerClient& scheduler, uint32_t node, const TrainWindow& window,
                  Deadline deadline);
StatusOr<TrainWindow> merged_window(SchedulerClient& scheduler, Deadline deadline);

}  // namespace starling
