// Mailbox takes values from any thread for the one thread that owns it, and wakes that thread
// through an eventfd, only when it sleeps: a busy owner costs its senders no system call.
//
// Uses: mutex.h, eventfd. Threads: push from any; everything else from the owner.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"

namespace starling {

template <typename T>
class Mailbox {
 public:
  explicit Mailbox(size_t items_max)
      : items_max_(items_max), fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    STARLING_CHECK(fd_ >= 0, "no eventfd: out of file descriptors");
  }
  ~Mailbox() { ::close(fd_); }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // False when the box is full or closed; the item is then untouched.
  bool push(T& item) { return put(item, items_max_); }
  bool push(T&& item) { return put(item, items_max_); }
  // For answers to work that was admitted under a bound of its own, and so must always get in,
  // unless the box is closed.
  void push_always(T&& item) { put(item, SIZE_MAX); }

  // Cheap enough for every turn of a polling loop.
  bool maybe_filled() const { return filled_.load(std::memory_order_acquire); }

  // Moves everything into `out` (cleared first), in the order of arrival.
  void take(std::vector<T>& out) {
    out.clear();
    if (!maybe_filled()) return;
    MutexLock lock(mutex_);
    items_.swap(out);
    filled_.store(false, std::memory_order_relaxed);
  }

  // Takes nothing from now on. Moves what is there into `out`, as take() does: nothing can be left
  // behind by a sender that is about to push.
  void close(std::vector<T>& out) {
    out.clear();
    MutexLock lock(mutex_);
    closed_ = true;
    items_.swap(out);
    filled_.store(false, std::memory_order_relaxed);
  }

  // True when the owner may sleep on fd(): the next push will make it readable. False when there is
  // mail.
  bool prepare_sleep() {
    MutexLock lock(mutex_);
    if (!items_.empty()) return false;
    sleeping_ = true;
    return true;
  }
  // After waking, for whatever reason.
  void end_sleep() {
    {
      MutexLock lock(mutex_);
      sleeping_ = false;
    }
    uint64_t count;
    while (::read(fd_, &count, sizeof(count)) > 0) {
    }
  }
  int fd() const { return fd_; }

 private:
  bool put(T& item, size_t items_max) {
    bool wake;
    {
      MutexLock lock(mutex_);
      if (closed_ || items_.size() >= items_max) return false;
      items_.push_back(std::move(item));
      filled_.store(true, std::memory_order_release);
      wake = std::exchange(sleeping_, false);
    }
    if (wake) {
      const uint64_t one = 1;
      // Fails only when the counter is full, and then the owner is awake already.
      [[maybe_unused]] const ssize_t written = ::write(fd_, &one, sizeof(one));
    }
    return true;
  }

  const size_t items_max_;
  const int fd_;
  std::atomic<bool> filled_{false};
  Mutex mutex_;
  bool sleeping_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<T> items_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling
