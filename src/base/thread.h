// Thread is a named thread that is always joined.
//
// Uses: std, pthread. Threads: made, joined and destroyed by one owner.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "base/status.h"

namespace starling {

struct ThreadOptions {
  std::string name;         // at most 15 bytes are shown by the system
  std::optional<int> core;  // pin to this core
};

class Thread {
 public:
  Thread() = default;
  Thread(ThreadOptions options, std::function<void()> body);
  Thread(Thread&&) = default;
  // Joins the thread it held before.
  Thread& operator=(Thread&& other) noexcept;
  ~Thread() { join(); }

  // Returns when the body has returned; a second call returns at once.
  void join();
  bool joinable() const { return thread_.joinable(); }
  std::thread::id id() const { return thread_.get_id(); }

 private:
  std::thread thread_;
};

// The number of cores this process may run on (its affinity mask), at least 1.
int usable_cores();

// InvalidArgument when there is no such core for this process.
Status pin_this_thread(int core);

}  // namespace starling
