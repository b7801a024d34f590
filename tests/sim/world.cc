#include "tests/sim/world.h"

#include <cstdio>

namespace starling::sim {

void World::at(TimePoint time, Action action) {
  queue_.push({std::max(time, now_), ++numbers_, std::move(action)});
}

bool World::step() {
  if (queue_.empty()) return false;
  // top() is const; the action leaves the entry, whose order does not depend on it.
  Action action = std::move(queue_.top().action);
  now_ = queue_.top().time;
  queue_.pop();
  ++steps_;
  action();
  return true;
}

void World::blame(std::string what) {
  print("VERDICT", what);
  if (failure_.empty()) failure_ = std::move(what);
}

void World::print(std::string_view who, const std::string& what) const {
  if (!with_trace_) return;
  const double at_s = std::chrono::duration<double>(now_ - TimePoint(seconds(100))).count();
  fmt::print("{:10.6f}  {:<12} {}\n", at_s, who, what);
}

}  // namespace starling::sim
