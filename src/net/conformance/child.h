// Child is a real process of the suite: a server or a caller that can be killed, stopped and
// continued. Proxy stands between two ends and can swallow what it is given.
//
// Uses: base. Threads: one owner; a Proxy has a thread of its own.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/thread.h"
#include "net/address.h"

namespace starling::conformance {

class Child {
 public:
  // Starts the peer program: {"serve", maker, port} or {"call", maker, host, port}.
  explicit Child(const std::vector<std::string>& arguments);
  // Kills it when it still runs.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // The next line it prints; empty when it has ended or says nothing for too long.
  std::string line();
  // SIGSTOP, and waits until it stands still.
  void stop();
  // SIGCONT.
  void go_on();
  // SIGKILL, and waits until the kernel has buried it.
  void kill();

 private:
  pid_t pid_ = -1;
  int in_ = -1;   // its standard input; closed, it ends by itself
  int out_ = -1;  // its standard output
};

// Forwards one TCP connection after the other to 127.0.0.1:port, until it is told to swallow.
class Proxy {
 public:
  explicit Proxy(uint16_t to_port);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  uint16_t port() const { return port_; }
  // From now on bytes go in and none comes out, in both directions; nothing is closed.
  void swallow() { swallowing_ = true; }
  // From now on at most 64 KB pass every 20 ms.
  void slow_down() { slow_ = true; }

 private:
  void run();

  const uint16_t to_port_;
  int listening_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> swallowing_{false};
  std::atomic<bool> slow_{false};
  std::atomic<bool> stopping_{false};
  Thread thread_;
};

}  // namespace starling::conformance
