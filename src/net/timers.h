// Timers runs tasks at their times: a binary heap whose cancelled entries are dropped when they
// come up.
//
// Uses: base. Threads: lane-local.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/function.h"

namespace starling {

using Task = Function<void()>;

// Names one use of a timer; never given twice. 0 names none.
enum class TimerId : uint64_t {};

class Timers {
 public:
  TimerId add(TimePoint at, Task task);
  // False when it has run or was cancelled already. The task is destroyed now, not when its time
  // comes.
  bool cancel(TimerId id);

  // TimePoint::max() when there is none.
  TimePoint next();
  // Takes the first task that is due at `now`; an empty one when there is none.
  Task take_due(TimePoint now);
  size_t size() const { return live_; }

 private:
  struct Slot {
    Task task;
    uint32_t use = 1;  // grows with each reuse of the slot
  };
  struct Entry {
    TimePoint at;
    uint64_t order;  // equal times run in the order in which they were added
    uint32_t slot;
    uint32_t use;
  };
  static bool later(const Entry& a, const Entry& b) {
    return a.at != b.at ? a.at > b.at : a.order > b.order;
  }
  void drop_dead();
  void free_slot(uint32_t slot);

  std::vector<Entry> heap_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  uint64_t added_ = 0;
  size_t live_ = 0;
};

}  // namespace starling
