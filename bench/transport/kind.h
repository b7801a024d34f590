// Kind is one way to exchange a request for a reply between two processes: ours, a rival, or the
// limit.
//
// Uses: base. Threads: a Caller has one owner; a Serving works on threads of its own.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transport/load.h"

namespace starling::bench {

class Serving {
 public:
  virtual ~Serving() = default;
  virtual std::string address() const = 0;
};

class Caller {
 public:
  virtual ~Caller() = default;
  // Exchanges until `until`, load.in_flight at a time, and adds the time of each exchange: from
  // making the request to having checked the reply. DataLoss when a reply is not what was asked
  // for.
  virtual Status burst(const Load& load, TimePoint until, std::vector<Duration>* times) = 0;
};

struct Kind {
  std::string_view name;
  bool tuned_malloc = false;  // both ends keep freed memory instead of giving it back
  // Null where client and server are one process.
  StatusOr<std::unique_ptr<Serving>> (*serve)() = nullptr;
  StatusOr<std::unique_ptr<Caller>> (*call)(const std::string& address) = nullptr;
};

// All of them, ours first.
std::vector<Kind> kinds();
StatusOr<Kind> find_kind(std::string_view name);

StatusOr<std::unique_ptr<Serving>> serve_fast();
StatusOr<std::unique_ptr<Serving>> serve_fast_tcp();
StatusOr<std::unique_ptr<Caller>> call_fast(const std::string& address);
StatusOr<std::unique_ptr<Caller>> call_fast_tcp(const std::string& address);
StatusOr<std::unique_ptr<Caller>> call_inproc(const std::string& address);
StatusOr<std::unique_ptr<Serving>> serve_grpc();
StatusOr<std::unique_ptr<Caller>> call_grpc(const std::string& address);

StatusOr<std::unique_ptr<Serving>> serve_unary();
StatusOr<std::unique_ptr<Caller>> call_unary(const std::string& address);
StatusOr<std::unique_ptr<Serving>> serve_stream();
StatusOr<std::unique_ptr<Caller>> call_stream(const std::string& address);
StatusOr<std::unique_ptr<Serving>> serve_raw();
StatusOr<std::unique_ptr<Caller>> call_raw(const std::string& address);

// Opens `count` connections of grpc++ to the address, each proved by one call, and keeps them until
// standard input ends.
Status hold_connections(const std::string& address, int count);

}  // namespace starling::bench
