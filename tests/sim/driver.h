// Driver is whoever started the job: it creates the tables, starts the training, asks for cuts, and
// starts the job again from its newest cut when a ps has died. It does not die itself.
//
// Uses: wire. Threads: one.
#pragma once

#include "tests/sim/node.h"
#include "tests/sim/scheduler_actor.h"

namespace starling::sim {

// Tool is a person with a shell: it asks the scheduler for a new generation of the job.
class Tool final : public Actor {
 public:
  explicit Tool(Network& network) : Actor(network, "tool") {}
  void receive(Arrived) override {}
  // Before anybody of the job starts again; its ranks start at `clock`.
  void renew_generation(uint64_t known, uint64_t clock, World::Action then);

 protected:
  void on_start() override {}
  void on_crash() override {}

 private:
  uint64_t number_ = 0;
};

class Driver final : public Node {
 public:
  Driver(Network& network, const Plan& plan) : Node(network, plan, v1::ROLE_CLIENT, "driver") {}

  // From which manifest the next start goes on; none: from the beginning.
  std::optional<Manifest> manifest;
  Function<void()> on_training = [] {};
  Function<void()> on_failed = [] {};
  // The newest cut on the disks; 0: none.
  std::function<uint64_t()> base_cut = [] { return 0; };

  bool is_training() const { return training_; }
  bool is_cutting() const { return cutting_; }
  uint64_t known_generation() const { return known_generation_; }
  void cut(Upkeep upkeep);
  void change_staleness();

 protected:
  void on_start() override;
  void on_registered(const v1::RegisterReply& reply) override;
  void on_event(const v1::Event& event) override;
  void on_whole(const v1::WatchReply&) override {
    cutting_ = false;
    upkeep_ = Upkeep::kNone;
  }

 private:
  void wait_for_all();
  struct ToAll {
    Method method{};
    std::function<Message()> make;
    World::Action then;
    uint32_t left = 0;  // shards
  };
  // Sends to every shard, then goes on.
  void to_all(Method method, std::function<Message()> make, World::Action then);
  void to_one(uint32_t shard, const std::shared_ptr<ToAll>& task);
  void create();
  void restore();
  void freeze();
  void set_job(v1::JobState state, World::Action then);
  void add_work();
  // Reports that it stands still; with an upkeep to do not before everybody else does.
  void report_drained(uint64_t cut_id);
  void keep_up(uint64_t cut_id);
  // Several may be open at once, so none is forgotten.
  Message numbered_alone();

  uint64_t schema_hash_ = 0;
  uint64_t known_generation_ = 1;
  bool training_ = false;
  bool cutting_ = false;
  Upkeep upkeep_ = Upkeep::kNone;  // to be done in the cut that runs
  bool has_staleness_ = false;     // of the job, when this life registered
  uint32_t staleness_ = 0;
};

}  // namespace starling::sim
