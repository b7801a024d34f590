// Dealer is the part of a hub that deals batches, as a state machine: it is told "this batch was
// made", "this batch is fed", "this request came, it is now t" and answers; it knows leases,
// windows, watermarks and the states of a dataset.
//
// Uses: base, wire. Threads: one caller at a time. It starts no thread, reads no clock, does no
// I/O.
//
// What it promises (PROTOCOL 1, 3, 6): a batch is leased only when every shard has its keys and the
// scheduler knows that it may be begun; a lease that ends is dealt again under the same id; batches
// of an item are begun in their order, so that one watermark per item says what a cut holds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "hub/seats.h"
#include "wire/message.h"

namespace starling {

struct DealerOptions {
  // Batches made and not below their item's watermark: in synchronous jobs the one that the
  // scheduler knows, and at least kRowsAhead rows of ranks.
  uint32_t window = 64;
  Duration lease = seconds(60);  // of a batch
  Duration retry = milliseconds(20);
  uint32_t group_batches = 1;  // leased as one
  bool has_clocks = false;     // staleness is bounded: ranks tick, and cuts lie at a clock
  bool is_synchronous = false;
  uint32_t ranks = 0;            // of synchronous jobs, at their start
  uint32_t ranks_max = 65536;    // numbers that a peer may name
  uint32_t sessions_max = 4096;  // remembered; the one that asked least recently goes first
  uint32_t answers_max = 64;     // remembered per session
};

// A work item of an epoch.
struct ItemName {
  uint32_t epoch = 0;
  uint32_t item = 0;
  auto operator<=>(const ItemName&) const = default;
};

// A batch as a trainer is given it. The dealer fills in lease_ms, group, rank and clock.
struct HubBatch {
  BatchId id;
  v1::BatchLease lease;
  std::vector<Tensor> tensors;
};

// Where the taker of an item begins: as its lease says, what a former taker told.
struct ItemStart {
  uint64_t done_below = 0;       // batches that are done
  uint64_t begun_below = 0;      // those that a former hub may have dealt
  uint64_t samples_trained = 0;  // in the batches that are done
  uint64_t samples_failed = 0;   // in those of them that failed by rule

  uint64_t samples() const { return samples_trained + samples_failed; }
};

// What became of an item's lines.
struct ItemCounts {
  uint64_t samples_read = 0;     // all of it
  uint64_t samples_skipped = 0;  // by rule, before batches were cut
  uint64_t samples_before = 0;   // in batches below the item's first watermark
  uint64_t bytes_read = 0;
};

// Where the order of a synchronous epoch begins.
struct EpochStart {
  uint32_t epoch = 0;
  uint64_t clock = 0;   // of its first row of batches
  uint64_t linear = 0;  // number in the epoch of the batch that is rank 0's at that clock
};

class Dealer {
 public:
  explicit Dealer(const DealerOptions& options);

  // Items and batches, from whoever reads.
  void add_item(const ItemName& name, const ItemStart& start);
  // Batches that may be added now. Bounded by the window over all items.
  size_t room() const;
  // Of an item that is here, in the order of numbers; wants to be fed.
  void add(HubBatch batch);
  // The item has `batches` batches, those below the first watermark included.
  void end_item(const ItemName& name, uint64_t batches, const ItemCounts& counts);
  // Of files that were read before items were made of them.
  void count_bytes(uint64_t bytes) { counts_.set_bytes_read(counts_.bytes_read() + bytes); }
  // Somebody else has the item; what is open of it is dropped.
  void lose_item(const ItemName& name);
  // Nothing can be taken from the queue now: an asker with nothing to do is at the end of the
  // epoch.
  void set_idle(bool is_idle) { is_idle_ = is_idle; }
  void end_data() { is_ended_ = true; }
  void set_bytes_total(uint64_t bytes) { counts_.set_bytes_total(bytes); }
  void fail(Status why);
  const Status& failure() const { return failure_; }

