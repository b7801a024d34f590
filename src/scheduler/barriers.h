// Barriers holds the callers of each named barrier until all members are there; one that dies fails
// it by name. No thread waits.
//
// Uses: base, wire, the records. Threads: the machine's.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/nodes.h"

namespace starling {

class Barriers {
 public:
  // `expected` says how many nodes of a role must have been there once; 0: no matter.
  using Expected = std::function<uint32_t(v1::Role role)>;

  Barriers(const SchedulerOptions& options, const Nodes& nodes, Expected expected)
      : options_(options), nodes_(nodes), expected_(std::move(expected)) {}

  Status load(const LedgerEntry& entry);

  void arrive(Turn& turn, Token token, const NodeEntry& node, const Message& request,
              Deadline deadline);
  // The node died, or its process was replaced: `had_arrived_only` fails just those where the old
  // process was waiting.
  void fail_for(Turn& turn, const std::string& node, bool had_arrived_only);
  // Lets those pass whose members are all there now: somebody left in order.
  void review(Turn& turn);
  // Answers those whose time has passed, with who is missing.
  void expire(Turn& turn);
  void drop(Token token);
  TimePoint next() const;
  // A new generation of the job begins: everybody waiting is sent away.
  void clear(Turn& turn);

 private:
  struct Arrived {
    ledger::Arrival arrival;
    std::vector<Token> tokens;  // of the call and its repeats
    TimePoint until;
  };
  struct Open {
    v1::Group group = v1::GROUP_NONE;
    std::vector<std::string> members;  // sorted; empty: the group
    std::map<std::string, Arrived> arrived;
  };
  struct Barrier {
    ledger::BarrierRecord passed;
    std::optional<Open> open;
    uint64_t used = 0;
  };

  Status check(const v1::BarrierOption& option) const;
  Status make_room(Turn& turn, const std::string& name);
  // Members by name, with those of a group that are still expected as "2 more trainers".
  std::vector<std::string> members_of(const Open& open) const;
  std::vector<std::string> missing_of(const Open& open) const;
  std::string dead_member(const Open& open) const;
  bool try_pass(Turn& turn, Barrier& barrier);
  void fail(Turn& turn, Barrier& barrier, const Status& status, const std::string& node);
  void answer_all(Turn& turn, const Arrived& arrived, const Message& message) const;

  const SchedulerOptions& options_;
  const Nodes& nodes_;
  const Expected expected_;
  std::map<std::string, Barrier> barriers_;
  uint64_t uses_ = 0;
};

}  // namespace starling
