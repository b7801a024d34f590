// CutFiles writes one shard's files of one cut on threads of its own, fed by a bounded queue.
//
// Uses: base, store, table. Threads: put(), finish() and cancel() from the shard's lane; the thread
// `cut-maker` makes images of rows while `cut-writer` writes those before and `cut-memory` makes
// memory present that copies will need; the rest from any.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/queue.h"
#include "base/status.h"
#include "base/thread.h"
#include "ps/checkpoint.pb.h"
#include "ps/checkpoint_file.h"
#include "store/file_system.h"
#include "table/table.h"

namespace starling {

struct CutFilesOptions {
  std::string path;  // the cut's directory
  uint64_t cut_id = 0;
  NodeId node{0};  // of the writer; all three are in the names of its files
  LaneId lane{0};
  Incarnation incarnation{0};
  size_t queue_bytes_max = size_t{64} << 20;  // beyond it put() waits
  uint64_t file_bytes = uint64_t{256} << 20;  // a file of rows ends at the bucket that passes this
  bool has_stock = true;  // of chunks for a snapshot's copies; false: these are few
};

class CutFiles final : public ChunkSource {
 public:
  // `fs` outlives it.
  CutFiles(FileSystem& fs, CutFilesOptions options);
  // Cancels when not all is durable; joins. Files that are durable stay: the cut may still be
  // published.
  ~CutFiles() override;

  struct Item {
    CutRecordKind kind = CutRecordKind::kEnd;
    uint32_t number = 0;
    std::string table;  // of rows
    bool is_ahead =
        false;  // came before its turn: kept in a file apart, so that ranges stay narrow
    std::vector<std::byte> bytes;
    // The writing thread makes `bytes` of them.
    std::optional<BucketRows> rows;
    std::optional<DensePart> part;

    size_t held_bytes() const;
    void make_bytes();        // in the memory of `bytes`
    size_t queued_bytes = 0;  // what put() counted
  };
  // Waits while the queue is full, until the deadline. DeadlineExceeded: it stayed full. Any other
  // error is the writer's, which has failed for good.
  Status put(Item item, Deadline deadline);
  // A chunk that the thread `cut-memory` has made present; for the tables' snapshots.
  Pages take() override;
  size_t stock_bytes() const { return stock_.size() * RowCopies::kChunkBytes; }
  // Half of the queue is free, or the writer has failed.
  bool has_room() const;
  // False: not until the deadline.
  bool wait_for_room(Deadline deadline) const;
  // The writing thread drops it: giving much memory back to the system takes its time.
  void dispose(std::shared_ptr<void> memory);
  // No more items come; `state` is written last.
  void finish(ckpt::ShardState state);
  // Drops what waits and removes what was written, unless all is durable: then the cut may have
  // been published meanwhile, and only the coordinator may remove it. Twice is fine.
  void cancel();
  // The thread has ended, so that the destructor does not wait.
  bool has_ended() const;

  struct Progress {
    bool is_done = false;  // all is durable
    Status status;         // why it failed; OK while it goes on
    uint64_t rows = 0;
    uint64_t bytes = 0;           // of records, written
    size_t queued_bytes = 0;      // now
    size_t queued_bytes_max = 0;  // the most so far
    std::vector<ckpt::File> files;
  };
  Progress progress() const;
  Status status() const;
  size_t queued_bytes() const;

 private:
  using Slot = std::pair<std::string, bool>;  // table, is_ahead

  void fill_stock();
  void make_items();
  bool next(Item& item);  // false: no more
  void run();
  Status write_all();
  Status write(const Item& item);
  void drop_disposed();
  Status close(const Slot& slot);
  Status write_state();
  std::string file_name(const char* suffix);
  void fail(const Status& status);
  void remove_written();

  FileSystem& fs_;
  const CutFilesOptions options_;

  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<void>> disposed_ ABSL_GUARDED_BY(mutex_);
  bool is_finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
  ckpt::ShardState state_ ABSL_GUARDED_BY(mutex_);
  Progress progress_ ABSL_GUARDED_BY(mutex_);

  static constexpr size_t kMadeMax = 4;
  Queue<Item> made_{kMadeMax};                         // with their bytes, in order
  Queue<std::vector<std::byte>> spent_{2 * kMadeMax};  // memory of written ones, to be used again

  // The writing thread's own.
  std::map<Slot, std::unique_ptr<CutFileWriter>> open_;
  std::unique_ptr<CutFileWriter> dense_;
  uint32_t files_made_ = 0;
  std::vector<std::string> published_;

  static constexpr size_t kStockMax = 24;
  Queue<Pages> stock_{kStockMax};

  Thread stocker_;
  Thread maker_;
  Thread writer_;
};

}  // namespace starling
