// ManualLanes are lanes without threads for simulations: one owner steps them all, on a manual
// clock, in one order.
//
// Uses: base. Threads: one; everything happens inside step().
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/lane.h"

namespace starling {

class ManualLanes {
 public:
  ManualLanes() = default;
  // Tasks and timers that are left are destroyed unrun.
  ~ManualLanes();
  ManualLanes(const ManualLanes&) = delete;
  ManualLanes& operator=(const ManualLanes&) = delete;

  // Tasks run only inside step(). The lane must not be used after the ManualLanes have gone.
  std::shared_ptr<Lane> make();

  ManualClock& clock() { return clock_; }
  // Runs the oldest posted task; without one moves the clock to the first timer and runs that.
  // False when idle.
  bool step();
  // Steps until `done`, or until nothing is left or `limit` of manual time has passed; true when
  // done.
  bool run_until(const Function<bool() const>& done, Duration limit = seconds(3600));

 private:
  class ManualLane;

  ManualClock clock_;
  std::vector<std::shared_ptr<ManualLane>> lanes_;
  std::deque<std::pair<ManualLane*, Task>> posted_;
  const ManualLane* current_ = nullptr;
};

}  // namespace starling
