// SchedulerActor is the scheduler's process: the state machine over a ledger that survives it.
//
// Uses: scheduler. Threads: one.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "ps/cut_publisher.h"
#include "tests/sim/network.h"
#include "tests/sim/plan.h"

namespace starling {
struct Outcome;
}  // namespace starling

namespace starling::sim {

// What a cut's manifest says: everything needed to start again from it.
struct Manifest {
  uint64_t cut_id = 0;
  std::optional<uint64_t> clock;
  std::vector<v1::WorkQueueInfo> queues;
  CutDraft draft;  // as it goes to the disks
};

class SchedulerActor final : public Actor {
 public:
  // `committed` is called for each cut whose manifest is in place, perhaps more than once.
  SchedulerActor(Network& network, const Plan& plan, Function<void(const Manifest&)> committed);
  ~SchedulerActor() override;

  void receive(Arrived request) override;
  // The next thing that is to become durable does not: the process dies before its sync.
  void die_at_next_write();
  bool knows_alive(const std::string& name, uint64_t incarnation);
  // The incarnation of the process that runs under a name now; 0: none.
  std::function<uint64_t(const std::string& name)> newest_of = [](const std::string&) { return 0; };

 protected:
  void on_start() override;
  void on_crash() override;

 private:
  class Machine;
  // A Register of a process that is no more must not end the one that is.
  void receive_late_register(Arrived request, uint64_t newest);
  // Durable first, then the answers leave.
  void take(std::unique_ptr<Outcome> outcome);
  void arm();

  const Plan& plan_;
  Function<void(const Manifest&)> committed_;
  std::unique_ptr<Machine> machine_;
  uint64_t arms_ = 0;
};

}  // namespace starling::sim
