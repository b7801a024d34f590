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

class MemoryLedger final : public Ledger {
 public:
  // `journal` outlives the ledger. DataLoss when a record in it is damaged.
  static StatusOr<std::unique_ptr<MemoryLedger>> open(MemoryJournal& journal);

  StatusOr<LedgerEntry> get(std::string_view key) const override { return space_.get(key); }
  StatusOr<std::vector<LedgerEntry>> list(std::string_view prefix) const override {
    return space_.list(prefix);
  }
  StatusOr<uint64_t> commit(std::span<const LedgerWrite> writes,
                            std::span<const LedgerCondition> conditions) override;
  Status sync() override;
  uint64_t watch(std::string prefix, Watch heard) override {
    return space_.watch(std::move(prefix), std::move(heard));
  }
  void unwatch(uint64_t id) override { space_.unwatch(id); }

 private:
  explicit MemoryLedger(MemoryJournal& journal) : journal_(journal) {}

  MemoryJournal& journal_;
  LedgerSpace space_;
  std::vector<std::string> unsynced_;
};

}  // namespace starling
