// CutPublisher is the coordinator's side of cuts: it turns what the shards have written into a cut,
// clears away what failed or is too old, and makes long chains of increments short.
//
// Uses: base, store, table. Threads: commit() and discard() from any; the thread `cut-publisher`
// does the work, in the order of calls.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/function.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/thread.h"
#include "ps/manifest.h"
#include "store/file_system.h"
#include "wire/message.h"

namespace starling {

// All that the coordinator knows of a cut whose shards have written their files.
struct CutDraft {
  std::string path;                       // the cut's directory
  ckpt::Manifest manifest;                // without format, base, state and files
  std::vector<v1::Watermark> watermarks;  // of the hubs
  std::vector<v1::SavedFile> files;       // of all shards
  uint32_t keep = 0;                      // newest cuts that stay; 0: all
};

// Publishes the manifest of a draft; a cut that is in place already is a success.
//
// DataLoss: a shard's file is not what the shard reported. NotFound: the base of an increment is
// not there. InvalidArgument: the base has other names, or shards disagree. AlreadyExists: another
// cut has the place. Nothing is published then.
StatusOr<Cut> publish_cut(FileSystem& fs, const CutDraft& draft);

// Makes an increment a full cut of the same number and content, in place; `incarnation` is the
// writer's. `range_bytes` is the memory it may take, about.
Status compact_cut(FileSystem& fs, const Cut& cut, Incarnation incarnation,
                   uint64_t range_bytes = uint64_t{256} << 20);

struct CutPublisherOptions {
  Incarnation incarnation{0};
  size_t chain_max = 8;  // cuts; a longer chain is compacted after the commit
  size_t pending_max = 64;
};

class CutPublisher {
 public:
  using Done = Function<void(StatusOr<std::string>)>;

  // `fs` outlives it.
  CutPublisher(FileSystem& fs, CutPublisherOptions options, Log log);
  // Calls that wait end with Cancelled.
  ~CutPublisher();

  // `done` gets the path of the cut, or why there is none; called once, from any thread.
  void commit(CutDraft draft, Done done);
  // The cut failed: its directory goes, unless it is complete.
  void discard(std::string path, uint64_t cut_id);

 private:
  struct Task {
    CutDraft draft;
    Done done;  // empty: discard
  };
  void run();
  void commit_now(Task& task);
  // What may fail without harm: old cuts and long chains are dealt with after the next cut.
  void tidy(const CutDraft& draft, const Cut& cut);
  void discard_now(const CutDraft& draft);
  void push(Task task);

  FileSystem& fs_;
  const CutPublisherOptions options_;
  const Log log_;

  Mutex mutex_;
  CondVar changed_;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);

  Thread thread_;
};

}  // namespace starling
