// Children is processes that this one has started: each with files for what it says, watched,
// signalled and reaped. They end with this process, however it ends.
//
// Uses: base, POSIX. Threads: the thread that started them.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace starling {

struct Child {
  std::string name;
  std::vector<std::string> arguments;  // behind the program
  std::string out_path, log_path;      // standard output and standard error
  pid_t process = 0;                   // 0: it has ended
  int status = 0;                      // of its exit; 128 + number when a signal ended it
  uint32_t starts = 0;
};

class Children {
 public:
  explicit Children(std::string program) : program_(std::move(program)) {}
  // Kills whoever still runs.
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  // Starts the program; its files are appended to. Unavailable: a file or the process cannot be
  // made.
  Status start(Child& child);
  // The ones that have ended since the last call.
  std::vector<Child*> reap();
  void signal(const Child& child, int number) const;
  // Waits until all of `list` have ended; false: some run at the deadline, or `may_wait` said no.
  bool wait(const std::vector<Child*>& list, Deadline deadline,
            const std::function<bool()>& may_wait);
  void kill_all();

 private:
  const std::string program_;
  std::vector<Child*> running_;
};

// Lines of a file from `offset` on; moves it behind the last whole one.
std::vector<std::string> new_lines(const std::string& path, uint64_t& offset);
// The end of a file, at most `lines`.
std::string last_lines(const std::string& path, size_t lines);

}  // namespace starling
