// PsServer is a parameter server's process: one lane per shard behind one net Server, and a control
// lane that keeps it registered with the scheduler and hands every shard what that tells.
//
// Uses: base, wire, net, store, table, scheduler/client.h. Threads: any; shards run on their lanes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/network.h"
#include "net/server.h"
#include "ps/keeper.h"
#include "store/file_system.h"

namespace starling {

struct PsServerOptions {
  std::string name;  // of the node, such as "ps-0"
  Address scheduler;
  std::vector<Address> listen;
  std::string advertise;        // the host that others reach this one by; empty: as it listens
  uint64_t incarnation = 0;     // random, new at each start of the process
  std::string version;          // of the program, for people
  uint32_t shards = 1;          // 1 .. 4096
  size_t memory_bytes_max = 0;  // of all shards; each may use an equal part. 0: no limit
  size_t staging_bytes_max = size_t{1} << 30;  // of each shard
  Duration join_patience = seconds(60);        // until the scheduler has taken it in
  Duration lease_patience = seconds(10);       // one answer of the scheduler
  KeeperMaker make_keeper;                     // none: Save and Restore are Unimplemented
  FileSystem* files = nullptr;                 // for traces; outlives the server
  std::string trace_path;                      // directory of traces; empty: none are written
  // Passed in by simulations; empty: threads of its own.
  std::vector<std::shared_ptr<Lane>> lanes;  // one per shard
  std::shared_ptr<Lane> control;
};

class PsDesk;

class PsServer {
 public:
  // Listens, then registers by itself. Codes as Server::start; InvalidArgument: an option out of
  // bounds, or an address that others cannot reach.
  static StatusOr<std::unique_ptr<PsServer>> start(Network& network, PsServerOptions options);
  // Stops at once when nobody has called stop().
  ~PsServer();

  const std::vector<Address>& addresses() const { return server_->addresses(); }
  // OK when the scheduler has taken it in; else why not. Blocks; not on a lane.
  Status wait_joined(Deadline deadline);

  struct End {
    Status status;                // OK: somebody called Stop
    Duration grace = seconds(5);  // for what is in flight
  };
  // None while it serves. Unavailable: the job failed, the message names who died.
  // FailedPrecondition: the scheduler declared this process dead. Else: it could not register.
  std::optional<End> ended() const;

  // Takes leave of the scheduler where that is possible, refuses new requests, waits for those at
  // hand. DeadlineExceeded when some were cut. Twice is fine.
  Status stop(Deadline deadline);

 private:
  class Control;
  PsServer() = default;

  std::vector<std::shared_ptr<LoopLane>> own_lanes_;
  std::vector<std::shared_ptr<Lane>> lanes_;
  std::shared_ptr<Lane> control_lane_;
  std::vector<std::shared_ptr<PsDesk>> desks_;
  std::shared_ptr<Control> control_;
  std::unique_ptr<Server> server_;
  bool stopped_ = false;
};

}  // namespace starling
