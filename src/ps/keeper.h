// ShardKeeper is the door through which a shard's rows are written and read: whoever knows the
// format of checkpoints stands behind it.
//
// Uses: base, the shard. Threads: every call comes on the shard's lane.
#pragma once

#include <functional>
#include <memory>

#include "net/lane.h"
#include "ps/shard.h"

namespace starling {

class ShardKeeper {
 public:
  virtual ~ShardKeeper() = default;
  // Answer the call by shard.answer() or refuse(), now or later from a task on the lane, which ends
  // with flush().
  virtual void save(Shard& shard, ShardCall& call) = 0;
  virtual void restore(Shard& shard, ShardCall& call) = 0;
  // A cut goes on to a phase; told by the scheduler.
  virtual void on_cut(Shard& shard, const v1::CutEvent& cut) {}
  // The scheduler has told the whole state, in which no cut runs but `running` (0: none): another
  // one that was saved here has become `newest_cut`, or has failed.
  virtual void on_whole(Shard& shard, uint64_t newest_cut, uint64_t running) {}
  // One slice of what runs beside requests. True: there is more; it is called again between
  // requests.
  virtual bool advance(Shard& shard) { return false; }
};

struct KeeperContext {
  LaneId number{0};
  std::shared_ptr<Lane> lane;
  // Sends what was answered outside of a request, and calls advance() when it is wanted.
  std::function<void()> flush;
  // Tells the scheduler how far this lane is with a cut.
  std::function<void(v1::SaveJobOption)> report;
};
using KeeperMaker = std::function<std::unique_ptr<ShardKeeper>(KeeperContext context)>;

}  // namespace starling
