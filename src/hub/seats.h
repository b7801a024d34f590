// Seats tells at which clock and by which rank each batch of a synchronous epoch is trained: in
// rows, one batch per rank and clock.
//
// Ranks that join a running job sit down at a cut, whose clock every hub has drained up to: so all
// hubs deal the same rows. There are never fewer: a rank that died is waited for. Uses: std.
// Threads: one caller at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace starling {

class Seats {
 public:
  struct Place {
    uint64_t clock = 0;
    uint32_t rank = 0;
    auto operator<=>(const Place&) const = default;
  };

  // `ranks`: from the first clock on. `ranks_max`: a hub has room for so many in a row; ranks
  // beyond have no seat.
  Seats(uint32_t ranks, uint32_t ranks_max)
      : ranks_max_(std::max(ranks, ranks_max)), from_{{0, std::max(1U, ranks)}} {}

  // From `clock` on there are so many. What is known already, or fewer, changes nothing.
  void set(uint64_t clock, uint32_t ranks) {
    ranks = std::min(ranks, ranks_max_);
    if (clock > from_.rbegin()->first && ranks > from_.rbegin()->second) from_[clock] = ranks;
  }

  uint32_t ranks_at(uint64_t clock) const { return std::prev(from_.upper_bound(clock))->second; }

  // In the rows of `first` up to, and without, `end`.
  uint64_t batches(uint64_t first, uint64_t end) const {
    uint64_t count = 0;
    for (uint64_t clock = first; clock < end;) {
      const auto next = from_.upper_bound(clock);
      const uint64_t until = next == from_.end() ? end : std::min(end, next->first);
      count += (until - clock) * std::prev(next)->second;
      clock = until;
    }
    return count;
  }

  // Of the batch `number` (from 0) of those whose rows begin at clock `first`.
  Place place(uint64_t first, uint64_t number) const {
    while (true) {
      const auto next = from_.upper_bound(first);
      const uint64_t ranks = std::prev(next)->second;
      const uint64_t clock = first + number / ranks;
      if (next == from_.end() || clock < next->first) {
        return {.clock = clock, .rank = static_cast<uint32_t>(number % ranks)};
      }
      number -= (next->first - first) * ranks;
      first = next->first;
    }
  }

 private:
  uint32_t ranks_max_;
  std::map<uint64_t, uint32_t> from_;  // ranks, by the clock from which on there are so many
};

}  // namespace starling
