// Gate counts the work inside a service, so that stop() can shut the door and wait for the last one
// out.
//
// Uses: mutex.h. Threads: any.
#pragma once

#include <cstdint>
#include <utility>

#include "base/mutex.h"

namespace starling {

class Gate {
 public:
  // Proof of being inside; leaves when destroyed.
  class Pass {
   public:
    Pass() = default;
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Pass& operator=(Pass&& other) noexcept {
      if (this != &other) {
        leave();
        gate_ = std::exchange(other.gate_, nullptr);
      }
      return *this;
    }
    ~Pass() { leave(); }
    explicit operator bool() const { return gate_ != nullptr; }

   private:
    friend class Gate;
    explicit Pass(Gate* gate) : gate_(gate) {}
    void leave() {
      if (gate_ != nullptr) std::exchange(gate_, nullptr)->leave();
    }
    Gate* gate_ = nullptr;
  };

  // An empty Pass when the gate is closed: the work must be refused.
  Pass enter() {
    MutexLock lock(mutex_);
    if (closed_) return Pass();
    ++inside_;
    return Pass(this);
  }

  // Nobody enters any more. True when everybody has left by the deadline; may be called again to
  // wait longer.
  bool close(Deadline deadline) {
    MutexLock lock(mutex_);
    closed_ = true;
    while (inside_ > 0) {
      if (!empty_.wait(mutex_, deadline)) return inside_ == 0;
    }
    return true;
  }

  int64_t inside() const {
    MutexLock lock(mutex_);
    return inside_;
  }

 private:
  void leave() {
    MutexLock lock(mutex_);
    // Under the lock: once close() sees zero the gate may be destroyed.
    if (--inside_ == 0) empty_.notify_all();
  }

  mutable Mutex mutex_;
  CondVar empty_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t inside_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace starling