  // Synchronous jobs: the order of batches.
  void begin_epoch(const EpochStart& start);
  // The number in the epoch of the item's first batch.
  void set_base(const ItemName& name, uint64_t linear);
  // How many batches the epoch has.
  void set_epoch_end(uint64_t batches) { epoch_end_ = batches; }
  bool is_epoch_dealt() const { return epoch_end_.has_value(); }
  // Ranks that have joined: from a cut on, whose clock is drained up to, they have their share.
  void seat(const v1::RankSeats& seats) { seats_.set(seats.clock(), seats.ranks()); }
  // The clock behind the rows of so many batches, of which the first begins at `clock`.
  uint64_t clock_behind(uint64_t clock, uint64_t batches) const {
    return batches == 0 ? clock : seats_.place(clock, batches - 1).clock + 1;
  }
  // The next epoch begins at this clock: ranks that are behind the end of this one tick until then.
  void set_next_clock(uint64_t clock) { next_clock_ = clock; }

  // Shards.
  std::vector<BatchId> take_feeds() { return std::exchange(feeds_, {}); }
  // Null when it is done or not here.
  const HubBatch* find(const BatchId& id) const;
  // Another cut of the same batch, by a newer map. False: somebody has it already.
  bool replace(HubBatch batch);
  void fed(const BatchId& id);
  // Watermarks that differ from what all shards are known to have.
  std::vector<v1::Watermark> marks() const;
  // All shards have these.
  void marked(const std::vector<v1::Watermark>& marks);

  // The scheduler's queue.
  //
  // How far items are, for RenewWork; `position` holds below which batches may be dealt. Samples
  // are counted where the watermark has passed them, so that whoever takes an item over counts on.
  std::vector<std::pair<ItemName, v1::WorkProgress>> progress() const;
  // The scheduler knows this of the item.
  void known(const ItemName& name, const v1::WorkProgress& progress);
  // Trainers wait for known(): renew at once.
  bool wants_renewal() const;
  // Items that are done and not acknowledged yet, with all their samples.
  std::vector<std::pair<ItemName, v1::WorkProgress>> finished() const;
  void acked(const ItemName& name);
  static uint64_t begun_below(const std::string& position);

  // What the scheduler tells.
  void on_node_gone(uint32_t node);
  void on_rank(const v1::RankEvent& rank);
  // Deals up to the clock (none: only what is begun) and no further.
  void drain(std::optional<uint64_t> clock);
  bool is_drained() const;
  std::optional<uint64_t> drain_clock() const { return drain_clock_; }
  // The clock up to which it drains; a later one when that has been dealt already.
  std::optional<uint64_t> drained_at() const;
  void resume();

  // Trainers. Hub.ReadSample; always a reply.
  Message read(const Message& request, TimePoint now);

  v1::DatasetState state() const;
  const v1::DatasetCounts& counts() const { return counts_; }
  size_t open_batches() const { return open_; }
  uint64_t clock_dealt() const { return clock_dealt_; }

 private:
  struct Entry {
    HubBatch batch;
    bool is_fed = false;
    bool is_begun = false;     // may have been pushed, here or from a former hub
    bool is_reported = false;  // done, as far as the trainer goes; its group may not be
    bool is_done = false;
    bool has_failed = false;
    TimePoint until{};     // of the lease
    uint64_t session = 0;  // who has it
    uint32_t node = 0;
  };
  struct Item {
    uint64_t done_below = 0;
    uint64_t known_below = 0;  // what the scheduler has heard
    uint64_t told_below = 0;   // what the shards have heard
    bool is_told_finished = false;
    uint64_t limit = 0;  // batches below it may be dealt: the scheduler knows
    std::optional<uint64_t> batches;
    std::optional<uint64_t> base;  // synchronous: number of its first batch
    bool is_acked = false;
    ItemStart start;
    uint64_t samples_trained = 0;  // below the watermark, by former hubs too
    uint64_t samples_failed = 0;   // the same
    ItemCounts counts;
    std::map<uint64_t, Entry> open;

