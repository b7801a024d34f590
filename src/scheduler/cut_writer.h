// CutWriter is the door through which a finished cut becomes one: whoever knows the format of
// checkpoints writes the manifest, or clears away what a failed cut left.
//
// Uses: base, the records. Threads: called on the scheduler's lane; `done` may be called from any.
#pragma once

#include <string>

#include "base/function.h"
#include "scheduler/records.pb.h"
#include "starling/v1/types.pb.h"

namespace starling {

// All that the scheduler knows of a cut: the reports have the files of every shard, the positions
// and watermarks of the hubs.
struct FinishedCut {
  ledger::CutRecord record;
  v1::ShardMap map;
  v1::JobInfo job;
  // With the progress of each item, as they were when everybody had drained.
  std::vector<v1::WorkQueueInfo> queues;
};

class CutWriter {
 public:
  // Gets the path of the cut, or why it could not be published.
  using Done = Function<void(StatusOr<std::string>)>;

  virtual ~CutWriter() = default;
  // Writes the manifest and renames it into place. Must not block. Called again for the same cut
  // after a restart of the scheduler; a cut that is in place already is a success.
  virtual void commit(const FinishedCut& cut, Done done) = 0;
  // The cut failed; its files may go. Older cuts are not touched.
  virtual void discard(const FinishedCut& cut) = 0;
};

}  // namespace starling
