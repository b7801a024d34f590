// FileLedger keeps the journal as an AppendLog: checksummed records, and a snapshot in place of the
// old ones when the file has grown to several times what it holds.
//
// A snapshot is a new log beside the old one, renamed over it when it is durable; there is no
// moment without a whole ledger and no pointer to be wrong. Uses: base, store. Threads: one owner,
// one process: two schedulers must not share a file.
#pragma once

#include <memory>
#include <string>

#include "scheduler/ledger_space.h"
#include "store/append_log.h"

namespace starling {

struct FileLedgerOptions {
  uint64_t compact_bytes_min = 4 << 20;  // a smaller file is never compacted
  uint32_t compact_factor = 4;           // compact at so many times the live bytes
};

class FileLedger final : public SpaceLedger {
 public:
  // Opens or makes the ledger; its folder is made too. `fs` outlives it. DataLoss: the file is
  // damaged before its end; the message names the place, nothing is changed.
  static StatusOr<std::unique_ptr<FileLedger>> open(FileSystem& fs, std::string url,
                                                    FileLedgerOptions options = {});

  StatusOr<uint64_t> commit(std::span<const LedgerWrite> writes,
                            std::span<const LedgerCondition> conditions) override;
  Status sync() override;

  uint64_t file_bytes() const { return log_->size(); }
  // How many bytes of a torn tail the opening cut.
  uint64_t cut_bytes() const { return cut_bytes_; }

 private:
  FileLedger(FileSystem& fs, std::string url, FileLedgerOptions options)
      : fs_(fs), url_(std::move(url)), options_(options) {}
  Status compact();

  FileSystem& fs_;
  const std::string url_;
  const FileLedgerOptions options_;
  std::unique_ptr<AppendLog> log_;
  uint64_t cut_bytes_ = 0;
  bool dirty_ = false;
  Status failed_;
};

}  // namespace starling
