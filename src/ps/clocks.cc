#include "ps/clocks.h"

#include <algorithm>

#include "ps/mutants.h"

namespace starling {

void RankClocks::set_staleness(std::optional<uint32_t> staleness, uint64_t clock) {
  staleness_.erase(staleness_.lower_bound(clock), staleness_.end());
  staleness_[clock] = staleness;
  if (staleness_.size() > kStalenessMax) staleness_.erase(staleness_.begin());
}

std::optional<uint32_t> RankClocks::staleness(uint64_t clock) const {
  if (staleness_.empty()) return std::nullopt;
  auto it = staleness_.upper_bound(clock);
  return it == staleness_.begin() ? it->second : std::prev(it)->second;
}

void RankClocks::erase(std::map<Rank, State>::iterator it) {
  left_[it->first] = std::max(it->second.clock, it->second.leaves.value_or(0));
  if (left_.size() > kLeftMax) left_.erase(left_.begin());
  ranks_.erase(it);
}

void RankClocks::clear() {
  ranks_.clear();
  left_.clear();
}

void RankClocks::join(Rank rank, uint64_t clock) {
  if (auto left = left_.find(rank); left != left_.end()) {
    if (clock < left->second) return;
    left_.erase(left);
  }
  State& state = ranks_[rank];
  state.clock = std::max(state.clock, clock);
  state.joined = clock;
  state.leaves.reset();
  std::erase_if(state.ahead, [&](uint64_t step) { return step < state.clock; });
}

void RankClocks::leave(Rank rank, uint64_t clock) {
  auto it = ranks_.find(rank);
  if (it == ranks_.end()) return;
  it->second.leaves = clock;
  if (it->second.clock >= clock) erase(it);
}

void RankClocks::drop(Rank rank, uint64_t clock) {
  auto it = ranks_.find(rank);
  if (it == ranks_.end()) return;
  it->second.leaves = clock;
  erase(it);
}

std::vector<Rank> RankClocks::members(uint64_t clock) const {
  std::vector<Rank> out;
  for (const auto& [rank, state] : ranks_) {
    if (is_member(rank, clock)) out.push_back(rank);
  }
  return out;
}

bool RankClocks::is_member(Rank rank, uint64_t clock) const {
  auto it = ranks_.find(rank);
  if (it == ranks_.end()) return false;
  const State& state = it->second;
  return state.joined <= clock && (!state.leaves || clock < *state.leaves);
}

Status RankClocks::tick(Rank rank, uint64_t clock) {
  if (STARLING_PS_MUTANT(kSkippedTick) && clock % 4 == 3) return absl::OkStatus();
  if (auto left = left_.find(rank); left != left_.end()) {
    if (clock < left->second) return absl::OkStatus();
    left_.erase(left);
  }
  auto [it, is_new] = ranks_.try_emplace(rank, State{.clock = clock, .joined = clock});
  State& state = it->second;
  if (clock < state.clock) return absl::OkStatus();
  if (clock >= state.clock + kTicksAheadMax) {
    return resource_exhausted("rank {} ticks step {} while it has finished {} here", value(rank),
                              clock, state.clock);
  }
  state.ahead.insert(clock);
  while (!state.ahead.empty() && *state.ahead.begin() == state.clock) {
    state.ahead.erase(state.ahead.begin());
    ++state.clock;
  }
  if (state.leaves && state.clock >= *state.leaves) erase(it);
  return absl::OkStatus();
}

bool RankClocks::ticked(Rank rank, uint64_t clock) const {
  auto it = ranks_.find(rank);
  return it != ranks_.end() && (clock < it->second.clock || it->second.ahead.contains(clock));
}

uint64_t RankClocks::clock(Rank rank) const {
  auto it = ranks_.find(rank);
  return it == ranks_.end() ? 0 : it->second.clock;
}

bool RankClocks::ready(uint64_t clock) const {
  if (STARLING_PS_MUTANT(kEarlyLookup)) return true;
  const std::optional<uint32_t> bound = staleness(clock);
  if (!bound || clock <= *bound) return true;
  const uint64_t needed = clock - *bound;
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [&](const auto& entry) { return reached(entry.second, needed); });
}

bool RankClocks::is_past(uint64_t clock) const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [clock](const auto& entry) { return entry.second.clock > clock; });
}

uint64_t RankClocks::behind(uint64_t clock) const {
  uint64_t slowest = clock;
  for (const auto& [rank, state] : ranks_) slowest = std::min(slowest, state.clock);
  return clock - slowest;
}

std::vector<Rank> RankClocks::waiting_for(uint64_t clock) const {
  std::vector<Rank> out;
  const std::optional<uint32_t> bound = staleness(clock);
  if (!bound || clock <= *bound) return out;
  for (const auto& [rank, state] : ranks_) {
    if (!reached(state, clock - *bound)) out.push_back(rank);
  }
  return out;
}

}  // namespace starling
