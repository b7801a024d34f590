#include "net/manual_lane.h"

#include <algorithm>

namespace starling {

class ManualLanes::ManualLane final : public Lane {
 public:
  explicit ManualLane(ManualLanes& all) : all_(all) {}
  const Clock& clock() const override { return all_.clock_; }
  bool here() const override { return all_.current_ == this; }
  void post(Task task) override { all_.posted_.emplace_back(this, std::move(task)); }
  TimerId call_at(TimePoint at, Task task) override { return timers.add(at, std::move(task)); }
  void cancel(TimerId id) override { timers.cancel(id); }

  Timers timers;

 private:
  ManualLanes& all_;
};

std::shared_ptr<Lane> ManualLanes::make() {
  lanes_.push_back(std::make_shared<ManualLane>(*this));
  return lanes_.back();
}

bool ManualLanes::step() {
  Task task;
  if (!posted_.empty()) {
    current_ = posted_.front().first;
    task = std::move(posted_.front().second);
    posted_.pop_front();
  } else {
    ManualLane* first = nullptr;
    for (const auto& lane : lanes_) {
      if (first == nullptr || lane->timers.next() < first->timers.next()) first = lane.get();
    }
    if (first == nullptr || first->timers.next() == TimePoint::max()) return false;
    clock_.advance_to(first->timers.next());
    current_ = first;
    task = first->timers.take_due(clock_.now());
  }
  task();
  task = nullptr;
  current_ = nullptr;
  return true;
}

bool ManualLanes::run_until(const Function<bool() const>& done, Duration limit) {
  const TimePoint end = clock_.now() + limit;
  while (!done()) {
    if (clock_.now() > end || !step()) return done();
  }
  return true;
}

}  // namespace starling
