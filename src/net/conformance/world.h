// World is what a test of the suite plays in: a network with one maker, servers and clients; Ends
// takes the ends of its calls.
//
// Uses: net. Threads: any.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "net/client.h"
#include "net/conformance/parrot.h"
#include "net/faulty.h"

namespace starling::conformance {

// One way to make a transport, bare or wrapped.
struct Maker {
  std::string name;
  Protocol protocol = Protocol::kInproc;
  bool faulty = false;
  FaultOptions faults;             // all rates 0: the wrapper must change nothing
  std::string host = "127.0.0.1";  // where servers listen
  std::function<void(NetOptions&)> tune = [](NetOptions&) {};

  bool remote() const { return protocol != Protocol::kInproc; }
};
void PrintTo(const Maker& maker, std::ostream* out);

inline constexpr std::string_view kToken = "the token of the conformance suite";

// Options with a token, as the maker wants them.
NetOptions options_for(const Maker& maker);

// Each of `makers` bare, and each in a wrapper without faults.
std::vector<Maker> and_wrapped(std::vector<Maker> makers);
// Every maker, bare and wrapped.
std::vector<Maker> all_makers();
// Every maker once, bare.
std::vector<Maker> bare_makers();
// Those of them that reach other processes.
std::vector<Maker> bare_remote_makers();
// Those of them that differ in more than how large payloads travel.
std::vector<Maker> distinct_remote_makers();
// One of each protocol among them that speaks TCP over IPv4.
std::vector<Maker> ipv4_makers();
// The ways of grpc++.
std::vector<Maker> fast_makers();
// Every maker under every fault profile.
std::vector<Maker> faulty_makers();

// The maker's transport, wrapped where the maker says so.
std::unique_ptr<Transport> make_transport(const Maker& maker, Network& network);

// Makes the network with the maker's transport.
std::unique_ptr<Network> make_network_of(const Maker& maker, NetOptions options, Metrics& metrics);

// What make_network() brings.
std::vector<Protocol> all_protocols();

// Takes the ends of calls by id; a call that ends twice is counted.
class Ends {
 public:
  // The callback for the call `id`.
  Done take(uint64_t id);
  // True when `count` calls have ended in time.
  bool wait(size_t count) const;
  bool wait(size_t count, Duration time) const;
  size_t count() const;
  // How often the call has ended.
  int times(uint64_t id) const;
  // Of a call that has ended.
  StatusOr<Message> at(uint64_t id) const;
  std::vector<uint64_t> order() const;
  size_t count_of(StatusCode code) const;

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::map<uint64_t, std::vector<StatusOr<Message>>> results_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> order_ ABSL_GUARDED_BY(mutex_);
};

class World {
 public:
  explicit World(const Maker& maker) : World(maker, options_for(maker)) {}
  World(const Maker& maker, NetOptions options);

  Network& network() { return *network_; }
  Metrics& metrics() { return metrics_; }
  const Maker& maker() const { return maker_; }
  // Where a server can listen: a port of the kernel's choice, a name nobody else has.
  Address somewhere() const;
  // The same with a port that is free now, so that a client can know it before the server.
  Address somewhere_known() const;

  // A server whose lanes all have this handler for Peer and Ps.
  StatusOr<std::unique_ptr<Server>> try_serve(Handler& handler, uint32_t lanes, Address at);
  // The same, which must succeed.
  std::unique_ptr<Server> serve(Handler& handler, uint32_t lanes = 1);
  std::unique_ptr<Server> serve(Handler& handler, uint32_t lanes, Address at);
  Target target(const Server& server, uint32_t lane = 0) const;

 private:
  const Maker maker_;
  Metrics metrics_;
  std::unique_ptr<Network> network_;
};

// Handlers of one lane that serve Peer and Ps.
LaneHandlers serving(Handler& handler);

// A port on which nobody listens at this moment.
uint16_t free_port(const std::string& host);

// Waits until the lane has done what was posted to it, and has looked at its sockets after that.
void turn(Lane& lane);

// What this process has in memory now, in bytes.
size_t resident_bytes();

// Lets this process open `count` files; false when the system does not.
bool allow_files(size_t count);

}  // namespace starling::conformance
