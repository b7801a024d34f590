// HubActor is a small honest hub: it takes work items, feeds their batches, leases them to trainers
// and counts what is done, by the rules of PROTOCOL 1 to 3 and 6.
//
// Uses: wire. Threads: one.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "tests/sim/node.h"

namespace starling::sim {

class HubActor final : public Node {
 public:
  // `invents_ids`: broken on purpose, a batch that is dealt again gets a new id.
  HubActor(Network& network, const Plan& plan, uint32_t number, bool invents_ids)
      : Node(network, plan, v1::ROLE_HUB, fmt::format("hub-{}", number)),
        invents_ids_(invents_ids) {}

  void receive(Arrived request) override;
  bool is_finished() const { return finished_; }
  // What this life of the hub knows to be done.
  std::set<BatchId> done() const;

 protected:
  void on_start() override;
  void on_registered(const v1::RegisterReply&) override;
  void fill_beat(v1::SchedulerHeartbeatOption& option) override { option.set_clock(clock_dealt_); }
  void on_event(const v1::Event& event) override;
  void on_whole(const v1::WatchReply&) override {
    ranks_.clear();
    draining_ = false;
  }

 private:
  struct Batch {
    bool done = false;
    bool dealt = false;
    std::set<uint32_t> unfed;  // shards; all of them before the first feed
    bool was_fed = false;      // at least asked for
    TimePoint lease_until{};
    uint64_t deals = 0;
  };
  struct Item {
    uint64_t done_below = 0;
    uint64_t known_below = 0;  // what the scheduler has heard of it
    // Batches below it may be dealt: the scheduler knows it, so that whoever takes the item over
    // knows which batches may be half pushed.
    uint64_t limit = 0;
    uint64_t limit_wanted = 0;
    bool acking = false;
    bool acked = false;
    std::map<uint64_t, Batch> batches;  // by number, from where it was taken
  };
  struct Takeover {  // the tick that a dead rank left half done
    BatchId id;
    uint32_t rank = 0;
    uint64_t clock = 0;
    uint64_t session = 0;  // of the trainer that does it
    TimePoint until{};
  };
  struct RankSeen {
    uint32_t node = 0;
    uint64_t joined = 0;
    std::optional<uint64_t> leaves;
    uint64_t asked = 0;  // the highest clock at which it asked for a batch
  };

  void take_work();
  void take_item();
  void took(const v1::TakeWorkReply& reply);
  void renew();
  void send_renewal();
  void count_done(const BatchId& id, uint64_t session);
  void progress();
  void ack(uint32_t item);

  Batch* find(const BatchId& id);
  uint64_t lowest_open() const;
  // Of synchronous runs what the scheduler does not know to be done counts as open: a hub that
  // comes anew starts from there, and has to deal the row that ranks wait in.
  uint64_t window_end() const;
  uint64_t limit_from(uint64_t done_below) const;
  void feed_window();
  void feed(const BatchId& id);
  void send_feed(const BatchId& id, uint32_t shard);
  void send_watermarks();
  Message feed_message(const BatchId& id, uint32_t shard) const;
  void add_watermarks(v1::FeedSampleOption& option) const;

  void read_sample(const Arrived& request, v1::ReadSampleReply& reply);
  v1::DatasetState deal(const v1::Header& header, v1::ReadSampleReply& reply);
  v1::DatasetState deal_slot(uint32_t rank, uint64_t clock, v1::ReadSampleReply& reply);
  // A batch of the rank that was dealt for an earlier clock and never reported.
  bool deal_earlier(uint32_t rank, uint64_t linear, v1::ReadSampleReply& reply);
  bool deal_any(v1::ReadSampleReply& reply);
  bool deal_takeover(uint64_t session, v1::ReadSampleReply& reply);
  bool may_deal(const BatchId& id, const Batch& batch) const;
  v1::BatchLease* lease(const BatchId& id, Batch& batch, v1::ReadSampleReply& reply);
  void drain(const v1::CutEvent& cut);
  void report_passed(uint64_t clock);
  bool is_drained() const;
  void report_drained();

  const bool invents_ids_;
  std::map<uint32_t, Item> items_;
  bool has_taken_begun_ = false;  // every item that a former hub had begun
  bool has_base_ = false;         // base_ and start_ are known
  bool taking_ = false;
  bool starves_ = false;  // a rank wants a batch of an item that is not here
  bool marks_changed_ = false;
  uint64_t clock_dealt_ = 0;  // one more than the highest
  bool finished_ = false;
  uint64_t base_ = 0;                                          // the first batch of this generation
  uint64_t start_ = 0;                                         // the first clock of it
  std::map<uint64_t, std::pair<uint64_t, Message>> answered_;  // by session: the newest
  std::vector<Takeover> takeovers_;
  std::map<uint32_t, RankSeen> ranks_;
  std::set<uint32_t> gone_nodes_;
  bool draining_ = false;
  bool drained_ = false;
  std::optional<uint64_t> drain_clock_;
};

}  // namespace starling::sim
