#include "scheduler/events.h"

#include <algorithm>

namespace starling {

bool is_wanted(const v1::Event& event, const std::vector<std::string>& prefixes) {
  if (!event.has_key()) return true;
  return std::any_of(prefixes.begin(), prefixes.end(), [&event](const std::string& prefix) {
    return event.key().key().starts_with(prefix);
  });
}

uint64_t EventLog::add(v1::Event event) {
  event.set_revision(++revision_);
  bytes_ += event.ByteSizeLong();
  events_.push_back(std::move(event));
  while (events_.size() > limits_.events_max ||
         (bytes_ > limits_.events_bytes_max && events_.size() > 1)) {
    bytes_ -= events_.front().ByteSizeLong();
    events_.pop_front();
  }
  return revision_;
}

void EventLog::copy_after(uint64_t revision, const std::vector<std::string>& prefixes,
                          v1::WatchReply* out) const {
  const size_t count =
      std::min<uint64_t>(events_.size(), revision_ - std::min(revision, revision_));
  for (auto it = events_.end() - static_cast<std::ptrdiff_t>(count); it != events_.end(); ++it) {
    if (is_wanted(*it, prefixes)) *out->add_events() = *it;
  }
}

}  // namespace starling
