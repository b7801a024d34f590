// LocalJob is every role of a job inside of this process, talking by function calls: scheduler, ps,
// hubs, and the clients of one trainer.
//
// Uses: every role's door. Threads: made and ended by one thread; its parts have their own.
#pragma once

#include <memory>
#include <vector>

#include "base/log.h"
#include "base/metrics.h"
#include "conf/options.h"
#include "hub/client.h"
#include "hub/server.h"
#include "net/network.h"
#include "ps/client.h"
#include "ps/server.h"
#include "scheduler/client.h"
#include "scheduler/memory_ledger.h"
#include "scheduler/server.h"
#include "store/file_systems.h"
#include "trainer/trainer.h"

namespace starling {

class LocalJob : public SchedulerEvents {
 public:
  // All roles are registered when this returns.
  static StatusOr<std::unique_ptr<LocalJob>> start(const JobOptions& job, const Log& log,
                                                   Deadline deadline);
  ~LocalJob() override;

  TrainerClients clients() {
    return {scheduler_client_.get(), ps_client_.get(), hub_client_.get()};
  }
  // As the scheduler took the trainer in.
  const v1::RegisterReply& trainer() const { return registered_; }

 private:
  LocalJob() = default;
  Status start_servers(const JobOptions& job, Deadline deadline);
  Status start_trainer(const JobOptions& job, Deadline deadline);
  void on_event(const v1::Event& event) override;

  Metrics metrics_;
  RealClock clock_;
  MemoryJournal journal_;
  std::unique_ptr<FileSystems> files_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<SchedulerServer> scheduler_;
  std::vector<std::unique_ptr<PsServer>> ps_;
  std::vector<std::unique_ptr<HubServer>> hubs_;

  std::shared_ptr<LoopLane> lane_;
  std::unique_ptr<SchedulerClient> scheduler_client_;
  std::unique_ptr<PsClient> ps_client_;
  std::unique_ptr<HubClient> hub_client_;
  v1::RegisterReply registered_;
};

}  // namespace starling
