#include "scheduler/ledger_space.h"

#include <algorithm>

namespace starling {

StatusOr<LedgerEntry> LedgerSpace::get(std::string_view key) const {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return not_found("ledger: no key '{}'", key);
  return LedgerEntry{it->first, it->second.bytes, it->second.revision};
}

std::vector<LedgerEntry> LedgerSpace::list(std::string_view prefix) const {
  std::vector<LedgerEntry> found;
  for (auto it = entries_.lower_bound(prefix);
       it != entries_.end() && std::string_view(it->first).starts_with(prefix); ++it) {
    found.push_back({it->first, it->second.bytes, it->second.revision});
  }
  return found;
}

Status LedgerSpace::check(std::span<const LedgerCondition> conditions) const {
  for (const LedgerCondition& condition : conditions) {
    const auto it = entries_.find(condition.key);
    const uint64_t there = it == entries_.end() ? 0 : it->second.revision;
    if (there != condition.revision) {
      return aborted("ledger: key '{}' has revision {}, not {}", condition.key, there,
                     condition.revision);
    }
  }
  return absl::OkStatus();
}

ledger::Transaction LedgerSpace::plan(std::span<const LedgerWrite> writes) const {
  ledger::Transaction transaction;
  uint64_t revision = revision_;
  for (const LedgerWrite& write : writes) {
    ledger::Write* out = transaction.add_writes();
    out->set_key(write.key);
    out->set_revision(++revision);
    if (write.value.has_value()) {
      out->set_value(*write.value);
    } else {
      out->set_erased(true);
    }
  }
  return transaction;
}

void LedgerSpace::apply(const ledger::Transaction& transaction) {
  for (const ledger::Write& write : transaction.writes()) {
    revision_ = std::max(revision_, write.revision());
    if (const auto it = entries_.find(write.key()); it != entries_.end()) {
      live_bytes_ -= it->first.size() + it->second.bytes.size();
      if (write.erased()) entries_.erase(it);
    }
    if (write.erased()) continue;
    live_bytes_ += write.key().size() + write.value().size();
    entries_.insert_or_assign(write.key(), Value{write.value(), write.revision()});
  }
}

Status LedgerSpace::apply_record(std::span<const std::byte> record) {
  ledger::Transaction transaction;
  if (!transaction.ParseFromArray(record.data(), static_cast<int>(record.size()))) {
    return data_loss("ledger: a record of {} bytes is not a transaction", record.size());
  }
  // An erased key without a name carries the revision of a snapshot; nothing else may lie there.
  for (const ledger::Write& write : transaction.writes()) {
    if (write.key().empty() && !write.erased()) return data_loss("ledger: a write without a key");
  }
  apply(transaction);
  return absl::OkStatus();
}

std::vector<std::string> LedgerSpace::snapshot(size_t record_bytes) const {
  std::vector<std::string> records;
  ledger::Transaction part;
  size_t bytes = 0;
  for (const auto& [key, value] : entries_) {
    ledger::Write* out = part.add_writes();
    out->set_key(key);
    out->set_value(value.bytes);
    out->set_revision(value.revision);
    bytes += key.size() + value.bytes.size();
    if (bytes >= record_bytes) {
      records.push_back(part.SerializeAsString());
      part.Clear();
      bytes = 0;
    }
  }
  // The newest revision may belong to a key that has gone; a later one must not repeat it.
  ledger::Write* last = part.add_writes();
  last->set_erased(true);
  last->set_revision(revision_);
  records.push_back(part.SerializeAsString());
  return records;
}

void LedgerSpace::keep_for_watchers(const ledger::Transaction& transaction) {
  if (!watchers_.empty()) unheard_.push_back(transaction);
}

void LedgerSpace::tell() {
  const std::vector<ledger::Transaction> told = std::exchange(unheard_, {});
  for (const ledger::Transaction& transaction : told) {
    for (const ledger::Write& write : transaction.writes()) {
      LedgerWrite change{write.key(), std::nullopt};
      if (!write.erased()) change.value = write.value();
      for (auto& [id, watcher] : watchers_) {
        if (write.key().starts_with(watcher.prefix)) watcher.heard(change, write.revision());
      }
    }
  }
}

uint64_t LedgerSpace::watch(std::string prefix, Ledger::Watch heard) {
  watchers_.emplace(next_watcher_, Watcher{std::move(prefix), std::move(heard)});
  return next_watcher_++;
}

}  // namespace starling
