// Launch is a run of a job before its first server: its flags checked, its directory held, the cut
// that it starts from found.
//
// Uses: conf, store, ps' manifests, JobClient. Threads: the main thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bin/job_client.h"
#include "bin/run_directory.h"
#include "conf/flags.h"

namespace starling {

struct LaunchFlags {
  Flags job;
  std::string run;        // empty: the default of the job's name
  std::string init_from;  // a cut, or a directory of cuts
  bool resumes = false;
  bool is_fresh = false;  // cuts of an earlier run are not in the way
};

struct Launch {
  LaunchFlags flags;
  Job job;
  RunDirectory run;
  std::optional<Cut> cut;  // to go on from, or to take tables of
};

// NotFound: no cut to go on from. FailedPrecondition: keys have changed that must not, or cuts of
// an earlier run are in the way. AlreadyExists: the job runs.
StatusOr<Launch> prepare_launch(LaunchFlags flags, Job job);

// Takes the started servers of the job to the cut that the flags name, if any; the job is frozen
// then.
Status restore_launch(Network& network, const Address& scheduler, const Launch& launch,
                      Deadline deadline);

}  // namespace starling
