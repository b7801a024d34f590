// Ranks numbers the training workers of the job and knows their clocks, as the ps and the trainers
// tell them.
//
// Uses: base, wire, the records. Threads: the machine's.
#pragma once

#include <map>
#include <vector>

#include "scheduler/nodes.h"

namespace starling {

class Ranks {
 public:
  Ranks(const SchedulerLimits& limits, const Nodes& nodes) : limits_(limits), nodes_(nodes) {}

  Status load(const LedgerEntry& entry);

  // Gives the node `count` of the lowest free numbers, from `clock` on. ResourceExhausted:
  // ranks_max.
  StatusOr<std::vector<uint32_t>> assign(Turn& turn, uint32_t node, uint32_t count, uint64_t clock);
  void set_start(Turn& turn, uint32_t rank, uint64_t clock);
  void set_leave(Turn& turn, uint32_t rank, uint64_t clock);
  // The rank's node died in the middle of a step: it stays known as leaving until every shard has
  // that step, so that a restarted scheduler and a restarted hub tell and hear of it again.
  void set_half_left(Turn& turn, const v1::RankEvent& leave);
  // The number is free again.
  void erase(Turn& turn, uint32_t rank);
  void clear(Turn& turn);

  std::vector<uint32_t> of_node(uint32_t node) const;
  // Of them those without an announced leave.
  std::vector<uint32_t> staying(uint32_t node) const;
  bool empty() const { return ranks_.empty(); }
  const std::map<uint32_t, ledger::RankRecord>& all() const { return ranks_; }

  // The clocks of one rank over all shards of all living ps; its start where none is known.
  Pulse::Span clocks(uint32_t rank) const;
  // Every living ps has told that all of its shards have the rank's steps below `clock`.
  bool have_all(uint32_t rank, uint64_t clock) const;
  // The highest clock that anybody has told of.
  uint64_t highest() const;
  // The lowest of all active ranks.
  uint64_t lowest() const;

  // Tells that the rank joins or, where it is leaving, leaves.
  static uint64_t tell_join(Turn& turn, const ledger::RankRecord& rank);
  static uint64_t tell_leave(Turn& turn, const v1::RankEvent& leave);
  // Adds the events that tell all ranks.
  void tell_all(v1::WatchReply* out) const;

 private:
  const SchedulerLimits limits_;
  const Nodes& nodes_;
  std::map<uint32_t, ledger::RankRecord> ranks_;
};

}  // namespace starling
