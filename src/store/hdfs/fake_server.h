// FakeServer answers HTTP requests as a test tells it, for what a real HDFS does not do on demand.
//
// Uses: base. Threads: one of its own, joined by the destructor; handlers run on it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"

namespace starling {

class FakeServer {
 public:
  // Gets the request's head and returns the whole response, or nothing to close the connection.
  using Handler = std::function<std::string(const std::string& head)>;

  explicit FakeServer(Handler handler);
  ~FakeServer();

  std::string host() const;  // 127.0.0.1:port
  std::vector<std::string> requests() const;

  static std::string reply(int code, const std::string& body, const std::string& headers = "");
  static std::string remote_exception(int code, const std::string& exception,
                                      const std::string& message);

 private:
  void serve();

  const Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  mutable Mutex mutex_;
  std::vector<std::string> requests_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

// A port on which nobody listens, and which nobody gets as long as this lives.
class DeadHost {
 public:
  DeadHost();
  ~DeadHost();
  DeadHost(const DeadHost&) = delete;
  DeadHost& operator=(const DeadHost&) = delete;
  std::string host() const;  // 127.0.0.1:port

 private:
  int port_ = 0;
  const int socket_;  // after port_, which it fills in
};

}  // namespace starling
