// Processes is a job as processes of this machine: scheduler, ps, hubs and trainers, started in
// order, watched, and stopped together.
//
// Who dies: a ps ends the job; a scheduler is started again on its ledger; a hub or trainer while
// another lives is reported, and its work is dealt to others (synchronous jobs, whose order names
// them, get a new one in its place).
// Uses: Children, Launch, JobClient. Threads: the main thread.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "bin/children.h"
#include "bin/launch.h"
#include "bin/process.h"
#include "bin/progress.h"

namespace starling {

class Processes {
 public:
  Processes(Launch& launch, const StopSignal& stop, std::string program);
  // To the end of the job: 0; 130 when a signal stopped it. Errors name who died and what it said
  // last.
  StatusOr<int> run();

 private:
  enum class Role { kScheduler, kPs, kHub, kTrainer };
  struct Node : Child {
    Role role = Role::kScheduler;
    uint64_t said = 0;  // bytes of its output that have been shown
    TimePoint started;
  };

  Node& add(Role role, const std::string& name, std::vector<std::string> arguments);
  Status start(Role role, int64_t count, const std::string& word);
  Status start_all();
  Status start_scheduler();
  // The first line that a process prints: it is ready. Codes: it ended before.
  StatusOr<std::string> wait_ready(Node& node);
  Status make_network();

  StatusOr<int> watch();
  // OK: the job goes on.
  Status see_deaths();
  Status died(Node& node);
  void show();
  bool all_ended(Role role) const;
  StatusOr<int> stop_with_cut();
  Status stop_servers();
  std::string said_last(const Node& node) const;
  std::vector<Child*> of(Role role);
  bool may_wait();

  Launch& launch_;
  const JobOptions& job_;
  const StopSignal& stop_;
  const RealClock clock_;
  Children children_;
  std::deque<Node> nodes_;
  std::string scheduler_;  // its address
  Display display_;
  uint64_t metrics_read_ = 0;
  bool is_killed_ = false;  // a second signal came

  Metrics metrics_;
  std::unique_ptr<Network> network_;
  std::shared_ptr<LoopLane> lane_;
  std::unique_ptr<SchedulerClient> tool_;
};

}  // namespace starling
