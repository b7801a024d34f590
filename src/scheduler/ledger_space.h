// LedgerSpace is the space itself, in memory, common to the makers that keep it as a journal;
// SpaceLedger is what of a ledger it answers alone.
//
// Uses: base, the records. Threads: one owner.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "scheduler/ledger.h"
#include "scheduler/records.pb.h"

namespace starling {

class LedgerSpace {
 public:
  StatusOr<LedgerEntry> get(std::string_view key) const;
  std::vector<LedgerEntry> list(std::string_view prefix) const;

  // Aborted as Ledger::commit says.
  Status check(std::span<const LedgerCondition> conditions) const;
  // The writes as one journal record, at the revisions they will have.
  ledger::Transaction plan(std::span<const LedgerWrite> writes) const;
  void apply(const ledger::Transaction& transaction);
  // Applies a journal record. DataLoss when it is not one.
  Status apply_record(std::span<const std::byte> record);
  // The whole space as journal records of about `record_bytes` each; never none.
  std::vector<std::string> snapshot(size_t record_bytes) const;

  // Tells the watchers of what was applied by plan() and apply() since the last call.
  void tell();
  void keep_for_watchers(const ledger::Transaction& transaction);
  uint64_t watch(std::string prefix, Ledger::Watch heard);
  void unwatch(uint64_t id) { watchers_.erase(id); }

  uint64_t revision() const { return revision_; }
  // Of all keys and values.
  size_t live_bytes() const { return live_bytes_; }

 private:
  struct Value {
    std::string bytes;
    uint64_t revision = 0;
  };
  struct Watcher {
    std::string prefix;
    Ledger::Watch heard;
  };
  std::map<std::string, Value, std::less<>> entries_;
  uint64_t revision_ = 0;
  size_t live_bytes_ = 0;
  std::map<uint64_t, Watcher> watchers_;
  uint64_t next_watcher_ = 1;
  std::vector<ledger::Transaction> unheard_;
};

// A ledger whose space lies in memory. A maker adds where the journal of commit() and sync() goes.
class SpaceLedger : public Ledger {
 public:
  StatusOr<LedgerEntry> get(std::string_view key) const override { return space_.get(key); }
  StatusOr<std::vector<LedgerEntry>> list(std::string_view prefix) const override {
    return space_.list(prefix);
  }
  uint64_t watch(std::string prefix, Watch heard) override {
    return space_.watch(std::move(prefix), std::move(heard));
  }
  void unwatch(uint64_t id) override { space_.unwatch(id); }

 protected:
  LedgerSpace space_;
};

}  // namespace starling
