// Profiler keeps what the lanes of a process did, stage by stage, and prints it as a Chrome trace
// (chrome://tracing, Perfetto).
//
// Uses: base. Threads: record() from the lane it names; the rest from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"

namespace starling {

class Profiler {
 public:
  explicit Profiler(uint32_t lanes);

  // A running trace goes on. It ends by itself after `seconds_max`; of more than `bytes_max` of
  // events the oldest go first.
  void start(TimePoint now, Duration time_max, size_t bytes_max);
  // Cheap enough for every request.
  bool running(TimePoint now) const {
    return now.time_since_epoch().count() < until_.load(std::memory_order_relaxed);
  }
  // `stage` and `what` live as long as the process.
  void record(LaneId lane, std::string_view stage, std::string_view what, TimePoint begin,
              TimePoint end);
  void stop();
  // JSON of the last trace; of one that runs as far as it is.
  std::string trace() const;

 private:
  struct Event {
    std::string_view stage;
    std::string_view what;
    TimePoint begin;
    Duration took;
  };
  struct LaneEvents {
    Mutex mutex;
    std::deque<Event> events ABSL_GUARDED_BY(mutex);
  };

  std::atomic<int64_t> until_{0};  // a TimePoint; the past when none runs
  std::atomic<size_t> events_max_{0};
  std::vector<std::unique_ptr<LaneEvents>> lanes_;
};

}  // namespace starling