    bool is_finished() const { return batches.has_value() && done_below >= *batches; }
    uint64_t limit_wanted(uint32_t window) const;
    v1::WorkProgress progress(const ItemName& name) const;
  };
  struct Takeover {  // the tick that a dead rank left half done
    BatchId id;
    uint32_t rank = 0;
    uint64_t clock = 0;
    uint64_t session = 0;
    TimePoint until{};
  };
  struct RankSeen {
    uint32_t node = 0;
    uint64_t joined = 0;
    std::optional<uint64_t> leaves;
    uint64_t asked = 0;  // the highest clock at which it asked
  };
  struct Session {
    uint64_t last = 0;  // request
    std::map<uint64_t, Message> answers;
  };
  using Unit = std::vector<std::pair<uint64_t, Entry*>>;  // batches of one group

  Entry* entry_of(const BatchId& id);
  bool is_drained(const ItemName& name, const Item& item) const;
  void report(const v1::ReadSampleOption& option, const v1::Header& header, TimePoint now,
              v1::ReadSampleReply& reply);
  void count_done(const BatchId& id, bool has_failed);
  void advance(const ItemName& name, Item& item);
  void heard(Item& item, uint64_t done_below);
  // The number in the epoch of the first batch that the scheduler does not know to be done.
  uint64_t first_untold() const;
  // The number in the epoch of the first batch of the row at this clock, at or behind the start.
  uint64_t first_of_row(uint64_t clock) const;
  void check_counts(const ItemName& name, const Item& item);

  v1::DatasetState deal(const Message& request, TimePoint now, Message& reply);
  v1::DatasetState deal_any(const Message& request, TimePoint now, Message& reply);
  v1::DatasetState deal_slot(const Message& request, TimePoint now, Message& reply);
  // True: there is one, dealt or about to be.
  bool deal_earlier(const Message& request, TimePoint now, Message& reply);
  bool deal_takeover(const Message& request, TimePoint now, Message& reply);
  bool deal_unit(Item& item, uint64_t number, const Message& request, TimePoint now,
                 Message& reply);
  // The batches of a group that are made and not below the watermark; empty: not all are made.
  Unit unit_of(Item& item, uint64_t number) const;
  bool waits_for(const v1::Header& header) const;
  bool is_reached(uint64_t clock) const;
  bool may_deal(const Item& item, uint64_t number, const Entry& entry) const;
  v1::BatchLease* lease(Entry& entry, const v1::Header& header, TimePoint now, Message& reply);
  Message answer_now(const Message& request, TimePoint now);
  Status check(const Message& request) const;
  void forget_sessions();

  const DealerOptions options_;
  std::map<ItemName, Item> items_;
  size_t open_ = 0;      // entries that are not below their watermark
  uint64_t untold_ = 0;  // batches below it of which the scheduler has not heard
  std::vector<BatchId> feeds_;
  std::map<uint64_t, Session> sessions_;
  uint64_t requests_ = 0;
  v1::DatasetCounts counts_;
  bool is_idle_ = false;
  bool is_ended_ = false;
  bool is_draining_ = false;
  std::optional<uint64_t> drain_clock_;
  Status failure_;

  // Of jobs with clocks.
  uint64_t clock_dealt_ = 0;  // one more than the highest
  std::map<uint32_t, RankSeen> ranks_;

  // Synchronous jobs only.
  Seats seats_;
  EpochStart epoch_;
  std::optional<uint64_t> epoch_end_;
  uint64_t next_clock_ = 0;
  std::set<uint32_t> gone_nodes_;
  std::vector<Takeover> takeovers_;
};

// Adds `by` to every number of a tensor in the lease.
void shift_tensors(v1::BatchLease& lease, uint32_t by);

BatchId batch_id_of(const v1::BatchId& proto);
void to_proto(const BatchId& id, v1::BatchId* out);
std::string text_of(const BatchId& id);

}  // namespace starling
