#include "scheduler/changes.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace starling {
namespace {

constexpr uint32_t kDoublingsMax = 20;

std::string key_of(uint64_t id) { return fmt::format("change/{:020}", id); }

bool has_clock(ledger::ChangeKind kind) {
  return kind == ledger::CHANGE_JOIN || kind == ledger::CHANGE_LEAVE ||
         kind == ledger::CHANGE_STALENESS;
}

}  // namespace

Status Changes::load(const LedgerEntry& entry) {
  Open open;
  if (!open.record.ParseFromString(entry.value)) {
    return data_loss("ledger: key '{}' is not a change", entry.key);
  }
  const uint64_t id = open.record.id();
  open_[id] = std::move(open);
  return absl::OkStatus();
}

void Changes::begin(Turn& turn, ledger::ChangeRecord change) {
  const uint64_t id = change.id();
  Open& open = open_[id];
  open.record = std::move(change);
  announce(turn, open);
}

void Changes::announce(Turn& turn, Open& open) {
  ledger::ChangeRecord& record = open.record;
  open.confirmed.clear();
  std::optional<uint64_t> withdrawn;
  if (record.attempts() > 0) withdrawn = record.clock();
  record.set_revision(turn.revision());
  if (has_clock(record.kind())) {
    const uint64_t lead = options_.lead_clocks << std::min(record.attempts(), kDoublingsMax);
    record.set_clock(ranks_.highest() + lead);
    record.set_attempts(record.attempts() + 1);
  }
  for (const uint32_t rank : record.ranks()) {
    if (record.kind() == ledger::CHANGE_JOIN) {
      ranks_.set_start(turn, rank, record.clock());
      if (const auto it = ranks_.all().find(rank); it != ranks_.all().end()) {
        record.set_revision(Ranks::tell_join(turn, it->second));
      }
    } else if (record.kind() == ledger::CHANGE_LEAVE) {
      ranks_.set_leave(turn, rank, record.clock());
      v1::RankEvent leave;
      leave.set_rank(rank);
      leave.set_node(record.node());
      leave.set_clock(record.clock());
      record.set_revision(Ranks::tell_leave(turn, leave));
    }
  }
  if (record.kind() == ledger::CHANGE_STALENESS) {
    v1::Event event;
    event.mutable_staleness()->set_clock(record.clock());
    if (record.has_staleness()) event.mutable_staleness()->set_staleness(record.staleness());
    if (withdrawn) event.mutable_staleness()->set_withdrawn_clock(*withdrawn);
    announced_(event.staleness());
    record.set_revision(turn.tell(std::move(event)));
  }
  turn.put(key_of(record.id()), record);
}

uint64_t Changes::find(ledger::ChangeKind kind, uint32_t node) const {
  for (const auto& [id, open] : open_) {
    if (open.record.kind() == kind && open.record.node() == node) return id;
  }
  return 0;
}

bool Changes::is_announcing(uint64_t clock) const {
  return std::any_of(open_.begin(), open_.end(), [clock](const auto& entry) {
    const ledger::ChangeRecord& record = entry.second.record;
    return record.kind() == ledger::CHANGE_STALENESS && record.clock() == clock;
  });
}

void Changes::wait(uint64_t id, Token token, TimePoint until) {
  open_.at(id).waiting.push_back({token, until});
}

bool Changes::has_waiters(uint32_t node) const {
  return std::any_of(open_.begin(), open_.end(), [node](const auto& entry) {
    return entry.second.record.node() == node && !entry.second.waiting.empty();
  });
}

void Changes::heard(Turn& turn, const NodeEntry& ps) {
  for (auto& [id, open] : open_) confirm(turn, open, ps);
}

// A rank that has made no step yet is as far as its start, which is announced itself: two joiners
// would put each other further on for ever.
uint64_t Changes::highest_of(const NodeEntry& ps) const {
  uint64_t clock = 0;
  for (const auto& [rank, span] : ps.pulse.clocks) {
    const auto known = ranks_.all().find(rank);
    const bool has_begun =
        known == ranks_.all().end() || span.highest > known->second.start_clock();
    if (has_begun) clock = std::max(clock, span.highest);
  }
  return clock;
}

void Changes::confirm(Turn& turn, Open& open, const NodeEntry& ps) {
  if (open.confirmed.contains(ps.id()) || ps.pulse.seen_revision < open.record.revision()) return;
  if (has_clock(open.record.kind()) && highest_of(ps) > open.record.clock()) {
    return announce(turn, open);
  }
  open.confirmed.insert(ps.id());
}

std::vector<std::string> Changes::behind(const Open& open) const {
  std::vector<std::string> names;
  for (const NodeEntry* ps : nodes_.alive(v1::ROLE_PS)) {
    if (!open.confirmed.contains(ps->id())) names.push_back(ps->node().name());
  }
  return names;
}

std::vector<Changes::Settled> Changes::settle(Turn& turn) {
  std::vector<Settled> settled;
  for (auto it = open_.begin(); it != open_.end();) {
    Open& open = it->second;
    if (!behind(open).empty()) {
      ++it;
      continue;
    }
    Settled done{.change = std::move(open.record)};
    for (const Waiting& waiting : open.waiting) done.tokens.push_back(waiting.token);
    settled.push_back(std::move(done));
    turn.erase(key_of(it->first));
    it = open_.erase(it);
  }
  return settled;
}

void Changes::cancel(Turn& turn, uint64_t id, const Status& why) {
  const auto it = open_.find(id);
  if (it == open_.end()) return;
  for (const Waiting& waiting : it->second.waiting) turn.refuse(waiting.token, why);
  turn.erase(key_of(id));
  open_.erase(it);
}

void Changes::clear(Turn& turn, const Status& why) {
  while (!open_.empty()) cancel(turn, open_.begin()->first, why);
}

void Changes::expire(Turn& turn) {
  for (auto& [id, open] : open_) {
    std::vector<Waiting> kept;
    for (const Waiting& waiting : open.waiting) {
      if (waiting.until > turn.now()) {
        kept.push_back(waiting);
        continue;
      }
      turn.refuse(waiting.token,
                  unavailable("the scheduler waits for {} to take in a change of ranks; the call "
                              "may be repeated",
                              fmt::join(behind(open), ", ")));
    }
    open.waiting = std::move(kept);
  }
}

void Changes::drop(Token token) {
  for (auto& [id, open] : open_) {
    std::erase_if(open.waiting, [token](const Waiting& w) { return w.token == token; });
  }
}

TimePoint Changes::next() const {
  TimePoint first = TimePoint::max();
  for (const auto& [id, open] : open_) {
    for (const Waiting& waiting : open.waiting) first = std::min(first, waiting.until);
  }
  return first;
}

}  // namespace starling
