#include "base/thread.h"

#include <pthread.h>
#include <sched.h>

#include <cstring>

namespace starling {

Thread::Thread(ThreadOptions options, std::function<void()> body)
    : thread_([options = std::move(options), body = std::move(body)] {
        pthread_setname_np(pthread_self(), options.name.substr(0, 15).c_str());
        // A core that went away since the options were checked costs speed, not correctness.
        if (options.core) (void)pin_this_thread(*options.core);
        body();
      }) {}

Thread& Thread::operator=(Thread&& other) noexcept {
  if (this != &other) {
    join();
    thread_ = std::move(other.thread_);
  }
  return *this;
}

void Thread::join() {
  if (thread_.joinable()) thread_.join();
}

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count < 1 ? 1 : count;
}

Status pin_this_thread(int core) {
  if (core < 0 || core >= CPU_SETSIZE) return invalid_argument("core {} is out of range", core);
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (const int error = pthread_setaffinity_np(pthread_self(), sizeof(set), &set); error != 0) {
    return invalid_argument("cannot pin to core {}: {}", core, std::strerror(error));
  }
  return absl::OkStatus();
}

}  // namespace starling
