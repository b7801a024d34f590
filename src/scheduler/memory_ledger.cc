#include "scheduler/memory_ledger.h"

#include <algorithm>
#include <iterator>

namespace starling {

namespace {
// The journal of a long simulation stays within a few times the space itself.
constexpr size_t kRecordsMax = 4096;
constexpr size_t kSnapshotRecordBytes = 1 << 20;
}  // namespace

StatusOr<std::unique_ptr<MemoryLedger>> MemoryLedger::open(MemoryJournal& journal) {
  std::unique_ptr<MemoryLedger> ledger(new MemoryLedger(journal));
  for (const std::string& record : journal.records) {
    STARLING_RETURN_IF_ERROR(ledger->space_.apply_record(std::as_bytes(std::span(record))));
  }
  return ledger;
}

StatusOr<uint64_t> MemoryLedger::commit(std::span<const LedgerWrite> writes,
                                        std::span<const LedgerCondition> conditions) {
  STARLING_RETURN_IF_ERROR(space_.check(conditions));
  if (writes.empty()) return space_.revision();
  const ledger::Transaction transaction = space_.plan(writes);
  space_.apply(transaction);
  space_.keep_for_watchers(transaction);
  unsynced_.push_back(transaction.SerializeAsString());
  return space_.revision();
}

Status MemoryLedger::sync() {
  std::move(unsynced_.begin(), unsynced_.end(), std::back_inserter(journal_.records));
  unsynced_.clear();
  if (journal_.records.size() > kRecordsMax) {
    journal_.records = space_.snapshot(kSnapshotRecordBytes);
  }
  space_.tell();
  return absl::OkStatus();
}

}  // namespace starling
