// Watchers are the Watch calls that wait for the next event; no thread waits with them.
//
// Uses: base, wire. Threads: the machine's.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "scheduler/turn.h"

namespace starling {

class Watchers {
 public:
  // Tells the whole state, for a watcher whose revision is too old.
  using Whole = std::function<void(const std::vector<std::string>& prefixes, v1::WatchReply* out)>;

  Watchers(const SchedulerLimits& limits, const EventLog& events, Whole whole)
      : limits_(limits), events_(events), whole_(std::move(whole)) {}

  // Answers at once when there is something to tell, else keeps the call until `deadline`. A newer
  // call of the same registered node takes the place of its older one, which is answered empty.
  void add(Turn& turn, Token token, uint32_t node, const v1::WatchOption& option,
           Deadline deadline);
  // Answers everybody for whom something has happened, or whose time has come.
  void serve(Turn& turn);
  // The caller has gone.
  void drop(Token token) { waiting_.erase(token); }

  // When serve() is wanted although nothing happens.
  TimePoint next() const;
  size_t size() const { return waiting_.size(); }

 private:
  struct Waiting {
    uint64_t revision = 0;
    std::vector<std::string> prefixes;
    TimePoint until;
    uint32_t node = 0;
  };
  bool try_answer(Turn& turn, Token token, Waiting& waiting) const;

  const SchedulerLimits limits_;
  const EventLog& events_;
  const Whole whole_;
  std::map<Token, Waiting> waiting_;
};

}  // namespace starling
