// Sessions remembers what numbered requests were answered, so that a repeat is answered the same
// and changes nothing.
//
// Uses: base, wire, the records. Threads: the machine's.
#pragma once

#include <map>
#include <optional>

#include "scheduler/records.pb.h"
#include "scheduler/turn.h"
#include "wire/method.h"

namespace starling {

class Sessions {
 public:
  explicit Sessions(const SchedulerLimits& limits) : limits_(limits) {}

  Status load(const LedgerEntry& entry);

  // What to do with a numbered request.
  struct Verdict {
    bool is_fresh = false;         // carry it out, then remember()
    uint64_t change = 0;           // a repeat whose answer waits for this change
    std::optional<Message> reply;  // a repeat: the answer of the first
  };
  // InvalidArgument: no session or number, or the number came with other content
  // (REASON_NUMBER_REUSED). ResourceExhausted: the window is full (REASON_WINDOW_FULL).
  StatusOr<Verdict> look(Turn& turn, Method method, const Message& request);
  // A request with this session and number has been answered before.
  bool knows(const v1::Header& header) const;
  // Keeps the answer of a request that look() found fresh. `change`: the answer is not final before
  // this change holds; finish() gives it then.
  void remember(Turn& turn, Method method, const Message& request, const Message& reply,
                uint64_t change = 0);
  void finish(Turn& turn, uint64_t change, const Message& reply);
  // A node was fenced; its sessions end.
  void drop_node(Turn& turn, uint32_t node);

  size_t size() const { return sessions_.size(); }

 private:
  struct Session {
    std::map<uint64_t, ledger::SessionRecord> answers;  // by number
    uint64_t acked_below = 0;
    uint32_t node = 0;
    uint64_t used = 0;
  };
  void forget(Turn& turn, uint64_t id, Session& session, uint64_t below);
  void make_room(Turn& turn);

  const SchedulerLimits limits_;
  std::map<uint64_t, Session> sessions_;
  uint64_t uses_ = 0;
};

}  // namespace starling
