// Lane is one thread's worth of work: tasks and timers that run one at a time, in order, and never
// beside each other.
//
// Uses: base. Threads: post() from any; call_at() and cancel() on the lane itself.
#pragma once

#include "base/clock.h"
#include "net/timers.h"

namespace starling {

class Lane {
 public:
  virtual ~Lane() = default;

  virtual const Clock& clock() const = 0;
  // True when the calling thread may touch what this lane owns.
  virtual bool here() const = 0;

  // Runs the task on the lane, in the order of posting. Tasks posted after the lane has stopped are
  // destroyed unrun.
  virtual void post(Task task) = 0;
  virtual TimerId call_at(TimePoint at, Task task) = 0;
  // Harmless when the timer has run.
  virtual void cancel(TimerId id) = 0;

  // True for a lane whose owner turns it by run_until(); false for one with a thread of its own.
  virtual bool driven() const { return false; }
  // Turns a driven lane until `done` says so or the deadline passes; true when done.
  virtual bool run_until(const Function<bool() const>& done, Deadline deadline) { return done(); }
};

}  // namespace starling
