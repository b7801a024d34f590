// Turn collects what one input to the scheduler changes: ledger writes, events and answers. Parts
// of the machine write into it; the server makes the writes durable before the answers leave.
//
// Uses: base, wire. Threads: a value of the machine's caller.
#pragma once

#include <google/protobuf/message_lite.h>

#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "scheduler/events.h"
#include "scheduler/ledger.h"
#include "wire/message.h"

namespace starling {

struct Answer {
  Token token{};
  Message message;
};

class Turn {
 public:
  Turn(TimePoint now, EventLog& events) : now_(now), events_(events) {}

  TimePoint now() const { return now_; }

  void put(std::string key, const google::protobuf::MessageLite& record) {
    writes.push_back({std::move(key), record.SerializeAsString()});
  }
  void erase(std::string key) { writes.push_back({std::move(key), std::nullopt}); }
  // Returns the event's revision.
  uint64_t tell(v1::Event event) { return events_.add(std::move(event)); }
  uint64_t revision() const { return events_.revision(); }

  void answer(Token token, Message message) { answers.push_back({token, std::move(message)}); }
  void refuse(Token token, const Status& status, v1::Reason reason = v1::REASON_NONE) {
    Message message = status_reply(status);
    message.meta.mutable_status()->set_reason(reason);
    answer(token, std::move(message));
  }

  std::vector<LedgerWrite> writes;
  std::vector<Answer> answers;

 private:
  TimePoint now_;
  EventLog& events_;
};

}  // namespace starling
