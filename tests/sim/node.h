// Node is a process that has registered with the scheduler: it beats, watches, and hears of maps,
// ranks and cuts.
//
// Uses: wire. Threads: one.
#pragma once

#include <set>

#include "tests/sim/network.h"
#include "tests/sim/plan.h"

namespace starling::sim {

inline constexpr uint32_t kSchedulerIndex = 0;  // the first actor
inline constexpr uint32_t kHubIndex = 1;        // the first hub; others follow

v1::BatchId to_proto(const BatchId& id);
BatchId from_proto(const v1::BatchId& id);
std::string text(const BatchId& id);

class Node : public Actor {
 public:
  Node(Network& network, const Plan& plan, v1::Role role, std::string name)
      : Actor(network, std::move(name)), plan_(plan), role_(role) {}

  // Called when the process finds that it has been declared dead, or that its job has started anew.
  Function<void()> on_ended = [] {};
  // Of this life; 0 when it is down.
  uint64_t incarnation() const { return is_up() ? incarnation_ : 0; }
  // Whether the scheduler knows this incarnation as alive; false when nobody can tell.
  std::function<bool(const std::string& name, uint64_t incarnation)> is_known_alive =
      [](const std::string&, uint64_t) { return false; };

 protected:
  void on_start() override;
  void on_crash() override {}
  void receive(Arrived) override {}

  virtual void fill_register(v1::RegisterOption&) {}
  virtual void on_registered(const v1::RegisterReply&) = 0;
  virtual void on_event(const v1::Event& event) = 0;
  // The events tell everything; what they do not tell is no longer so.
  virtual void on_whole(const v1::WatchReply& reply);
  // The process is over because it has left; nobody starts it again.
  virtual bool has_left() { return false; }
  virtual void fill_beat(v1::SchedulerHeartbeatOption&) {}

  Message request() const;
  // With the next number of the session; all before it have been answered.
  Message numbered();
  void ask_scheduler(Method method, Message message, Heard heard) {
    ask(kSchedulerIndex, 0, method, std::move(message), std::move(heard));
  }
  // The actor and lane of a shard of the map.
  uint32_t actor_of(uint32_t shard) const;
  uint32_t shards() const { return static_cast<uint32_t>(map_.shards_size()); }
  // Sends to a shard of the map, again until it is answered.
  void ask_shard(uint32_t shard, Method method, Message message, Heard heard) {
    ask(actor_of(shard), map_.shards(static_cast<int>(shard)).lane(), method, std::move(message),
        std::move(heard));
  }
  uint32_t owner_of_key(uint64_t key) const;
  // True when the reply says that this process is over; it ends then.
  bool is_over(const Message& reply);
  void report_cut(v1::CutPhase phase, uint32_t lane, v1::SaveJobOption option);

  const Plan& plan_;
  const v1::Role role_;
  uint64_t incarnation_ = 0;
  uint64_t replaces_ = 0;  // the incarnation whose place it takes
  uint64_t session_ = 0;
  uint64_t number_ = 0;
  uint32_t id_ = 0;
  uint64_t generation_ = 0;
  uint64_t revision_ = 0;
  uint64_t cut_id_ = 0;  // of the cut heard of last
  v1::ShardMap map_;
  v1::JobState job_state_ = v1::JOB_STATE_UNKNOWN;

 private:
  void enroll();
  void watch();
  void beat();
  void take(const v1::Event& event);
  void end(const std::string& why);
};

}  // namespace starling::sim
