// Cluster is one run of one plan: all actors, who dies when, and the checks at the end.
//
// Uses: all actors. Threads: one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/client_actor.h"
#include "tests/sim/driver.h"
#include "tests/sim/hub_actor.h"
#include "tests/sim/ps_actor.h"
#include "tests/sim/scheduler_actor.h"
#include "tests/sim/trainer_actor.h"

namespace starling::sim {

struct RunOptions {
  bool trace = false;
  bool hub_invents_ids = false;  // broken on purpose
};

struct RunResult {
  std::string failure;  // empty: all promises were kept
  Image image;
  uint64_t events = 0;
  uint64_t cuts = 0;      // that were committed
  uint64_t restores = 0;  // of the whole job
  Duration simulated{};
};

class Cluster {
 public:
  Cluster(const Plan& plan, const RunOptions& options);
  RunResult run();

 private:
  void start_all();
  void began_training();
  void plan_crash(const Crash& crash);
  void kill(const Crash& crash);
  void restart_job();
  void committed(const Manifest& manifest);
  bool is_over() const;
  void check_end();
  std::string describe_waiting() const;
  Actor* victim(const Crash& crash);
  uint64_t incarnation_of(const std::string& name) const;

  const Plan plan_;
  World world_;
  Network network_;
  Oracle oracle_;
  Vault vault_;
  Stage stage_{oracle_, vault_};
  SchedulerActor scheduler_;
  std::vector<std::unique_ptr<HubActor>> hubs_;
  std::vector<std::unique_ptr<PsActor>> ps_;
  std::vector<std::unique_ptr<TrainerActor>> trainers_;
  std::vector<std::unique_ptr<ClientActor>> clients_;
  Driver driver_;
  Tool tool_;
  std::map<uint64_t, Manifest> manifests_;
  bool planned_ = false;  // crashes and cuts count from the first training
  bool restarting_ = false;
  uint32_t crashes_left_ = 0;
  RunResult result_;
};

// Runs the plan of a seed, and of synchronous plans also the one without faults, whose bits it must
// have.
RunResult run_seed(uint64_t seed, const RunOptions& options);

}  // namespace starling::sim
