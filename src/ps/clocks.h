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
inline constexpr size_t kLeftMax = 65536;  // ranks that have left; the lowest numbers go first

class RankClocks {
 public:
  // Holds for the steps from `clock` on, whatever was said of them before. Without a bound:
  // asynchronous.
  void set_staleness(std::optional<uint32_t> staleness, uint64_t clock = 0);
  // The change that was announced for this clock comes at another one.
  void withdraw_staleness(uint64_t clock) {
    if (clock > 0) staleness_.erase(clock);
  }
  std::optional<uint32_t> staleness(uint64_t clock) const;
  bool synchronous(uint64_t clock) const { return staleness(clock) == 0u; }

  // The rank takes part from `clock` on: it counts as having finished all steps before. One that
  // has left since is not brought back by hearing of its join again.
  void join(Rank rank, uint64_t clock);
  // From `clock` on nobody waits for the rank.
  void leave(Rank rank, uint64_t clock);
  // The rank has died and will not tick up to `clock`: nobody waits for that either.
  void drop(Rank rank, uint64_t clock);
  bool active(Rank rank) const { return ranks_.contains(rank); }
  bool is_member(Rank rank, uint64_t clock) const;
  // Those that take part in step `clock`, ascending.
  std::vector<Rank> members(uint64_t clock) const;

  // The rank has finished step `clock`. Repeats and ticks in another order are fine.
  // ResourceExhausted: too far ahead. A rank that nobody announced joins by its first tick, so that
  // unannounced asynchronous clients can be followed; a late tick of one that has left changes
  // nothing.
  Status tick(Rank rank, uint64_t clock);
  bool ticked(Rank rank, uint64_t clock) const;
  uint64_t clock(Rank rank) const;

  // True when a lookup at `clock` may be answered: every member has reached clock - staleness.
  bool ready(uint64_t clock) const;
  // Some rank has finished steps from `clock` on: what is to hold from there comes too late.
  bool is_past(uint64_t clock) const;
  // Steps by which the slowest member is behind `clock`.
  uint64_t behind(uint64_t clock) const;
  // For an error: who is not there yet.
  std::vector<Rank> waiting_for(uint64_t clock) const;

  const auto& all() const { return ranks_; }
  // Ranks that have left, with the steps that they had finished here or need not any more.
  const std::map<Rank, uint64_t>& left() const { return left_; }
  // A new generation of the job: nobody takes part until the scheduler says so. The staleness
  // stays.
  void clear();

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

  void erase(std::map<Rank, State>::iterator it);

  std::map<Rank, State> ranks_;
  std::map<Rank, uint64_t> left_;
  // By the first step that it holds for; the first entry also holds for those before.
  std::map<uint64_t, std::optional<uint32_t>> staleness_;
};

}  // namespace starling
