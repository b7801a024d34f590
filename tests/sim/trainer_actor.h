// TrainerActor is a scripted trainer of one rank: reads a batch, looks its rows up, computes,
// pushes to every shard, reports it done.
//
// Uses: wire. Threads: one.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "tests/sim/node.h"

namespace starling::sim {

class TrainerActor final : public Node {
 public:
  TrainerActor(Network& network, const Plan& plan, uint32_t number)
      : Node(network, plan, v1::ROLE_TRAINER, fmt::format("trainer-{}", number)) {}

  bool is_finished() const { return finished_; }
  std::string where() const;

 protected:
  void on_start() override;
  bool has_left() override;
  void fill_register(v1::RegisterOption& option) override { option.set_workers(1); }
  void on_registered(const v1::RegisterReply& reply) override;
  void on_event(const v1::Event& event) override;
  void fill_beat(v1::SchedulerHeartbeatOption& option) override { option.set_clock(clock_); }

 private:
  struct Step {
    BatchId id;
    uint32_t rank = 0;
    uint64_t clock = 0;
    bool is_own = true;            // of this trainer's rank, so that it ticks its clock
    bool is_lost = false;          // given up: somebody else finishes it
    bool has_data = false;         // false: an empty tick
    uint32_t hub = 0;              // that dealt it
    std::vector<uint32_t> shards;  // with rows of the batch
    std::map<uint32_t, std::vector<float>> rows;  // by shard
    std::set<uint32_t> unlooked;
    std::set<uint32_t> unpushed;
  };
  void begin();
  void next();
  void heard(const v1::ReadSampleReply& reply);
  void look_up(uint32_t shard);
  void looked_up(uint32_t shard, const Message& reply);
  void give_up();
  void push_all();
  void push(uint32_t shard);
  Message push_message(uint32_t shard) const;
  void add_dense(uint32_t shard, Message& message) const;
  void pushed(uint32_t shard, const Message& reply);
  void empty_tick();
  // Nothing is left to train: the rank leaves in order.
  void leave();
  // Tells the hub that some shard does not know the batch, then goes on.
  void feed_again(World::Action then);
  Message step_request() const;
  std::vector<uint64_t> keys_on(uint32_t shard) const;

  uint32_t rank_ = 0;
  uint64_t clock_ = 0;
  bool running_ = false;
  bool finished_ = false;
  std::optional<uint64_t> leaves_;   // the clock until which it ticks
  bool has_asked_to_leave_ = false;  // in this life or a former one
  Step step_;
  uint64_t steps_ = 0;                             // a late answer to a former step changes nothing
  uint64_t asked_ = 0;                             // hubs, one after the other
  std::map<uint32_t, std::vector<BatchId>> done_;  // by hub: not reported yet
};

}  // namespace starling::sim
