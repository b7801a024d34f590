// ClientActor is a client that trains by key: numbered pushes, several in flight, each repeated
// until it is acknowledged, and reads that must see what was acknowledged.
//
// Uses: wire. Threads: one.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "tests/sim/node.h"

namespace starling::sim {

class ClientActor final : public Node {
 public:
  ClientActor(Network& network, const Plan& plan, uint32_t number)
      : Node(network, plan, v1::ROLE_CLIENT, fmt::format("client-{}", number)), client_(number) {}

  bool is_finished() const { return finished_; }

 protected:
  void on_start() override;
  void on_registered(const v1::RegisterReply&) override { begin(); }
  void on_event(const v1::Event& event) override;
  void on_whole(const v1::WatchReply& reply) override;

 private:
  struct Operation {
    std::map<uint64_t, float> keys;  // what it adds, or sets, or (empty) nothing
    std::set<uint32_t> unanswered;   // shards
    enum class Kind { kAdd, kSet, kErase } kind = Kind::kAdd;
  };
  void begin();
  void proceed();
  void send_operation();
  void send_part(uint64_t number, uint32_t shard);
  void acknowledged(uint64_t number, uint32_t shard, const Message& reply);
  void read_back(World::Action then);
  uint64_t key(uint64_t i) const;

  const uint32_t client_;
  bool running_ = false;
  bool finished_ = false;
  bool paused_ = false;
  bool reading_ = false;
  bool reported_ = false;
  uint32_t left_ = 0;
  uint64_t next_number_ = 1;
  std::map<uint64_t, Operation> open_;
  std::map<uint64_t, float> rows_;  // as acknowledged
};

}  // namespace starling::sim
