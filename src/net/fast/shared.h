// FastShared is what the listeners and channels of one transport have in common.
//
// Uses: base, net. Threads: any; what it points to is thread-safe.
#pragma once

#include "base/buffer.h"
#include "base/log.h"
#include "net/fast/stream.h"
#include "net/network.h"
#include "net/options.h"

namespace starling {

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
};

}  // namespace starling
