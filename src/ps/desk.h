// PsDesk runs one shard on its lane: requests in, answers out, the shard's timer, what is measured
// of them, and what the scheduler tells.
//
// Uses: base, wire, net. Threads: everything on its lane.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <functional>
#include <memory>
#include <vector>

#include "net/lane.h"
#include "net/server.h"
#include "ps/keeper.h"
#include "ps/profiler.h"
#include "ps/rpc_metrics.h"
#include "ps/shard.h"

namespace starling {

// What the desk of one lane tells those who speak for the process.
struct LaneReport {
  LaneId lane{0};
  uint64_t revision = 0;  // events of the scheduler are taken in up to here
  std::vector<v1::RankClock> clocks;
  std::vector<v1::RankBatch> batches;
  size_t memory_bytes = 0;
  bool frozen = false;
};

// What the desks of a process share; outlives them.
struct PsShared {
  PsShared(Metrics& metrics, uint32_t lanes) : rpcs(metrics), profiler(lanes) {}
  RpcMetrics rpcs;
  Profiler profiler;
  // From the lane of the desk; each must not block.
  std::function<void(LaneReport)> report;
  std::function<void(const v1::StopOption&)> stop;
  std::function<void(v1::SaveJobOption)> report_cut;
  // Renders and keeps the trace elsewhere, then answers by the callback from any thread.
  std::function<void(std::function<void(v1::ProfileReply)>)> finish_profile;
};

class PsDesk final : public Handler, public ShardHost, public std::enable_shared_from_this<PsDesk> {
 public:
  PsDesk(std::shared_ptr<Lane> lane, std::shared_ptr<PsShared> shared);

  // Requests before it are answered with Unavailable. Once.
  void open(const ShardOptions& options, const KeeperMaker& make_keeper);
  // Takes the events of one answer of the scheduler in, then reports. `whole`: they tell all that
  // holds; ranks that are not among them are gone.
  void take_events(const std::vector<v1::Event>& events, bool whole, uint64_t revision);
  void report();
  // Sends everybody away.
  void close(const Status& why);

  void handle(Request request, Reply reply) override;

  void save(Shard& shard, ShardCall& call) override;
  void restore(Shard& shard, ShardCall& call) override;
  void stop(Shard& shard, ShardCall& call) override;
  void profile(Shard& shard, ShardCall& call) override;
  uint32_t open_requests() const override { return static_cast<uint32_t>(open_.size()); }
  void describe_rpcs(v1::StatReply& reply) override { shared_->rpcs.describe(reply); }

  Shard* shard() { return shard_.get(); }

 private:
  struct Open {
    Reply reply;
    Method method{};
    size_t bytes_in = 0;
    TimePoint came;
    TimePoint handled;
  };
  TimePoint now() const { return lane_->clock().now(); }
  void take_whole(const std::vector<v1::Event>& events);
  void flush();
  void send(Open& open, Message reply);
  void arm();
  void advance();
  // Prepares the shard for new rows once no request has come for a moment.
  void rest_later();

  const std::shared_ptr<Lane> lane_;
  const std::shared_ptr<PsShared> shared_;
  LaneId number_{0};
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<ShardKeeper> keeper_;
  Status closed_;
  absl::flat_hash_map<Token, Open> open_;
  uint64_t tokens_ = 0;
  uint64_t revision_ = 0;
  bool advancing_ = false;
  bool is_resting_ = false;  // rest_later() has a timer
  TimerId timer_{};
  TimePoint armed_ = TimePoint::max();
};

}  // namespace starling
