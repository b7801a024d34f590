// Poller is the threads that turn one of gRPC's completion queues; a Tag is what comes out of it.
//
// Uses: base, gRPC. Threads: made and stopped by one owner; tags run on the poller's threads.
#pragma once

#include <grpcpp/completion_queue.h>

#include <atomic>
#include <string_view>
#include <vector>

#include "base/function.h"
#include "base/thread.h"

namespace starling {

// The end of one gRPC operation. Stays with its owner, and may be used again once it has run.
class Tag {
 public:
  explicit Tag(Function<void(bool ok)> task) : task_(std::move(task)) {}
  Tag(const Tag&) = delete;
  Tag& operator=(const Tag&) = delete;

  // What to give to gRPC, right before the operation starts.
  void* arm() {
    armed_.store(true, std::memory_order_release);
    return this;
  }
  void run(bool ok) {
    // Orders what the starting thread wrote before what runs here, in a way that the thread
    // sanitizer can see: it knows nothing of gRPC's own ordering.
    armed_.exchange(false, std::memory_order_acquire);
    task_(ok);
  }

 private:
  std::atomic<bool> armed_{false};
  Function<void(bool ok)> task_;
};

class Poller {
 public:
  // The queue outlives the poller.
  Poller(grpc::CompletionQueue& queue, std::string_view name, int threads);
  ~Poller() { stop(); }

  // Shuts the queue down, runs the tags that are left and joins the threads. No operation may be
  // started on the queue from now on. Twice is fine.
  void stop();

 private:
  grpc::CompletionQueue& queue_;
  std::vector<Thread> threads_;
  bool stopped_ = false;
};

// How many threads turn a queue: the bodies are decoded on them.
int poller_threads();

}  // namespace starling
