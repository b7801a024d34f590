// RankClocks is a shard's vector clock: how many steps each rank has finished here, who takes part,
// and how far ahead a rank may be.
//
// Uses: base. Threads: shard-local. No clock of the wall, no I/O.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace starling {

inline constexpr uint64_t kTicksAheadMax = 4096;  // of one rank, above its clock

class RankClocks {
 public:
  // Without a bound: asynchronous.
  void set_staleness(std::optional<uint32_t> staleness) { staleness_ = staleness; }
  std::optional<uint32_t> staleness() const { return staleness_; }
  bool synchronous() const { return staleness_ == 0u; }

  // The rank takes part from `clock` on: it counts as having finished all steps before.
  void join(Rank rank, uint64_t clock);
  // From `clock` on nobody waits for the rank.
  void leave(Rank rank, uint64_t clock);
  bool active(Rank rank) const { return ranks_.contains(rank); }
  // Those that take part in step `clock`, ascending.
  std::vector<Rank> members(uint64_t clock) const;

  // The rank has finished step `clock`. Repeats and ticks in another order are fine.
  // ResourceExhausted: too far ahead. A rank that nobody announced joins by its first tick, so that
  // unannounced asynchronous clients can be followed.
  Status tick(Rank rank, uint64_t clock);
  bool ticked(Rank rank, uint64_t clock) const;
  uint64_t clock(Rank rank) const;

  // True when a lookup at `clock` may be answered: every member has reached clock - staleness.
  bool ready(uint64_t clock) const;
  // Steps by which the slowest member is behind `clock`.
  uint64_t behind(uint64_t clock) const;
  // For an error: who is not there yet.
  std::vector<Rank> waiting_for(uint64_t clock) const;

  const auto& all() const { return ranks_; }

  struct State {
    uint64_t clock = 0;              // finished steps
    uint64_t joined = 0;             // the first step it takes part in
    std::optional<uint64_t> leaves;  // the first step it takes no part in
    std::set<uint64_t> ahead;        // finished steps above `clock`, out of order
  };

 private:
  // The steps that count for others' waiting: a rank that has left holds nobody.
  static bool reached(const State& state, uint64_t clock) {
    return state.clock >= clock || (state.leaves && state.clock >= *state.leaves);
  }

  std::map<Rank, State> ranks_;
  std::optional<uint32_t> staleness_;
};

}  // namespace starling
