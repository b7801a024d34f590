#include "net/manual_lane.h"

#include <algorithm>
#include <utility>

namespace starling {

class ManualLanes::ManualLane final : public Lane {
 public:
  explicit ManualLane(ManualLanes& all) : all_(all) {}
  const Clock& clock() const override { return all_.clock_; }
  // Between steps the one owner may touch everything.
  bool here() const override { return all_.current_ == this || all_.current_ == nullptr; }
  void post(Task task) override { all_.posted_.emplace_back(this, std::move(task)); }
  TimerId call_at(TimePoint at, Task task) override { return timers.add(at, std::move(task)); }
  void cancel(TimerId id) override { timers.cancel(id); }
  bool driven() const override { return true; }
  bool run_until(const Function<bool() const>& done, Deadline deadline) override {
    return all_.run_until(done, deadline.left(all_.clock_.now()));
  }

  Timers timers;

 private:
  ManualLanes& all_;
};

ManualLanes::~ManualLanes() {
  // Tasks own things (replies, channels) whose destructors may post again; a few rounds drain them.
  for (int round = 0; round < 16; ++round) {
    const auto posted = std::exchange(posted_, {});
    for (const auto& lane : lanes_) const Timers timers = std::exchange(lane->timers, Timers());
    if (posted.empty()) return;
  }
}

std::shared_ptr<Lane> ManualLanes::make() {
  lanes_.push_back(std::make_shared<ManualLane>(*this));
  return lanes_.back();
}

bool ManualLanes::step() {
  Task task;
  const ManualLane* const outer = current_;  // a handler may step the lanes again
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
  current_ = outer;
  return true;
}

bool ManualLanes::run_until(const Function<bool() const>& done, Duration limit) {
  const Deadline end = Deadline::in(clock_, limit);
  while (!done()) {
    if (clock_.now() > end.at() || !step()) return done();
  }
  return true;
}

}  // namespace starling
