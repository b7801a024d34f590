// Ledger is the door to the scheduler's durable state: a small ordered key-value space with
// compare-and-put and watch.
//
// Makers: a journal file (file_ledger.h), memory (memory_ledger.h). Uses: base. Threads: one owner.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function.h"
#include "base/status.h"

namespace starling {

struct LedgerEntry {
  std::string key;
  std::string value;
  uint64_t revision = 0;  // of the space when it was written
};

struct LedgerWrite {
  std::string key;
  std::optional<std::string> value;  // empty: the key goes
};

// Holds when the key's revision is this one; 0: when the key is not there.
struct LedgerCondition {
  std::string key;
  uint64_t revision = 0;
};

class Ledger {
 public:
  using Watch = Function<void(const LedgerWrite& write, uint64_t revision)>;

  virtual ~Ledger() = default;

  // NotFound when the key is not there.
  virtual StatusOr<LedgerEntry> get(std::string_view key) const = 0;
  // In the order of keys.
  virtual StatusOr<std::vector<LedgerEntry>> list(std::string_view prefix) const = 0;

  // Writes all or nothing, seen by get() and list() at once, durable after the next sync(). Returns
  // the revision of the space. Aborted: a condition does not hold, nothing was written; somebody
  // else owns the ledger. Other codes: the store; the ledger must be opened again.
  virtual StatusOr<uint64_t> commit(std::span<const LedgerWrite> writes,
                                    std::span<const LedgerCondition> conditions = {}) = 0;
  // Returns when everything committed survives a crash. An error says nothing about what does.
  virtual Status sync() = 0;

  // `heard` gets every change of a key that starts with `prefix`, once it is durable, in order,
  // inside sync(). It must not call the ledger.
  virtual uint64_t watch(std::string prefix, Watch heard) = 0;
  virtual void unwatch(uint64_t id) = 0;
};

}  // namespace starling
