// Served is a job with one ps of one shard, in this process or in a child, and a client of it.
//
// Uses: every role's door. Threads: one owner, which turns the client's lane.
#pragma once

#include <memory>
#include <string>

#include "bench/transport/child.h"
#include "net/makers.h"
#include "ps/client.h"
#include "scheduler/client.h"

namespace starling::bench {

inline constexpr uint32_t kDim = 16;

v1::CreateOption bench_tables();

// Scheduler, ps and an echo on loopback or in this process; prints their addresses when asked to.
class Servers {
 public:
  static StatusOr<std::unique_ptr<Servers>> start(Protocol protocol);
  ~Servers();
  const Address& scheduler() const;
  const Address& echo() const;
  Network& network();

 private:
  Servers() = default;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

class Served {
 public:
  // Registered, created, frozen.
  static StatusOr<std::unique_ptr<Served>> start(Protocol protocol);
  ~Served();

  PsClient& ps() { return *ps_; }
  Lane& lane() { return *lane_; }
  // One empty exchange with the same process.
  Status exchange_nothing();

 private:
  Served() = default;
  Status join(const Address& scheduler);

  std::unique_ptr<Servers> servers_;  // inproc
  std::unique_ptr<Child> child_;
  Metrics metrics_;
  std::unique_ptr<Network> own_network_;
  Network* network_ = nullptr;
  Address echo_;
  std::shared_ptr<LoopLane> control_;
  std::shared_ptr<LoopLane> lane_;
  std::unique_ptr<SchedulerClient> scheduler_;
  std::unique_ptr<PsClient> ps_;
  std::unique_ptr<Client> plain_;
};

}  // namespace starling::bench
