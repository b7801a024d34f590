// What a job file says of each role, as that role's server takes it; and the scheduler's way to
// published cuts. The one place where either is done, for one process and for many.
//
// Uses: base, conf, store, doors of scheduler, ps and hub. Threads: free functions; JobCuts as
// CutWriter.
#pragma once

#include <string>

#include "base/log.h"
#include "conf/options.h"
#include "hub/server.h"
#include "ps/cut_publisher.h"
#include "ps/server.h"
#include "scheduler/cut_writer.h"
#include "scheduler/options.h"
#include "store/file_systems.h"

namespace starling {

SchedulerOptions scheduler_options(const JobOptions& job);
// Without name, addresses and files; with a new incarnation.
PsServerOptions ps_options(const JobOptions& job);
HubServerOptions hub_options(const JobOptions& job);

// The directory below checkpoint.path with the cut of the best evaluation.
std::string best_cuts_path(const std::string& path);
// The first number that no cut of the job's path has, whatever ledgers the job had.
StatusOr<uint64_t> first_cut(FileSystem& files, const std::string& path);

// Hands what the scheduler knows of a finished cut to the one who knows the format.
class JobCuts final : public CutWriter {
 public:
  // `files` outlives it. `keep`: newest cuts that stay.
  JobCuts(FileSystem& files, Incarnation incarnation, uint32_t keep, const Log& log)
      : publisher_(files, {.incarnation = incarnation}, log), keep_(keep) {}

  void commit(const FinishedCut& cut, Done done) override;
  void discard(const FinishedCut& cut) override;

 private:
  CutPublisher publisher_;
  const uint32_t keep_;
};

}  // namespace starling
