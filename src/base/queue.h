// Queue hands values from any number of threads to any number of others; it is bounded, can be
// closed, and every wait has a deadline.
//
// Uses: mutex.h, status.h. Threads: any.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "base/status.h"

namespace starling {

template <typename T>
class Queue {
 public:
  explicit Queue(size_t items_max) : items_max_(items_max) {
    STARLING_CHECK(items_max > 0, "a queue needs room for one item");
  }

  // Takes `item` only when it returns OK. ResourceExhausted: full until the deadline. Cancelled:
  // closed.
  Status push(T& item, Deadline deadline) {
    MutexLock lock(mutex_);
    while (!closed_ && items_.size() >= items_max_) {
      if (!not_full_.wait(mutex_, deadline) && items_.size() >= items_max_ && !closed_) {
        return resource_exhausted("queue is full ({} items)", items_max_);
      }
    }
    if (closed_) return cancelled("queue is closed");
    items_.push_back(std::move(item));
    not_empty_.notify_one();
    return absl::OkStatus();
  }
  Status push(T&& item, Deadline deadline) { return push(item, deadline); }
  Status try_push(T& item) { return push(item, Deadline(TimePoint::min())); }
  Status try_push(T&& item) { return push(item, Deadline(TimePoint::min())); }

  // DeadlineExceeded: nothing came. OutOfRange: closed, and everything that was in it has been
  // taken.
  StatusOr<T> pop(Deadline deadline) {
    MutexLock lock(mutex_);
    while (items_.empty()) {
      if (closed_) return out_of_range("queue is closed");
      if (!not_empty_.wait(mutex_, deadline) && items_.empty() && !closed_) {
        return deadline_exceeded("queue stayed empty");
      }
    }
    T item = std::move(items_.front());
    items_.pop_front();
    not_full_.notify_one();
    return item;
  }
  StatusOr<T> try_pop() { return pop(Deadline(TimePoint::min())); }

  // Refuses new items; those inside can still be taken. Wakes everybody. Twice is fine.
  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
    not_full_.notify_all();
    not_empty_.notify_all();
  }

  size_t size() const {
    MutexLock lock(mutex_);
    return items_.size();
  }

 private:
  const size_t items_max_;
  mutable Mutex mutex_;
  CondVar not_full_;
  CondVar not_empty_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling
