// Process is one `starling` command as a child of a test: its first line, its end, what it said.
//
// Uses: POSIX, GoogleTest; for tests only. Threads: its owner's.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace starling::cluster {

class Process {
 public:
  // Standard error goes to the file `log`. The program is STARLING_PROGRAM. It dies with the thread
  // that started it, so start it on one that stays.
  Process(std::vector<std::string> arguments, std::string log);
  // Another program than STARLING_PROGRAM.
  Process(const std::string& program, std::vector<std::string> arguments, std::string log);
  // Killed and reaped when it goes.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The first line of standard output; empty when it ended without one.
  const std::string& first_line() const { return first_line_; }
  void signal(int number) const;
  // Waits for its end; -1 and a signal's number below zero where it did not exit by itself.
  int wait();
  int end(int number) {
    signal(number);
    return wait();
  }
  std::string errors() const;

 private:
  pid_t pid_ = 0;
  const std::string log_;
  std::string first_line_;
};

}  // namespace starling::cluster
