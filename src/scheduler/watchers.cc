#include "scheduler/watchers.h"

#include <algorithm>

#include "base/answer_by.h"

namespace starling {

void Watchers::add(Turn& turn, Token token, uint32_t node, const v1::WatchOption& option,
                   Deadline deadline) {
  if (node != 0) {
    const auto old = std::find_if(waiting_.begin(), waiting_.end(),
                                  [node](const auto& entry) { return entry.second.node == node; });
    if (old != waiting_.end()) {
      Message empty;
      empty.meta.mutable_watch_reply()->set_revision(old->second.revision);
      turn.answer(old->first, std::move(empty));
      waiting_.erase(old);
    }
  }
  if (waiting_.size() >= limits_.watchers_max) {
    return turn.refuse(token, resource_exhausted("Scheduler.Watch: {} calls are waiting, no more "
                                                 "than watchers_max may",
                                                 waiting_.size()));
  }
  Waiting waiting{.revision = option.revision(),
                  .prefixes = {option.key_prefixes().begin(), option.key_prefixes().end()},
                  .until = answer_by(deadline, turn.now()),
                  .node = node};
  if (!try_answer(turn, token, waiting)) waiting_.emplace(token, std::move(waiting));
}

// What a watcher did not ask for moves its revision on, so that it is not looked at again.
bool Watchers::try_answer(Turn& turn, Token token, Waiting& waiting) const {
  Message message;
  v1::WatchReply* reply = message.meta.mutable_watch_reply();
  const uint64_t newest = events_.revision();
  if (waiting.revision == 0 || !events_.reaches(waiting.revision)) {
    reply->set_whole(true);
    whole_(waiting.prefixes, reply);
    for (v1::Event& event : *reply->mutable_events()) event.set_revision(newest);
  } else if (waiting.revision < newest) {
    events_.copy_after(waiting.revision, waiting.prefixes, reply);
    if (reply->events().empty()) {
      waiting.revision = newest;
      return false;
    }
  } else {
    return false;
  }
  reply->set_revision(newest);
  turn.answer(token, std::move(message));
  return true;
}

void Watchers::serve(Turn& turn) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    bool answered = try_answer(turn, it->first, it->second);
    if (!answered && it->second.until <= turn.now()) {
      Message message;
      message.meta.mutable_watch_reply()->set_revision(it->second.revision);
      turn.answer(it->first, std::move(message));
      answered = true;
    }
    it = answered ? waiting_.erase(it) : std::next(it);
  }
}

TimePoint Watchers::next() const {
  TimePoint first = TimePoint::max();
  for (const auto& [token, waiting] : waiting_) first = std::min(first, waiting.until);
  return first;
}

}  // namespace starling
