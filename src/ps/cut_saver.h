// CutSaver writes one shard's part of a cut beside training: it holds the moment, hands the rows
// out in slices between requests, and a thread writes them.
//
// Extra memory is bounded: copies of rows that change before they are out, and what waits to be
// written. Uses: base, store, table, wire. Threads: everything on the shard's lane; the writing
// thread is its own.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "ps/cut_files.h"
#include "ps/shard.h"
#include "store/file_system.h"
#include "table/table.h"

namespace starling {

struct CutSaverOptions {
  // Of all tables together; 0: half of what they hold, at least 64 MiB, and of what
  // ShardOptions::memory_bytes_max leaves at most half.
  size_t copy_bytes_max = 0;
  size_t queue_bytes_max = size_t{64} << 20;  // of images that wait to be written
  uint64_t file_bytes = uint64_t{256} << 20;  // of a file of rows, about
  size_t slice_bytes = size_t{512} << 10;     // handed out between two requests, about
  uint32_t busy_share = 16;                   // under load slices take one part of so many
  // A push that must wait for the store longer than this ends the save instead.
  Duration stall_max = seconds(30);
};

class CutSaver {
 public:
  // All outlive it.
  CutSaver(Shard& shard, FileSystem& fs, const Clock& clock, CutSaverOptions options = {});
  ~CutSaver();

  // -- Ps.Save, phase by phase; each may be repeated. --
  // FailedPrecondition: another cut is being saved, or a rank has not reached the cut's clock.
  // InvalidArgument: no path, a name that is not there.
  Status begin(const v1::SaveOption& option);
  // NotFound: no such cut here. Else how far it is, or why it failed.
  StatusOr<v1::SaveReply> progress(uint64_t cut_id) const;
  // The manifest is in place: what the filter changes in rows is applied, once per cut.
  // FailedPrecondition: not all is written.
  Status commit(uint64_t cut_id);
  // Drops the snapshot and its files. A cut that is not there any more is fine.
  void cancel(uint64_t cut_id);

  bool is_saving() const { return save_ != nullptr; }
  // True while rows are left to hand out, or to change after a commit.
  bool has_more() const;
  // One slice, when it is time for one. Under load (`is_idle` is false) slices take about one part
  // in `busy_share` of the time, unless copies near their bound: then writing goes ahead of
  // training. False: nothing to do before next_slice().
  bool advance(bool is_idle);
  // When advance() wants to be called under load; TimePoint::max() for never.
  TimePoint next_slice() const;
  // Memory beyond the tables' own: copies and images, now and at most.
  size_t extra_bytes() const;
  size_t extra_bytes_max() const { return extra_bytes_max_; }

  // The shard's rows have come from a cut: what was written before is no base any more.
  void forget_bases() {
    bases_.clear();
    sweep_.reset();
  }

 private:
  class Sink;
  struct Base {
    uint64_t cut_id = 0;
    uint64_t map_version = 0;
    std::map<std::string, uint64_t> operations;  // of each table at the cut
  };
  struct Save;
  // What a commit changes in rows, bucket by bucket.
  struct Sweep {
    SaveFilter filter;
    std::vector<std::string> tables;  // the last is under way
    uint32_t next = 0;                // bucket of it
  };
  struct Committed {
    uint64_t cut_id = 0;
    v1::SaveReply reply;
  };

  Status check(const v1::SaveOption& option, std::vector<std::string>& tables,
               std::vector<std::string>& variables) const;
  size_t copy_bound(size_t held) const;
  Status begin_table(Save& save, const std::string& name, const Base* base);
  Status put_deletions(Save& save, const Table& table, uint64_t since);
  void put_variables(Save& save, const std::vector<std::string>& names);
  // About `rows` rows; the rest stays in sweep_.
  void sweep(size_t rows);
  void next_table();
  void drop_rows();
  void retire();
  void note_memory();

  Shard& shard_;
  FileSystem& fs_;
  const Clock& clock_;
  const CutSaverOptions options_;
  BufferPool pool_;  // of rows on their way to the writing thread
  std::unique_ptr<Save> save_;
  std::optional<Sweep> sweep_;
  TimePoint next_slice_;
  std::deque<Base> bases_;                          // of committed cuts, newest last
  std::deque<Committed> committed_;                 // for repeats, newest last
  std::vector<std::unique_ptr<CutFiles>> retired_;  // their threads are about to end
  size_t extra_bytes_max_ = 0;
};

}  // namespace starling
