// SchedulerServer runs the scheduler: one lane, the machine, its ledger and its timer.
//
// Group commit: what a turn of the lane changes is committed at once and synced once, before the
// answers of that turn leave; requests that arrive during a sync share the next one. Uses: base,
// wire, net. Threads: start(), stop() and failure() from any; the rest on its lane.
#pragma once

#include <memory>
#include <vector>

#include "net/network.h"
#include "net/server.h"
#include "scheduler/cut_writer.h"
#include "scheduler/ledger.h"
#include "scheduler/options.h"

namespace starling {

struct SchedulerServerOptions {
  SchedulerOptions scheduler;
  std::vector<Address> listen;
  uint64_t incarnation = 1;    // of this process: the owner of the ledger
  std::shared_ptr<Lane> lane;  // none: one with a thread of its own
};

class SchedulerServer {
 public:
  // `writer` may be null: cuts then fail at their commit. Both outlive the server. Codes as
  // Server::start, and DataLoss when the ledger is not a scheduler's.
  static StatusOr<std::unique_ptr<SchedulerServer>> start(Network& network,
                                                          SchedulerServerOptions options,
                                                          std::unique_ptr<Ledger> ledger,
                                                          CutWriter* writer);
  // Stops at once when nobody has called stop().
  ~SchedulerServer();

  const std::vector<Address>& addresses() const { return server_->addresses(); }
  // Why the scheduler cannot go on (its ledger failed, another process owns it); OK while it can.
  Status failure() const;
  // Sends waiting callers away, then stops. Twice is fine.
  Status stop(Deadline deadline);

 private:
  class Desk;
  SchedulerServer() = default;

  std::shared_ptr<LoopLane> own_lane_;
  std::shared_ptr<Lane> lane_;
  std::shared_ptr<Desk> desk_;
  std::unique_ptr<Server> server_;
};

}  // namespace starling
