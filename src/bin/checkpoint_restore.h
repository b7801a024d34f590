// Takes a running job back to a cut, for `starling checkpoint restore`.
//
// Uses: base, conf, net, scheduler, ps. Threads: the main thread; it starts and ends a network.
#pragma once

#include <string>

#include "base/clock.h"
#include "conf/options.h"
#include "ps/manifest.h"

namespace starling {

struct RestoreFlags {
  std::string scheduler;
  Duration patience{};
  bool stays_frozen = false;
};

// Prints what was read. Codes as restore_job().
StatusOr<int> restore_cut(const Cut& cut, const JobOptions& job, const RestoreFlags& flags);

}  // namespace starling
