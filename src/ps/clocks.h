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
inline constexpr size_t kStalenessMax = 16;       // announced changes; the oldest go first

class RankClocks {
 public:
  // Holds for the steps from `clock` on, whatever was said of them before. Without a bound:
  // asynchronous.
  void set_staleness(std::optional<uint32_t> staleness, uint64_t clock = 0);
  std::optional<uint32_t> staleness(uint64_t clock) const;
  bool synchronous(uint64_t clock) const { return staleness(clock) == 0u; }

  // The rank takes part from `clock` on: it counts as having finished all steps before.
  void join(Rank rank, uint64_t clock);
  // From `clock` on nobody waits for the rank.
  void leave(Rank rank, uint64_t clock);
  bool active(Rank rank) const { return ranks_.contains(rank); }
  bool is_member(Rank rank, uint64_t clock) const;
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
  // What a cut knew of a rank that takes part. Ranks that nobody announced are left out: they may
  // not come back, and everybody would wait for them.
  void restore(Rank rank, State state) {
    if (auto it = ranks_.find(rank); it != ranks_.end()) it->second = std::move(state);
  }

 private:
  // The steps that count for others' waiting: a rank that has left holds nobody.
  static bool reached(const State& state, uint64_t clock) {
    return state.clock >= clock || (state.leaves && state.clock >= *state.leaves);
  }

  std::map<Rank, State> ranks_;
  // By the first step that it holds for; the first entry also holds for those before.
  std::map<uint64_t, std::optional<uint32_t>> staleness_;
};

}  // namespace starling
