#include "scheduler/ranks.h"

#include <algorithm>

namespace starling {
namespace {

std::string key_of(uint32_t rank) { return fmt::format("rank/{:010}", rank); }

v1::Event join_event(const ledger::RankRecord& rank) {
  v1::Event event;
  event.mutable_rank()->set_rank(rank.rank());
  event.mutable_rank()->set_node(rank.node());
  event.mutable_rank()->set_clock(rank.start_clock());
  return event;
}

}  // namespace

Status Ranks::load(const LedgerEntry& entry) {
  ledger::RankRecord record;
  if (!record.ParseFromString(entry.value)) {
    return data_loss("ledger: key '{}' is not a rank", entry.key);
  }
  ranks_[record.rank()] = std::move(record);
  return absl::OkStatus();
}

StatusOr<std::vector<uint32_t>> Ranks::assign(Turn& turn, uint32_t node, uint32_t count,
                                              uint64_t clock) {
  if (ranks_.size() + count > limits_.ranks_max) {
    return resource_exhausted(
        "Scheduler.Register: {} ranks are given, {} more would be over "
        "ranks_max ({})",
        ranks_.size(), count, limits_.ranks_max);
  }
  std::vector<uint32_t> given;
  for (uint32_t rank = 0; given.size() < count; ++rank) {
    if (ranks_.contains(rank)) continue;
    ledger::RankRecord& record = ranks_[rank];
    record.set_rank(rank);
    record.set_node(node);
    record.set_start_clock(clock);
    turn.put(key_of(rank), record);
    given.push_back(rank);
  }
  return given;
}

void Ranks::set_start(Turn& turn, uint32_t rank, uint64_t clock) {
  const auto it = ranks_.find(rank);
  if (it == ranks_.end()) return;
  it->second.set_start_clock(clock);
  turn.put(key_of(rank), it->second);
}

void Ranks::set_leave(Turn& turn, uint32_t rank, uint64_t clock) {
  const auto it = ranks_.find(rank);
  if (it == ranks_.end()) return;
  it->second.set_leave_clock(clock);
  turn.put(key_of(rank), it->second);
}

void Ranks::set_half_left(Turn& turn, const v1::RankEvent& leave) {
  const auto it = ranks_.find(leave.rank());
  if (it == ranks_.end()) return;
  it->second.set_leave_clock(leave.clock());
  if (leave.has_half_pushed()) *it->second.mutable_half_pushed() = leave.half_pushed();
  turn.put(key_of(leave.rank()), it->second);
}

void Ranks::erase(Turn& turn, uint32_t rank) {
  if (ranks_.erase(rank) > 0) turn.erase(key_of(rank));
}

void Ranks::clear(Turn& turn) {
  for (const auto& [rank, record] : ranks_) turn.erase(key_of(rank));
  ranks_.clear();
}

std::vector<uint32_t> Ranks::of_node(uint32_t node) const {
  std::vector<uint32_t> found;
  for (const auto& [rank, record] : ranks_) {
    if (record.node() == node) found.push_back(rank);
  }
  return found;
}

std::vector<uint32_t> Ranks::staying(uint32_t node) const {
  std::vector<uint32_t> found = of_node(node);
  std::erase_if(found, [this](uint32_t rank) { return ranks_.at(rank).has_leave_clock(); });
  return found;
}

Pulse::Span Ranks::clocks(uint32_t rank) const {
  const auto record = ranks_.find(rank);
  const uint64_t start = record == ranks_.end() ? 0 : record->second.start_clock();
  Pulse::Span span{.lowest = start, .highest = start};
  bool is_first = true;
  for (const NodeEntry* ps : nodes_.alive(v1::ROLE_PS)) {
    const auto it = ps->pulse.clocks.find(rank);
    if (it == ps->pulse.clocks.end()) continue;
    span.lowest = is_first ? it->second.lowest : std::min(span.lowest, it->second.lowest);
    span.highest = std::max(span.highest, it->second.highest);
    is_first = false;
  }
  return span;
}

bool Ranks::have_all(uint32_t rank, uint64_t clock) const {
  const std::vector<const NodeEntry*> ps = nodes_.alive(v1::ROLE_PS);
  return std::all_of(ps.begin(), ps.end(), [&](const NodeEntry* one) {
    const auto it = one->pulse.clocks.find(rank);
    return it != one->pulse.clocks.end() && it->second.lowest >= clock;
  });
}

uint64_t Ranks::highest() const {
  uint64_t clock = 0;
  for (const NodeEntry* entry : nodes_.alive(v1::ROLE_UNKNOWN)) {
    clock = std::max(clock, entry->pulse.clock);
    for (const auto& [rank, span] : entry->pulse.clocks) clock = std::max(clock, span.highest);
  }
  for (const auto& [rank, record] : ranks_) clock = std::max(clock, record.start_clock());
  return clock;
}

uint64_t Ranks::lowest() const {
  uint64_t clock = UINT64_MAX;
  for (const auto& [rank, record] : ranks_) {
    uint64_t of_rank = clocks(rank).lowest;
    // Without ps the trainers' own word is all there is.
    const NodeEntry* node = nodes_.find(record.node());
    if (nodes_.alive(v1::ROLE_PS).empty() && node != nullptr) {
      of_rank = std::max(of_rank, node->pulse.clock);
    }
    clock = std::min(clock, of_rank);
  }
  return clock == UINT64_MAX ? 0 : clock;
}

uint64_t Ranks::tell_join(Turn& turn, const ledger::RankRecord& rank) {
  return turn.tell(join_event(rank));
}

uint64_t Ranks::tell_leave(Turn& turn, const v1::RankEvent& leave) {
  v1::Event event;
  *event.mutable_rank() = leave;
  event.mutable_rank()->set_leaves(true);
  return turn.tell(std::move(event));
}

void Ranks::tell_all(v1::WatchReply* out) const {
  for (const auto& [rank, record] : ranks_) {
    *out->add_events() = join_event(record);
    if (!record.has_leave_clock()) continue;
    v1::Event leave = join_event(record);
    leave.mutable_rank()->set_leaves(true);
    leave.mutable_rank()->set_clock(record.leave_clock());
    if (record.has_half_pushed())
      *leave.mutable_rank()->mutable_half_pushed() = record.half_pushed();
    *out->add_events() = std::move(leave);
  }
}

}  // namespace starling
