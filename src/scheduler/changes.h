// Changes announces what holds from a clock on (joins, leaves, the staleness) and finds out when
// every ps has taken it in.
//
// A ps confirms with a heartbeat that has seen the announcement while none of its ranks was past
// the announced clock. When one was faster the change is announced again, further on. The clocks of
// a dead node's ranks are collected the same way: once every ps has seen the death it takes nothing
// more from that incarnation, so what it tells is final. Uses: base, wire, the records. Threads:
// the machine's.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "scheduler/ranks.h"

namespace starling {

class Changes {
 public:
  // Told of every announcement of a staleness.
  using Announced = std::function<void(const v1::StalenessEvent& event)>;

  Changes(const SchedulerOptions& options, const Nodes& nodes, Ranks& ranks, Announced announced)
      : options_(options), nodes_(nodes), ranks_(ranks), announced_(std::move(announced)) {}

  Status load(const LedgerEntry& entry);

  // Announces at the highest known clock plus the lead. `change` has kind, node, ranks and
  // staleness; the rest is set here. DEATH, RETURN and START announce nothing: they wait until
  // everybody has seen the newest event.
  void begin(Turn& turn, ledger::ChangeRecord change);
  // True while it is not settled.
  bool has(uint64_t id) const { return open_.contains(id); }
  // The open change of this kind and node; 0: none.
  uint64_t find(ledger::ChangeKind kind, uint32_t node) const;
  // A staleness is announced for this clock and not settled.
  bool is_announcing(uint64_t clock) const;
  // The call is answered when the change settles, or refused at its deadline.
  void wait(uint64_t id, Token token, TimePoint until);
  bool has_waiters(uint32_t node) const;
  // A ps told something new.
  void heard(Turn& turn, const NodeEntry& ps);
  // Ends a change unsettled; its callers are refused.
  void cancel(Turn& turn, uint64_t id, const Status& why);
  void clear(Turn& turn, const Status& why);

  struct Settled {
    ledger::ChangeRecord change;
    std::vector<Token> tokens;
  };
  // Takes those out that every ps has confirmed.
  std::vector<Settled> settle(Turn& turn);
  // Refuses the callers whose time has passed, naming the ps that are behind.
  void expire(Turn& turn);
  void drop(Token token);
  TimePoint next() const;
  bool is_full() const { return open_.size() >= options_.limits.changes_max; }

 private:
  struct Waiting {
    Token token{};
    TimePoint until;
  };
  struct Open {
    ledger::ChangeRecord record;
    std::set<uint32_t> confirmed;  // ids of ps
    std::vector<Waiting> waiting;
  };
  void announce(Turn& turn, Open& open);
  void confirm(Turn& turn, Open& open, const NodeEntry& ps);
  uint64_t highest_of(const NodeEntry& ps) const;
  std::vector<std::string> behind(const Open& open) const;

  const SchedulerOptions& options_;
  const Nodes& nodes_;
  Ranks& ranks_;
  const Announced announced_;
  std::map<uint64_t, Open> open_;
};

}  // namespace starling
