// Child is this program run again as another process, spoken to by lines; it ends when its standard
// input closes.
//
// Uses: base. Threads: one owner.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace starling::bench {

class Child {
 public:
  static StatusOr<std::unique_ptr<Child>> start(std::vector<std::string> arguments);
  // Closes its input and waits for its end; kills it when that takes longer than 5 s.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  Status write_line(const std::string& line);
  // Unavailable when the child ends, DeadlineExceeded when it stays silent too long.
  StatusOr<std::string> read_line(Duration timeout);
  // What all its threads have used so far.
  StatusOr<Duration> cpu() const;

 private:
  Child() = default;
  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  std::string unread_;
};

}  // namespace starling::bench
