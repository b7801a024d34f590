// EventLog keeps the newest events of the job for Watch, each with its revision; Watchers are the
// calls that wait for the next one.
//
// Uses: base, wire. Threads: the machine's.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "scheduler/options.h"
#include "wire/message.h"

namespace starling {

class EventLog {
 public:
  EventLog(const SchedulerLimits& limits, uint64_t revision)
      : limits_(limits), revision_(revision) {}

  // Gives the event the next revision and returns it. The oldest go when there is no room.
  uint64_t add(v1::Event event);
  uint64_t revision() const { return revision_; }
  // True when nothing after `revision` has been forgotten.
  bool reaches(uint64_t revision) const {
    return revision <= revision_ && revision + events_.size() >= revision_;
  }
  // Adds the events after `revision`; of keys only those under one of the prefixes.
  void copy_after(uint64_t revision, const std::vector<std::string>& prefixes,
                  v1::WatchReply* out) const;

 private:
  const SchedulerLimits limits_;
  uint64_t revision_;
  std::deque<v1::Event> events_;  // the last one has revision_
  size_t bytes_ = 0;
};

// True when the event is not about a key, or about one that starts with one of the prefixes.
bool is_wanted(const v1::Event& event, const std::vector<std::string>& prefixes);

}  // namespace starling
