// MemoryLedger keeps the journal in memory that outlives it, for tests and simulations: what was
// not synced is lost with the ledger, as in a crash.
//
// Uses: base. Threads: one owner.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "scheduler/ledger_space.h"

namespace starling {

// The disk of a MemoryLedger: the records that a sync made durable.
struct MemoryJournal {
  std::vector<std::string> records;
};

class MemoryLedger final : public SpaceLedger {
 public:
  // `journal` outlives the ledger. DataLoss when a record in it is damaged.
  static StatusOr<std::unique_ptr<MemoryLedger>> open(MemoryJournal& journal);

  StatusOr<uint64_t> commit(std::span<const LedgerWrite> writes,
                            std::span<const LedgerCondition> conditions) override;
  Status sync() override;

 private:
  explicit MemoryLedger(MemoryJournal& journal) : journal_(journal) {}

  MemoryJournal& journal_;
  std::vector<std::string> unsynced_;
};

}  // namespace starling
