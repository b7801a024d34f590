// PsActor is the process of a parameter server: its shards, what the scheduler tells them, and the
// witness that checks every answer of theirs.
//
// Uses: ps/shard.h. Threads: one.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "ps/cut_saver.h"
#include "tests/sim/node.h"
#include "tests/sim/oracle.h"

namespace starling::sim {

// What the cluster's actors share beside the wire: the oracle's eyes and the disks.
struct Stage {
  Oracle& oracle;
  Vault& vault;
};

class PsActor final : public Node {
 public:
  PsActor(Network& network, const Plan& plan, uint32_t number, Stage& stage);
  ~PsActor() override;

  void receive(Arrived request) override;
  // Adds what the shards hold to the image, and checks that nobody waits here.
  void collect(Image& image);
  void check_nobody_waits();

 protected:
  void on_start() override;
  void on_crash() override;
  void fill_register(v1::RegisterOption& option) override;
  void on_registered(const v1::RegisterReply& reply) override;
  void on_event(const v1::Event& event) override;
  void on_whole(const v1::WatchReply& reply) override;
  void fill_beat(v1::SchedulerHeartbeatOption& option) override;

 private:
  class Host;
  struct Open {
    Ticket ticket;
    Method method{};
    Message request;
  };
  struct Told {  // about a rank
    uint64_t joined = 0;
    std::optional<uint64_t> leaves;
  };
  struct Lane {
    std::unique_ptr<Host> host;
    std::unique_ptr<Shard> shard;
    std::unique_ptr<CutSaver> saver;  // goes before the shard
    uint64_t saving = 0;              // the cut
    std::map<Token, Open> open;
    uint64_t arms = 0;
    // The witness: what was acknowledged, kept apart from the shard's own clocks.
    std::map<Rank, Told> told;
    std::map<uint64_t, std::optional<uint32_t>> bounds;  // by the first clock they hold for
    std::map<Rank, std::set<uint64_t>> ticks;
    std::map<Rank, v1::RankBatch> newest;
  };
  void flush(uint32_t lane);
  void witness(uint32_t lane, const Open& open, const Message& reply);
  void witness_push(Lane& lane, const std::string& name, const Open& open);
  void witness_lookup(const Lane& lane, const std::string& name, const Open& open);
  static uint64_t clock_of(const Lane& lane, Rank rank);
  static std::optional<uint32_t> bound_at(const Lane& lane, uint64_t clock);
  static void witness_staleness(Lane& lane, const v1::StalenessEvent& event);
  void tell(uint32_t lane, const v1::Event& event);
  void on_cut(const v1::CutEvent& cut);
  void snapshot(uint64_t cut_id, const v1::CutEvent& cut);
  void write(uint64_t cut_id);
  // A cut that runs no more was published or has failed.
  void settle(uint64_t newest_cut, uint64_t running);
  void arm(uint32_t lane);
  std::string lane_name(uint32_t lane) const { return fmt::format("{}.{}", name(), lane); }

  const uint32_t lanes_planned_;
  Stage& stage_;
  std::vector<Lane> lanes_;
  uint64_t tokens_ = 0;
};

}  // namespace starling::sim
