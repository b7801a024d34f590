// Cuts leads one cut of the whole job through its phases: drain, snapshot, write, commit or fail.
// It only decides; nodes report, the CutWriter writes.
//
// Uses: base, wire, the records. Threads: the machine's.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/nodes.h"

namespace starling {

class Cuts {
 public:
  // Told before anybody hears that the snapshot begins: everything up to the cut's clock is done
  // and nothing beyond it is dealt. Keeps every queue with the progress of its items.
  using OnDrained = std::function<void(Turn& turn, ledger::CutRecord& record)>;

  Cuts(const SchedulerOptions& options, const Nodes& nodes, OnDrained on_drained)
      : options_(options), nodes_(nodes), on_drained_(std::move(on_drained)) {}

  // The phase's time starts anew at `now`.
  Status load(const LedgerEntry& entry, TimePoint now);

  bool is_running() const;
  uint64_t id() const { return record_.cut().cut_id(); }
  const ledger::CutRecord& record() const { return record_; }

  // FailedPrecondition: another one runs. InvalidArgument: no path, or an increment without base.
  // `clock`: at or after every clock dealt; none: asynchronous.
  Status start(Turn& turn, const v1::SaveJobOption& option, uint64_t cut_id,
               std::optional<uint64_t> clock);
  // NotFound: no such cut. FailedPrecondition: it is not in that phase.
  Status report(Turn& turn, const NodeEntry& node, const v1::SaveJobOption& option);
  void fail(Turn& turn, const std::string& why);
  // Somebody that the cut needs has gone.
  void node_gone(Turn& turn, const NodeEntry& node);
  // Goes on when everybody has reported; fails when the phase took too long.
  void review(Turn& turn);
  // True once per attempt: the manifest is to be written now.
  bool take_commit();
  void written(Turn& turn, uint64_t cut_id, const StatusOr<std::string>& path);
  TimePoint next() const;

  void show(v1::SaveJobReply* out) const;
  std::vector<std::string> waiting_for() const;

 private:
  void enter(Turn& turn, v1::CutPhase phase);
  // The clock has been passed: all drain anew, up to a later one.
  void drain_later(Turn& turn, uint64_t reached);
  bool has_reported(const std::string& node, uint32_t lane) const;
  Duration phase_max() const;
  void save(Turn& turn) const;

  const SchedulerOptions& options_;
  const Nodes& nodes_;
  const OnDrained on_drained_;
  ledger::CutRecord record_;
  TimePoint phase_since_;
  bool commit_wanted_ = false;
};

}  // namespace starling
