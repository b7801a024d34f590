// CutKeeper keeps a shard's rows in cuts: it answers Save and Restore, follows the cuts that the
// scheduler leads, and reports how far its shard is.
//
// Uses: base, wire, net, store. Threads: every call on the shard's lane; a restore reads on a
// thread of its own, and the shard answers until the rows are swapped.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "base/log.h"
#include "base/thread.h"
#include "ps/cut_restore.h"
#include "ps/cut_saver.h"
#include "ps/keeper.h"
#include "store/file_system.h"

namespace starling {

class CutKeeper final : public ShardKeeper {
 public:
  // `fs` outlives it.
  CutKeeper(FileSystem& fs, KeeperContext context, CutSaverOptions options, Log log);
  // Ends a restore that runs.
  ~CutKeeper() override;

  void save(Shard& shard, ShardCall& call) override;
  void restore(Shard& shard, ShardCall& call) override;
  void on_cut(Shard& shard, const v1::CutEvent& cut) override;
  void on_whole(Shard& shard, uint64_t newest_cut, uint64_t running) override;
  bool advance(Shard& shard) override;

 private:
  // What a restoring thread and its keeper share.
  struct Reading {
    std::atomic<bool> is_stopping{false};
    // Of the lane.
    bool is_over = false;
    uint64_t generation = 0;
    std::string asked;          // the option, to know a repeat by
    std::vector<Token> tokens;  // of the request and its repeats
  };

  CutSaver& saver(Shard& shard);
  void reply_progress(Shard& shard, ShardCall& call, uint64_t cut_id);
  void report(v1::CutPhase phase, const Status& status, const v1::SaveReply* written);
  void report_written(Shard& shard);
  // OK, or why this shard may not go back to a cut now.
  Status check_restore(const Shard& shard, uint64_t generation) const;
  void restored(Shard& shard, StatusOr<RestoredShard> result);
  void wake_at(TimePoint at);

  FileSystem& fs_;
  const KeeperContext context_;
  const CutSaverOptions options_;
  const Log log_;
  // Tasks on the lane hold it weakly: they may run after the keeper has gone.
  std::shared_ptr<CutKeeper*> self_ = std::make_shared<CutKeeper*>(this);

  std::unique_ptr<CutSaver> saver_;
  uint64_t cut_id_ = 0;                         // that the scheduler leads; 0: none
  v1::CutPhase phase_ = v1::CUT_PHASE_UNKNOWN;  // of it
  bool is_reported_ = false;                    // that all is written, or that it failed
  TimePoint next_report_;                       // of progress
  uint64_t last_operations_ = 0;                // to see whether the shard is busy
  TimePoint woken_at_ = TimePoint::max();

  std::shared_ptr<Reading> reading_;
  Thread reader_;
};

// A keeper for each lane of a ps. `fs` outlives the ps.
KeeperMaker make_cut_keepers(FileSystem& fs, const CutSaverOptions& options, const Log& log);

}  // namespace starling
