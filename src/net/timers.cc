#include "net/timers.h"

#include <algorithm>
#include <utility>

namespace starling {

TimerId Timers::add(TimePoint at, Task task) {
  uint32_t slot;
  if (free_.empty()) {
    slot = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  slots_[slot].task = std::move(task);
  const uint32_t use = slots_[slot].use;
  heap_.push_back({at, ++added_, slot, use});
  std::push_heap(heap_.begin(), heap_.end(), later);
  ++live_;
  return static_cast<TimerId>((uint64_t{use} << 32) | slot);
}

bool Timers::cancel(TimerId id) {
  const auto slot = static_cast<uint32_t>(static_cast<uint64_t>(id));
  const auto use = static_cast<uint32_t>(static_cast<uint64_t>(id) >> 32);
  if (slot >= slots_.size() || slots_[slot].use != use || !slots_[slot].task) return false;
  free_slot(slot);
  // Cancelled entries must not outnumber the living, or a lane that calls and is answered would
  // grow for ever.
  if (heap_.size() > 64 && heap_.size() > 2 * live_) drop_dead();
  return true;
}

TimePoint Timers::next() {
  while (!heap_.empty()) {
    const Entry& top = heap_.front();
    if (slots_[top.slot].use == top.use && slots_[top.slot].task) return top.at;
    std::pop_heap(heap_.begin(), heap_.end(), later);
    heap_.pop_back();
  }
  return TimePoint::max();
}

Task Timers::take_due(TimePoint now) {
  if (next() > now || heap_.empty()) return Task();
  const uint32_t slot = heap_.front().slot;
  std::pop_heap(heap_.begin(), heap_.end(), later);
  heap_.pop_back();
  Task task = std::move(slots_[slot].task);
  free_slot(slot);
  return task;
}

void Timers::drop_dead() {
  std::erase_if(
      heap_, [&](const Entry& e) { return slots_[e.slot].use != e.use || !slots_[e.slot].task; });
  std::make_heap(heap_.begin(), heap_.end(), later);
}

void Timers::free_slot(uint32_t slot) {
  slots_[slot].task = nullptr;
  ++slots_[slot].use;
  free_.push_back(slot);
  --live_;
}

}  // namespace starling
