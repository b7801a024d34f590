// RpcMetrics counts calls, errors, bytes and latencies of every RPC of a ps, over all its lanes.
//
// Uses: base, wire. Threads: any; recording takes no lock.
#pragma once

#include <array>

#include "base/metrics.h"
#include "wire/message.h"
#include "wire/method.h"

namespace starling {

class RpcMetrics {
 public:
  // `metrics` outlives it.
  explicit RpcMetrics(Metrics& metrics);

  // From the arrival on the lane to the answer.
  void record(Method method, bool is_error, size_t bytes_in, size_t bytes_out, Duration took);
  // Of the methods that were called.
  void describe(v1::StatReply& reply) const;
  uint64_t calls() const;

 private:
  struct One {
    Histogram* latency = nullptr;  // null: not a method of a ps
    Counter* errors = nullptr;
    Counter* bytes_in = nullptr;
    Counter* bytes_out = nullptr;
  };
  std::array<One, kMethods> methods_;
};

// What a message takes on the way, near enough for statistics.
size_t message_bytes(const Message& message);

}  // namespace starling
