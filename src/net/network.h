// Network is a process's access to all transports, with the options, log and metrics they share.
//
// Uses: base, wire. Threads: any, after the transports have been added.
#pragma once

#include <array>
#include <memory>

#include "base/log.h"
#include "base/metrics.h"
#include "net/loop_lane.h"
#include "net/options.h"
#include "net/transport.h"

namespace starling {

class Network {
 public:
  // `metrics` outlives the network.
  Network(NetOptions options, Log log, Metrics& metrics);
  ~Network();

  // Takes the place of the one that was there. Before the first server or client.
  void add(Protocol protocol, std::unique_ptr<Transport> transport);
  // Unimplemented when this process was built or started without it.
  StatusOr<Transport*> transport(Protocol protocol) const;

  const NetOptions& options() const { return options_; }
  const Log& log() const { return log_; }
  Metrics& metrics() const { return metrics_; }
  BufferPool& pool() { return pool_; }

  // A lane with a thread, waiting as the options say. `number` chooses the core where lanes are
  // pinned.
  std::shared_ptr<LoopLane> make_lane(std::string name, uint32_t number) const;
  // A lane that the calling thread owns and turns.
  std::shared_ptr<LoopLane> make_driven_lane() const;
  // The lane that callers without one of their own share; started at first use.
  std::shared_ptr<LoopLane> background_lane();

 private:
  LoopOptions loop_options(std::string name) const;

  const NetOptions options_;
  const Log log_;
  Metrics& metrics_;
  BufferPool pool_;
  std::shared_ptr<SpinBudget> spin_budget_;
  std::array<std::unique_ptr<Transport>, kProtocols> transports_;
  Mutex mutex_;
  std::shared_ptr<LoopLane> background_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling
