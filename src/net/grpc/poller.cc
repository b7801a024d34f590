#include "net/grpc/poller.h"

#include <fmt/format.h>

#include <algorithm>

namespace starling {

Poller::Poller(grpc::CompletionQueue& queue, std::string_view name, int threads) : queue_(queue) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back(ThreadOptions{.name = fmt::format("{}-{}", name, i)}, [this] {
      void* tag = nullptr;
      bool ok = false;
      // Ends when stop() has shut the queue down and the last tag has been given out.
      while (queue_.Next(&tag, &ok)) static_cast<Tag*>(tag)->run(ok);
    });
  }
}

void Poller::stop() {
  if (std::exchange(stopped_, true)) return;
  queue_.Shutdown();
  threads_.clear();
}

int poller_threads() { return std::clamp(usable_cores(), 2, 8); }

}  // namespace starling
