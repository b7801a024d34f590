// A mutex, its lock and its condition variable, with the annotations that clang checks at compile
// time.
//
// Uses: std, Abseil's annotation macros (its own mutex lives in a library that the thread sanitizer
// cannot see into). Threads: any; that is the point.
#pragma once

#include <absl/base/thread_annotations.h>

#include <condition_variable>
#include <mutex>

#include "base/clock.h"

namespace starling {

class ABSL_LOCKABLE Mutex {
 public:
  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

  // Waits for a notification or the deadline; false when the deadline has passed. May wake without
  // a reason.
  bool wait(Mutex& mutex, Deadline deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    bool in_time = true;
    if (deadline.is_never()) {
      condition_.wait(lock);
    } else {
      in_time = condition_.wait_until(lock, deadline.at()) == std::cv_status::no_timeout;
    }
    lock.release();
    return in_time;
  }

 private:
  std::condition_variable condition_;
};

}  // namespace starling
