#include "scheduler/file_ledger.h"

#include <algorithm>

namespace starling {
namespace {

constexpr size_t kSnapshotRecordBytes = 1 << 20;
constexpr std::string_view kNewSuffix = ".new";

Status ignore_record(std::span<const std::byte>) { return absl::OkStatus(); }

}  // namespace

StatusOr<std::unique_ptr<FileLedger>> FileLedger::open(FileSystem& fs, std::string url,
                                                       FileLedgerOptions options) {
  std::unique_ptr<FileLedger> ledger(new FileLedger(fs, std::move(url), options));
  if (const size_t slash = ledger->url_.rfind('/'); slash != std::string::npos && slash > 0) {
    STARLING_RETURN_IF_ERROR(fs.make_directories(ledger->url_.substr(0, slash)));
  }
  // A compaction that did not come to its rename.
  const Status removed = fs.remove(ledger->url_ + std::string(kNewSuffix));
  if (!removed.ok() && removed.code() != StatusCode::kNotFound) return removed;
  STARLING_ASSIGN_OR_RETURN(
      ledger->log_, AppendLog::open(fs, ledger->url_, [&ledger](std::span<const std::byte> record) {
        return with_context(ledger->space_.apply_record(record), ledger->url_);
      }));
  ledger->cut_bytes_ = ledger->log_->cut_bytes();
  return ledger;
}

StatusOr<uint64_t> FileLedger::commit(std::span<const LedgerWrite> writes,
                                      std::span<const LedgerCondition> conditions) {
  STARLING_RETURN_IF_ERROR(failed_);
  STARLING_RETURN_IF_ERROR(space_.check(conditions));
  if (writes.empty()) return space_.revision();
  const ledger::Transaction transaction = space_.plan(writes);
  const std::string record = transaction.SerializeAsString();
  failed_ = log_->append(bytes_of(record));
  STARLING_RETURN_IF_ERROR(failed_);
  space_.apply(transaction);
  space_.keep_for_watchers(transaction);
  dirty_ = true;
  return space_.revision();
}

Status FileLedger::sync() {
  STARLING_RETURN_IF_ERROR(failed_);
  if (!dirty_) return absl::OkStatus();
  const uint64_t limit =
      std::max<uint64_t>(options_.compact_bytes_min, options_.compact_factor * space_.live_bytes());
  failed_ = log_->size() > limit ? compact() : log_->sync();
  STARLING_RETURN_IF_ERROR(failed_);
  dirty_ = false;
  space_.tell();
  return absl::OkStatus();
}

Status FileLedger::compact() {
  const std::string beside = url_ + std::string(kNewSuffix);
  STARLING_ASSIGN_OR_RETURN(std::unique_ptr<AppendLog> log,
                            AppendLog::open(fs_, beside, ignore_record));
  for (const std::string& record : space_.snapshot(kSnapshotRecordBytes)) {
    STARLING_RETURN_IF_ERROR(log->append(bytes_of(record)));
  }
  STARLING_RETURN_IF_ERROR(log->sync());
  log.reset();
  STARLING_RETURN_IF_ERROR(fs_.rename(beside, url_));
  STARLING_ASSIGN_OR_RETURN(log_, AppendLog::open(fs_, url_, ignore_record));
  return absl::OkStatus();
}

}  // namespace starling
