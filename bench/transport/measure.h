// Runs every load over every kind in interleaved rounds and says how each fared.
//
// Uses: base, child.h. Threads: one owner; the work is done by child processes.
#pragma once

#include <string>

#include "base/status.h"

namespace starling::bench {

struct Plan {
  int rounds = 15;       // each kind has one burst of each load in each of them
  double burst_s = 0.1;  // a small load's; a large one gets twice as much
  int connections = 1000;
  double idle_s = 4;
};

// The results as one JSON document. The error names the kind that failed.
StatusOr<std::string> measure(const Plan& plan);

}  // namespace starling::bench
