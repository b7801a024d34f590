#include "net/fast/outlet.h"

#include <utility>

namespace starling {

Status Outlet::write(EncodedFrame frame, Ticket ticket) {
  MutexLock lock(mutex_);
  if (fd_ < 0) return unavailable("the connection is closed");
  STARLING_RETURN_IF_ERROR(broken_);
  const bool idle = writer_.empty();
  writer_.push(std::move(frame), std::move(ticket));
  if (idle) return flush_locked();
  waits_.store(true, std::memory_order_relaxed);
  return absl::OkStatus();
}

Status Outlet::flush() {
  MutexLock lock(mutex_);
  return flush_locked();
}

Status Outlet::flush_locked() {
  if (fd_ < 0) return unavailable("the connection is closed");
  if (broken_.ok()) broken_ = writer_.flush(fd_);
  waits_.store(!writer_.empty(), std::memory_order_relaxed);
  return broken_;
}

void Outlet::show_life() {
  MutexLock lock(mutex_);
  if (fd_ < 0 || !broken_.ok()) return;
  // Only where nothing waits: a peer that reads nothing must not fill this process with pongs.
  if (writer_.empty()) {
    writer_.push({.head = encode_control({.kind = FrameKind::kPong})});
  }
  (void)flush_locked();
}

void Outlet::close() {
  MutexLock lock(mutex_);
  fd_ = -1;
  writer_.clear();
  waits_.store(false, std::memory_order_relaxed);
}

}  // namespace starling
