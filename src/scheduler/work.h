// WorkQueues deals work items under leases: taken in order, renewed, acknowledged, given back; what
// a dead taker held is free again.
//
// Uses: base, wire, the records. Threads: the machine's.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "scheduler/records.pb.h"
#include "scheduler/turn.h"

namespace starling {

class WorkQueues {
 public:
  explicit WorkQueues(const SchedulerOptions& options) : options_(options) {}

  // Records of the ledger: "queue/..." and "item/...". Leases start anew at `now`.
  Status load_queue(const LedgerEntry& entry);
  Status load_item(const LedgerEntry& entry, TimePoint now);

  // Each gives the answer, an error included; a request is checked whole before any of it holds.
  Message add(Turn& turn, const v1::AddWorkOption& option);
  Message take(Turn& turn, const v1::TakeWorkOption& option, uint32_t node);
  Message renew(Turn& turn, const v1::RenewWorkOption& option, uint32_t node);
  // Aborted (REASON_LEASE_LOST): somebody else has an item; the message names it.
  Message ack(Turn& turn, const v1::AckWorkOption& option, uint32_t node);
  Message give_back(Turn& turn, const v1::GiveBackWorkOption& option, uint32_t node);

  // A taker has gone; its items are free at once.
  void drop_node(Turn& turn, uint32_t node);
  // Frees the items whose leases have ended.
  void expire(Turn& turn);
  TimePoint next() const;
  // A new generation fills its queues anew.
  void clear(Turn& turn);
  void show(bool with_progress, TimePoint now, v1::GetJobReply* out) const;

 private:
  struct Item {
    ledger::ItemRecord record;
    TimePoint until;  // of the lease
  };
  struct Queue {
    ledger::QueueRecord record;
    std::map<uint32_t, Item> items;
    std::set<uint32_t> free;
    std::set<uint32_t> taken;
    uint64_t samples_trained = 0;  // of all items, since the queue was filled
    uint64_t samples_skipped = 0;

    // Takes the item's samples into the sums, or out of them while its record changes.
    void count(const ledger::ItemRecord& record);
    void uncount(const ledger::ItemRecord& record);
  };
  using Name = std::pair<std::string, uint32_t>;  // queue, epoch
  using Progress = google::protobuf::RepeatedPtrField<v1::WorkProgress>;

  Status check_add(const v1::AddWorkOption& option, const Queue* queue) const;
  // Null when there is no such queue.
  Queue* find(const std::string& queue, uint32_t epoch);
  Status check_items(const Queue* queue, const std::string& name, const Progress& items) const;
  static bool take_progress(Queue& queue, Item& item, const v1::WorkProgress& progress);
  void set_free(Turn& turn, Queue& queue, uint32_t number);
  void save(Turn& turn, const Item& item) const;
  void lease_to(const Item& item, TimePoint now, v1::WorkLease* out) const;
  v1::WorkQueueInfo info_of_queue(const Queue& queue) const;

  const SchedulerOptions& options_;
  std::map<Name, Queue> queues_;
  size_t items_ = 0;
};

}  // namespace starling
