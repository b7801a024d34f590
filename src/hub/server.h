// HubServer is a hub's process: its lanes answer trainers, a control lane keeps it registered with
// the scheduler, follows cuts and tends the datasets.
//
// Uses: base, wire, net, store, data, clients of scheduler and ps. Threads: any; requests run on
// its lanes, each dataset has threads of its own.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/batch.h"
#include "net/network.h"
#include "net/server.h"
#include "store/file_system.h"

namespace starling {

struct HubServerOptions {
  std::string name;  // of the node, such as "hub-0"
  Address scheduler;
  std::vector<Address> listen;
  std::string advertise;           // the host that others reach this one by; empty: as it listens
  uint64_t incarnation = 0;        // random, new at each start of the process
  std::string version;             // of the program, for people
  std::vector<BatchTable> tables;  // of the job
  uint32_t lanes = 1;              // 1 .. 1024
  uint32_t threads = 1;            // that parse, per dataset, where StartSample names none
  size_t memory_bytes_max = 0;     // of the samples and batches of a dataset; 0: no limit
  uint32_t window_max = 512;       // prepared batches of all datasets on every shard
  uint64_t item_bytes = 64 << 20;  // of a range of a plain file that one hub reads
  uint32_t hub = 0;                // synchronous jobs: which of ...
  uint32_t hubs = 1;               // ... so many it is
  FileSystem* files = nullptr;     // outlives the server
  Duration join_patience = seconds(60);
};

class HubServer {
 public:
  // Listens, then registers by itself. Codes as Server::start; InvalidArgument: an option out of
  // bounds, or an address that others cannot reach.
  static StatusOr<std::unique_ptr<HubServer>> start(Network& network, HubServerOptions options);
  // Stops at once when nobody has called stop().
  ~HubServer();

  const std::vector<Address>& addresses() const { return server_->addresses(); }
  // OK when the scheduler has taken it in; else why not. Blocks; not on a lane.
  Status wait_joined(Deadline deadline);
  // None while it serves. OK: the job is done. Unavailable: the job failed. FailedPrecondition: the
  // scheduler declared this process dead. Else: it could not register.
  std::optional<Status> ended() const;
  // A line per dataset: its state, counts and rates.
  std::string progress() const;
  // The most that a dataset of it has held so far, in samples and batches.
  size_t memory_bytes_peak() const;

  // Refuses new requests, gives items back by leaving, ends the datasets. DeadlineExceeded when
  // requests were cut. Twice is fine.
  Status stop(Deadline deadline);

 private:
  class Control;
  HubServer() = default;

  std::vector<std::shared_ptr<LoopLane>> lanes_;
  std::shared_ptr<LoopLane> control_lane_;
  std::shared_ptr<Control> control_;
  std::unique_ptr<Handler> handler_;  // of the service, on every lane
  std::unique_ptr<Server> server_;
  bool stopped_ = false;
};

}  // namespace starling
