// Clock tells the time; Deadline is a point on it. Both are passed in, so a test can own the time.
//
// Uses: std. Threads: any; ManualClock may be moved on from one thread while others read it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace starling {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::steady_clock::time_point;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

class RealClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

// Stands still until it is told to move.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(TimePoint start = TimePoint(seconds(1)))
      : now_(start.time_since_epoch().count()) {}
  TimePoint now() const override {
    return TimePoint(Duration(now_.load(std::memory_order_acquire)));
  }
  void advance(Duration by) { now_.fetch_add(by.count(), std::memory_order_acq_rel); }
  // Never moves back: an earlier time changes nothing.
  void advance_to(TimePoint to) {
    const int64_t target = to.time_since_epoch().count();
    int64_t at = now_.load(std::memory_order_acquire);
    while (at < target && !now_.compare_exchange_weak(at, target, std::memory_order_acq_rel)) {
    }
  }

 private:
  std::atomic<int64_t> now_;
};

// The point after which nobody wants the answer any more.
class Deadline {
 public:
  constexpr Deadline() = default;
  constexpr explicit Deadline(TimePoint at) : at_(at) {}
  static constexpr Deadline never() { return Deadline(); }
  // Saturates, so that a caller may ask for centuries.
  static Deadline in(const Clock& clock, Duration time) {
    const TimePoint now = clock.now();
    return time >= TimePoint::max() - now ? never() : Deadline(now + time);
  }

  constexpr TimePoint at() const { return at_; }
  constexpr bool is_never() const { return at_ == TimePoint::max(); }
  constexpr bool passed(TimePoint now) const { return now >= at_; }
  // Zero when it has passed, Duration::max() when it never does.
  constexpr Duration left(TimePoint now) const {
    if (is_never()) return Duration::max();
    return now >= at_ ? Duration::zero() : at_ - now;
  }
  auto operator<=>(const Deadline&) const = default;

 private:
  TimePoint at_ = TimePoint::max();
};

}  // namespace starling
