// LocalJob is the servers of a job inside of this process, talking by function calls: scheduler, ps
// and hubs.
//
// Uses: every role's door. Threads: made and ended by one thread; its parts have their own.
#pragma once

#include <memory>
#include <vector>

#include "base/log.h"
#include "base/metrics.h"
#include "bin/roles.h"
#include "conf/options.h"
#include "net/network.h"
#include "scheduler/memory_ledger.h"
#include "scheduler/server.h"

namespace starling {

class LocalJob {
 public:
  // All servers are registered when this returns.
  static StatusOr<std::unique_ptr<LocalJob>> start(const JobOptions& job, const Log& log,
                                                   Deadline deadline);
  ~LocalJob();

  Network& network() { return *network_; }
  // Inside of this process.
  const Address& scheduler() const { return scheduler_->addresses().front(); }
  // Where other processes may ask.
  const Address& scheduler_outside() const { return scheduler_->addresses().back(); }

 private:
  LocalJob() = default;
  Status start_scheduler(const JobOptions& job, uint64_t incarnation, const Log& log);
  Status start_servers(const JobOptions& job, const Log& log, Deadline deadline);

  Metrics metrics_;
  RealClock clock_;
  MemoryJournal journal_;
  std::unique_ptr<FileSystems> files_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<JobCuts> cuts_;
  std::unique_ptr<SchedulerServer> scheduler_;
  std::vector<std::unique_ptr<PsServer>> ps_;
  std::vector<std::unique_ptr<HubServer>> hubs_;
};

}  // namespace starling
