#include "net/grpc/poller.h"

#include <fmt/format.h>

#include <algorithm>

namespace starling {

Poller::Poller(grpc::CompletionQueue& queue, std::string_view name, int threads) : queue_(queue) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back(ThreadOptions{.name = fmt::format("{}-{}", name, i)}, [this] { run(); });
  }
}

void Poller::run() {
  void* tag = nullptr;
  bool ok = false;
  // Ends when stop() has shut the queue down and the last tag has been given out.
  while (queue_.Next(&tag, &ok)) {
    (void)handed_.load(std::memory_order_acquire);
    static_cast<Tag*>(tag)->task_(ok);
  }
}

void Poller::stop() {
  if (std::exchange(stopped_, true)) return;
  queue_.Shutdown();
  threads_.clear();
}

int poller_threads() { return std::clamp(usable_cores() / 2, 1, 8); }

}  // namespace starling
