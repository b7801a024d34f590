// World is the one process in which a cluster is simulated: simulated time, the queue of what
// happens next, one seeded Rng, the trace, and the verdict.
//
// Uses: base. Threads: one.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <queue>
#include <string>

#include "base/clock.h"
#include "base/function.h"
#include "base/rng.h"

namespace starling::sim {

class World {
 public:
  World(uint64_t seed, bool with_trace) : rng_(seed, 1, 0), with_trace_(with_trace) {}

  TimePoint now() const { return now_; }
  Rng& rng() { return rng_; }
  // True with this probability.
  bool chance(double p) { return p > 0 && rng_.uniform() < p; }
  // Uniform in [low, high].
  Duration between(Duration low, Duration high) {
    return low + Duration(static_cast<int64_t>(
                     rng_.below(static_cast<uint64_t>((high - low).count()) + 1)));
  }

  using Action = Function<void()>;
  void at(TimePoint time, Action action);
  void after(Duration time, Action action) { at(now_ + time, std::move(action)); }
  // Does the next thing. False when there is none.
  bool step();
  uint64_t steps() const { return steps_; }

  // The run has broken a promise; only the first one counts.
  template <typename... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    blame(fmt::format(format, std::forward<Args>(args)...));
  }
  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }

  bool traces() const { return with_trace_; }
  template <typename... Args>
  void trace(std::string_view who, fmt::format_string<Args...> format, Args&&... args) {
    if (with_trace_) print(who, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  struct Entry {
    TimePoint time;
    uint64_t number;  // of equal times the one that was asked for first goes first
    mutable Action action;
    bool operator<(const Entry& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };
  void blame(std::string what);
  void print(std::string_view who, const std::string& what) const;

  Rng rng_;
  const bool with_trace_;
  TimePoint now_{seconds(100)};
  std::priority_queue<Entry> queue_;
  uint64_t numbers_ = 0;
  uint64_t steps_ = 0;
  std::string failure_;
};

}  // namespace starling::sim
