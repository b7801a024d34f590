#include "table/eviction.h"

#include <algorithm>
#include <functional>

namespace starling {

Status check_eviction(const EvictionOptions& options, const StatisticsOptions& statistics,
                      std::string_view what) {
  if (!(options.decay > 0 && options.decay <= 1)) {
    return invalid_argument("{}.decay is {}, it must lie in (0, 1]", what, options.decay);
  }
  if (!(options.score_min >= 0 && options.score_min <= 1e30)) {
    return invalid_argument("{}.score.threshold is {}, it must lie in [0, 1e30]", what,
                            options.score_min);
  }
  if (!(options.norm_min >= 0 && options.norm_min <= 1e30)) {
    return invalid_argument("{}.norm.threshold is {}, it must lie in [0, 1e30]", what,
                            options.norm_min);
  }
  if (options.capacity != "none" && !options.by_capacity()) {
    return invalid_argument("{}.capacity: no rule is called '{}'; there are none, lru, lfu", what,
                            options.capacity);
  }
  if (options.by_capacity() != (options.rows_max != 0)) {
    return invalid_argument("{}: capacity '{}' and rows {} contradict each other", what,
                            options.capacity, options.rows_max);
  }
  if (options.rows_max > uint64_t{1} << 40) {
    return invalid_argument("{}.{}.rows is {}, it must be <= 2^40", what, options.capacity,
                            options.rows_max);
  }
  const bool needs_click =
      options.decay != 1 || options.score_min != 0 || options.unseen_days_max != 0;
  if (needs_click && !statistics.enabled) {
    return invalid_argument("{}: decay, score_min and unseen_days_max need statistics.enabled",
                            what);
  }
  return {};
}

std::string_view reason_name(EvictionReason reason) {
  constexpr std::array<std::string_view, kEvictionReasons> kNames = {"score", "unseen", "idle",
                                                                     "norm", "capacity"};
  return kNames[static_cast<size_t>(reason)];
}

std::optional<EvictionReason> eviction_of(const EvictionOptions& options,
                                          const StatisticsOptions& scores,
                                          const RowStatistics& statistics, uint64_t step,
                                          double norm) {
  if (options.score_min != 0 &&
      score_of(scores, statistics.show, statistics.click) < options.score_min) {
    return EvictionReason::kScore;
  }
  if (options.unseen_days_max != 0 && statistics.unseen_days > options.unseen_days_max) {
    return EvictionReason::kUnseen;
  }
  if (options.idle_steps_max != 0 && step > statistics.last_step &&
      step - statistics.last_step > options.idle_steps_max) {
    return EvictionReason::kIdle;
  }
  if (options.norm_min != 0 && norm < options.norm_min) return EvictionReason::kNorm;
  return std::nullopt;
}

void EvictedList::evicted(const EvictedRow& row) {
  if (entries_max_ == 0) return;
  if (entries_.size() == entries_max_) entries_.pop_front();
  entries_.push_back({row.key, row.reason});
}

void VictimQueue::fill(std::vector<Entry> rows) {
  constexpr size_t kHeapMin = 16;
  const size_t kept = std::max(kHeapMin, rows.size() / 8);
  bound_ = Entry{UINT64_MAX, Key{UINT64_MAX}};
  if (kept < rows.size()) {
    const auto cut = rows.begin() + static_cast<ptrdiff_t>(kept);
    std::nth_element(rows.begin(), cut, rows.end());
    bound_ = *cut;
    rows.resize(kept);
  }
  heap_.assign(rows.begin(), rows.end());
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void VictimQueue::offer(const Entry& entry) {
  if (!bound_.has_value() || !(entry < *bound_)) return;
  heap_.push_back(entry);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

std::optional<VictimQueue::Entry> VictimQueue::pop() {
  if (heap_.empty()) {
    clear();
    return std::nullopt;
  }
  std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
  const Entry entry = heap_.back();
  heap_.pop_back();
  return entry;
}

void VictimQueue::clear() {
  std::vector<Entry>().swap(heap_);
  bound_.reset();
}

}  // namespace starling
