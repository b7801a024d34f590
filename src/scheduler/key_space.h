// KeySpace is the small key-value space of the roles' own needs: put, compare-and-put, ephemeral
// keys, changes told to watchers.
//
// Uses: base, wire, the records. Threads: the machine's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "scheduler/records.pb.h"
#include "scheduler/turn.h"

namespace starling {

class KeySpace {
 public:
  explicit KeySpace(const SchedulerLimits& limits) : limits_(limits) {}

  Status load(const LedgerEntry& entry);

  // The answer, an error included: Aborted with what is there when if_revision does not hold.
  // `node` is who asks; 0: nobody that is registered, who cannot put ephemeral keys.
  Message put(Turn& turn, const v1::PutOption& option, uint32_t node);
  Message get(const v1::GetOption& option, uint64_t revision) const;
  // Deletes the ephemeral keys of a node that has gone.
  void drop_node(Turn& turn, uint32_t node);

  // Adds an event for every key under one of the prefixes.
  void tell_all(const std::vector<std::string>& prefixes, v1::WatchReply* out) const;
  size_t size() const { return keys_.size(); }

 private:
  Status check(const v1::PutOption& option, uint32_t node) const;
  void erase(Turn& turn, const std::string& key);

  const SchedulerLimits limits_;
  std::map<std::string, ledger::KeyRecord, std::less<>> keys_;
  size_t bytes_ = 0;
};

}  // namespace starling
