// Poller is the threads that turn one of gRPC's completion queues; a Tag is what comes out of it.
//
// Uses: base, gRPC. Threads: made and stopped by one owner; tags run on the poller's threads.
#pragma once

#include <grpcpp/completion_queue.h>

#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/function.h"
#include "base/thread.h"

namespace starling {

// The end of one gRPC operation. Stays with its owner, and may be used again once it has run. What
// it runs may be the last to see it.
class Tag {
 public:
  explicit Tag(Function<void(bool ok)> task) : task_(std::move(task)) {}
  Tag(const Tag&) = delete;
  Tag& operator=(const Tag&) = delete;

 private:
  friend class Poller;
  Function<void(bool ok)> task_;
};

class Poller {
 public:
  // The queue outlives the poller.
  Poller(grpc::CompletionQueue& queue, std::string_view name, int threads);
  ~Poller() { stop(); }

  // What to give to gRPC, right before the operation starts.
  void* arm(Tag& tag) {
    handed_.fetch_add(1, std::memory_order_acq_rel);
    return &tag;
  }

  // Shuts the queue down, runs the tags that are left and joins the threads. No operation may be
  // started on the queue from now on. Twice is fine.
  void stop();

 private:
  void run();

  grpc::CompletionQueue& queue_;
  // Orders what a thread wrote before it started an operation before what its tag runs, in a way
  // that the thread sanitizer can see: it knows nothing of the queue's own ordering.
  std::atomic<uint64_t> handed_{0};
  std::vector<Thread> threads_;
  bool stopped_ = false;
};

// How many threads turn a queue: half of the cores, since the lanes need theirs.
int poller_threads();

}  // namespace starling
