// FastShared is what the listeners and channels of one transport have in common.
//
// Uses: base, net. Threads: any; what it points to is thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "net/fast/socket.h"
#include "net/fast/stream.h"
#include "net/network.h"
#include "net/options.h"

namespace starling {

// The look-up of a name in a thread of its own, since the system's resolver blocks.
struct LookUp {
  Thread thread;
  std::shared_ptr<std::atomic<bool>> ended;  // the thread has nothing more to do
};

// Look-ups whose channel went before they ended. They are joined when they have, or with this.
class LeftLookUps {
 public:
  void keep(LookUp left) {
    MutexLock lock(mutex_);
    std::erase_if(left_, [](const LookUp& one) { return one.ended->load(); });
    left_.push_back(std::move(left));
  }

 private:
  Mutex mutex_;
  std::vector<LookUp> left_ ABSL_GUARDED_BY(mutex_);
};

struct FastShared {
  explicit FastShared(Network& network)
      : options(network.options()),
        log(network.log()),
        pool(network.pool()),
        counters(network.metrics()),
        limits{.payload_bytes_max = options.message_bytes_max} {}

  const NetOptions options;
  const Log log;
  BufferPool& pool;
  FastCounters counters;
  const FrameLimits limits;
  // Blocks. A test may put its own in this place, before the first channel.
  std::function<StatusOr<std::vector<SocketAddress>>(const std::string&, uint16_t)> look_up =
      &resolve;
  LeftLookUps left_look_ups;
};

}  // namespace starling
