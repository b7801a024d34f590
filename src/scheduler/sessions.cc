#include "scheduler/sessions.h"

#include <algorithm>

#include "base/rng.h"

namespace starling {
namespace {

std::string key_of(uint64_t session, uint64_t number) {
  return fmt::format("session/{:016x}/{:020}", session, number);
}

// What was asked, header left out: that changes with each attempt.
uint64_t content_of(Method method, const Message& request) {
  v1::TensorMessage asked = request.meta;
  asked.clear_header();
  uint64_t hash = mix64(static_cast<uint64_t>(method));
  for (const char byte : asked.SerializeAsString()) {
    hash = mix64(hash ^ static_cast<unsigned char>(byte));
  }
  return hash;
}

}  // namespace

Status Sessions::load(const LedgerEntry& entry) {
  ledger::SessionRecord record;
  if (!record.ParseFromString(entry.value)) {
    return data_loss("ledger: key '{}' is not an answer of a session", entry.key);
  }
  Session& session = sessions_[record.session()];
  session.acked_below = std::max(session.acked_below, record.acked_below());
  session.node = record.node();
  session.used = ++uses_;
  session.answers[record.number()] = std::move(record);
  return absl::OkStatus();
}

void Sessions::forget(Turn& turn, uint64_t id, Session& session, uint64_t below) {
  // The newest answer stays: its record carries acked_below over a restart.
  while (session.answers.size() > 1 && session.answers.begin()->first < below) {
    turn.erase(key_of(id, session.answers.begin()->first));
    session.answers.erase(session.answers.begin());
  }
}

void Sessions::make_room(Turn& turn) {
  if (sessions_.size() < limits_.sessions_max) return;
  const auto oldest =
      std::min_element(sessions_.begin(), sessions_.end(),
                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
  for (const auto& [number, record] : oldest->second.answers) {
    turn.erase(key_of(oldest->first, number));
  }
  sessions_.erase(oldest);
}

StatusOr<Sessions::Verdict> Sessions::look(Turn& turn, Method method, const Message& request) {
  const v1::Header& header = request.meta.header();
  const std::string_view name = info_of(method).name;
  if (header.session() == 0 || header.number() == 0) {
    return invalid_argument(
        "{}: header.session and header.number are needed for what changes "
        "state",
        name);
  }
  Verdict verdict;
  const auto it = sessions_.find(header.session());
  if (it == sessions_.end()) {
    verdict.is_fresh = true;
    return verdict;
  }
  Session& session = it->second;
  session.used = ++uses_;
  session.acked_below = std::max(session.acked_below, header.acked_below());
  forget(turn, it->first, session, session.acked_below);
  const auto known = session.answers.find(header.number());
  if (known != session.answers.end()) {
    if (known->second.content() != content_of(method, request)) {
      return invalid_argument("{}: number {} of session {:x} came before with other content", name,
                              header.number(), header.session());
    }
    verdict.change = known->second.change();
    verdict.reply = Message{.meta = known->second.reply()};
  } else if (header.number() < session.acked_below) {
    verdict.reply = Message{};
  } else if (session.answers.size() >= limits_.window_max) {
    return resource_exhausted("{}: session {:x} has {} open numbers, window_max", name,
                              header.session(), session.answers.size());
  } else {
    verdict.is_fresh = true;
  }
  return verdict;
}

bool Sessions::knows(const v1::Header& header) const {
  const auto it = sessions_.find(header.session());
  return it != sessions_.end() && it->second.answers.contains(header.number());
}

void Sessions::remember(Turn& turn, Method method, const Message& request, const Message& reply,
                        uint64_t change) {
  const v1::Header& header = request.meta.header();
  if (!sessions_.contains(header.session())) make_room(turn);
  Session& session = sessions_[header.session()];
  session.node = header.role_id();
  session.used = ++uses_;
  session.acked_below = std::max(session.acked_below, header.acked_below());
  ledger::SessionRecord record;
  record.set_session(header.session());
  record.set_number(header.number());
  record.set_content(content_of(method, request));
  *record.mutable_reply() = reply.meta;
  record.set_change(change);
  record.set_node(session.node);
  record.set_acked_below(session.acked_below);
  turn.put(key_of(header.session(), header.number()), record);
  session.answers[header.number()] = std::move(record);
  forget(turn, header.session(), session, session.acked_below);
}

void Sessions::finish(Turn& turn, uint64_t change, const Message& reply) {
  for (auto& [id, session] : sessions_) {
    for (auto& [number, record] : session.answers) {
      if (record.change() != change) continue;
      record.set_change(0);
      *record.mutable_reply() = reply.meta;
      turn.put(key_of(id, number), record);
    }
  }
}

void Sessions::drop_node(Turn& turn, uint32_t node) {
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    if (it->second.node != node) {
      ++it;
      continue;
    }
    for (const auto& [number, record] : it->second.answers) turn.erase(key_of(it->first, number));
    it = sessions_.erase(it);
  }
}

}  // namespace starling
