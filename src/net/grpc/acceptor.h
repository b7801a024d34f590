// Acceptor takes a server's TCP connections and hands them to gRPC, and so knows what gRPC does not
// tell: which connection a call came over, and when it came and went.
//
// Uses: net, sockets, gRPC. Threads: any; its own thread accepts.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "net/intake.h"
#include "net/loop_lane.h"

namespace starling {

// One connection of a server, shared by the calls that came over it.
class Connection {
 public:
  // Once `closed`, nobody is told anything any more: the handlers may be gone.
  Connection(std::shared_ptr<Intake> intake, std::string address,
             std::shared_ptr<const std::atomic<bool>> closed);

  // The peer of a call to `lane`. The first call to each lane tells the lane that the peer has
  // come, before the call itself can be posted there.
  std::shared_ptr<const Peer> visit(LaneId lane, const Identity& identity);
  // Tells all lanes that were visited. Once.
  void leave();

  const std::string& address() const { return address_; }
  // What its calls hold of the server's limits.
  const std::shared_ptr<Meter>& meter() const { return meter_; }

  // A call over it has shown the token.
  bool proved() const { return proved_.load(std::memory_order_relaxed); }
  void prove() { proved_.store(true, std::memory_order_relaxed); }

 private:
  void tell(LaneId lane, bool came) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<Intake> intake_;
  const std::string address_;
  const std::shared_ptr<const std::atomic<bool>> closed_;
  const uint64_t number_;
  const std::shared_ptr<Meter> meter_ = std::make_shared<Meter>();
  std::atomic<bool> proved_{false};
  Mutex mutex_;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<bool> visited_ ABSL_GUARDED_BY(mutex_);  // by lane
  std::shared_ptr<const Peer> peer_ ABSL_GUARDED_BY(mutex_);
};

class Acceptor {
 public:
  using Sink = grpc::experimental::ExternalConnectionAcceptor;

  // Bound and listening, but not accepting yet. AlreadyExists: the port is taken. Unavailable: the
  // host is not known or not of this machine.
  static StatusOr<std::unique_ptr<Acceptor>> listen(const Address& address,
                                                    std::shared_ptr<Intake> intake);
  ~Acceptor();

  // With the port that the kernel chose.
  const Address& address() const { return address_; }
  // From now on connections go to `sink`, which lives until stop().
  void start(Sink& sink);
  // The connection behind gRPC's name of a peer. One that has gone meanwhile is still good for the
  // calls that are left of it.
  std::shared_ptr<Connection> find(const std::string& grpc_peer);

  // New connections are refused.
  void refuse_new();
  // Joins the thread; all connections count as gone. Twice is fine.
  void stop();

 private:
  class Door;
  class Watch;
  Acceptor(int fd, Address address, std::shared_ptr<Intake> intake);
  void accept_all();
  void take(int fd, std::string peer);
  void pause();
  void resume();
  void cut_unproved();
  void gone(uint64_t number);

  const int fd_;
  const Address address_;
  const std::shared_ptr<Intake> intake_;
  const std::shared_ptr<std::atomic<bool>> closed_ = std::make_shared<std::atomic<bool>>(false);

  Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<Connection>> by_peer_ ABSL_GUARDED_BY(mutex_);

  // The accepting thread only.
  Sink* sink_ = nullptr;
  std::unique_ptr<Door> door_;
  std::map<uint64_t, std::unique_ptr<Watch>> watches_;  // by age
  uint64_t accepted_ = 0;
  bool paused_ = false;

  std::unique_ptr<LoopLane> lane_;
};

}  // namespace starling
