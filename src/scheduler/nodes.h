// Nodes is the registry: who is in the job, under which id and incarnation, and whose lease holds.
//
// Uses: base, wire, the records. Threads: the machine's.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "scheduler/records.pb.h"
#include "scheduler/turn.h"

namespace starling {

// What a node's heartbeats said last; lost with the process, told again by the next ones.
struct Pulse {
  TimePoint last_seen;
  std::vector<v1::NamedValue> rates;
  uint64_t clock = 0;
  uint64_t seen_revision = 0;
  struct Span {
    uint64_t lowest = 0;
    uint64_t highest = 0;
  };
  std::map<uint32_t, Span> clocks;            // of a ps: rank -> clocks over its shards
  std::map<uint32_t, v1::RankBatch> batches;  // of a ps: the newest of each rank
};

struct NodeEntry {
  ledger::NodeRecord record;
  Pulse pulse;

  const v1::Node& node() const { return record.node(); }
  uint32_t id() const { return record.node().id(); }
  bool is_alive() const {
    return node().state() == v1::NODE_STATE_ALIVE || node().state() == v1::NODE_STATE_LEAVING;
  }
};

class Nodes {
 public:
  explicit Nodes(const SchedulerOptions& options) : options_(options) {}

  // Takes a record of the ledger; the node gets a full lease of grace from `now`.
  Status load(const LedgerEntry& entry, TimePoint now);

  struct Arrival {
    NodeEntry* entry = nullptr;
    bool is_new = false;        // never seen under this name, or it had left or died
    bool is_repeat = false;     // this incarnation is registered already
    bool has_replaced = false;  // another incarnation was alive and is fenced now
  };
  // Registers; the caller tells the event. InvalidArgument: name, role or lanes are wrong.
  // FailedPrecondition: the incarnation is fenced. Aborted: another one lives, and the request does
  // not say that it takes that one's place. ResourceExhausted: nodes_max.
  StatusOr<Arrival> admit(Turn& turn, const v1::Header& header, const v1::RegisterOption& option,
                          uint32_t next_id, uint64_t generation);

  // FailedPrecondition: not the node's living incarnation (REASON_FENCED). NotFound: no such id.
  StatusOr<NodeEntry*> living(const v1::Header& header);
  void beat(NodeEntry& entry, const v1::SchedulerHeartbeatOption& option, TimePoint now);
  // Everybody is as good as heard now: the scheduler itself was away.
  void touch_all(TimePoint now);

  void set_state(Turn& turn, NodeEntry& entry, v1::NodeState state);
  void set_ranks(Turn& turn, NodeEntry& entry, const std::vector<uint32_t>& ranks);
  // Tells all watchers how the node is now, and returns the revision.
  uint64_t tell(Turn& turn, const NodeEntry& entry) const;

  NodeEntry* find(uint32_t id);
  const NodeEntry* find(uint32_t id) const;
  NodeEntry* find(std::string_view name);
  // Alive ones; ROLE_UNKNOWN: of every role.
  std::vector<NodeEntry*> alive(v1::Role role);
  std::vector<const NodeEntry*> alive(v1::Role role) const;
  std::vector<NodeEntry*> expired(TimePoint now);
  // When the next lease ends.
  TimePoint next() const;
  // The node as people see it, with rates and who is slow.
  v1::Node shown(const NodeEntry& entry, TimePoint now) const;
  const std::map<std::string, NodeEntry, std::less<>>& all() const { return by_name_; }

 private:
  Status check_register(const v1::Header& header, const v1::RegisterOption& option) const;
  Status make_room(Turn& turn);
  bool is_slow(const NodeEntry& entry) const;

  const SchedulerOptions& options_;
  std::map<std::string, NodeEntry, std::less<>> by_name_;
  std::map<uint32_t, NodeEntry*> by_id_;
};

}  // namespace starling
