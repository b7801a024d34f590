// Outlet is where a server's connection writes. Its lane does, and while the lane is busy with one
// long request the door tells the peer that this process lives.
//
// Uses: net. Threads: any.
#pragma once

#include <atomic>

#include "base/mutex.h"
#include "net/fast/stream.h"

namespace starling {

class Outlet {
 public:
  // `fd` stays with the connection, which closes it after close().
  Outlet(FastCounters& counters, int fd) : fd_(fd), writer_(counters) {}

  // Takes the frame, and writes at once where nothing waits before it. Unavailable: the connection
  // is broken, now or since before.
  Status write(EncodedFrame frame, Ticket ticket);
  // Writes what the socket takes. Unavailable as write().
  Status flush();
  // True when something waits for the socket.
  bool waits() const { return waits_.load(std::memory_order_relaxed); }

  // Gives the peer something to hear: what waits, or a pong. Best effort.
  void show_life();

  // Forgets what waits. Nothing is written from now on.
  void close();

 private:
  Status flush_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::atomic<bool> waits_{false};
  Mutex mutex_;
  int fd_ ABSL_GUARDED_BY(mutex_);  // -1 when closed
  Status broken_ ABSL_GUARDED_BY(mutex_);
  FrameWriter writer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling
