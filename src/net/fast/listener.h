// FastListener accepts connections of grpc++ on one TCP port and the Unix socket beside it, has
// each prove itself on its own door thread, and hands it to the lane that its hello names. The door
// speaks for a lane that has no time to answer pings.
//
// Uses: net. Threads: Listener's calls from any; the rest on the door's lane.
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "net/fast/connection.h"
#include "net/fast/shared.h"
#include "net/fast/socket.h"
#include "net/transport.h"

namespace starling {

class FastListener final : public Listener {
 public:
  static StatusOr<std::unique_ptr<Listener>> start(const Address& address,
                                                   std::shared_ptr<FastShared> shared,
                                                   std::shared_ptr<Intake> intake);
  ~FastListener() override;

  Address address() const override { return address_; }
  void refuse_new() override;
  void close() override;

 private:
  class Acceptor;
  class Entry;
  // The connections of one lane. They come and go on that lane; the door lets them show life.
  class Port {
   public:
    using Connections = std::vector<std::shared_ptr<ServerConnection>>;
    // False once the port is closed.
    bool add(const std::shared_ptr<ServerConnection>& connection);
    void remove(ServerConnection* connection);
    Connections all() const;
    // Takes no more; gives those that are there.
    Connections close();
    // Has those that are held back tried again on `lane`, which is this port's. Asked again before
    // that has begun, once.
    static void serve_held_back(const std::shared_ptr<Port>& port, Lane& lane);

   private:
    std::atomic<bool> serve_posted_{false};
    mutable Mutex mutex_;
    std::unordered_map<ServerConnection*, std::shared_ptr<ServerConnection>> connections_
        ABSL_GUARDED_BY(mutex_);
    bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  };

  FastListener(Address address, std::shared_ptr<FastShared> shared, std::shared_ptr<Intake> intake);
  void open_door(std::vector<Socket> sockets);
  void close_door();
  void speak_for_busy_lanes();
  void accept_from(const Socket& listening);
  void enter(ServerConnection::Setup setup);
  void drop(Entry* entry);
  // Runs the task on every lane with its port: here and now on the caller's own, posted to the
  // others. Gives the ends of those with a thread, which may be waited for.
  std::vector<std::future<void>> on_every_lane(void (*task)(Port&));

  const Address address_;
  const std::shared_ptr<FastShared> shared_;
  const std::shared_ptr<Intake> intake_;
  const ProbeValue probe_;  // what a peer must find at its address to be allowed to pull
  std::vector<std::shared_ptr<Port>> ports_;  // by lane
  std::shared_ptr<LoopLane> door_;

  // The door's lane only.
  std::vector<std::unique_ptr<Acceptor>> acceptors_;
  std::unordered_map<Entry*, std::unique_ptr<Entry>> entries_;
  std::vector<uint64_t> turns_;  // of each lane, when last looked at
  bool closed_ = false;
};

}  // namespace starling
