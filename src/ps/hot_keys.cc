#include "ps/hot_keys.h"

#include <algorithm>

namespace starling {

void HotKeys::count(std::span<const Key> keys) {
  const size_t exact = seen_ < kExact ? std::min<size_t>(keys.size(), kExact - seen_) : 0;
  for (const Key key : keys.first(exact)) count_one(value(key), 1);
  seen_ += exact;
  const std::span<const Key> rest = keys.subspan(exact);
  // The first use of the next sampled position; positions go through all batches.
  for (uint64_t at = (kSample - seen_ % kSample) % kSample; at < rest.size(); at += kSample) {
    count_one(value(rest[at]), kSample);
  }
  seen_ += rest.size();
}

void HotKeys::count_one(uint64_t key, uint64_t uses) {
  if (auto it = numbers_.find(key); it != numbers_.end()) {
    counters_[it->second].uses += uses;
    return;
  }
  if (counters_.size() < kCounters) {
    numbers_.emplace(key, static_cast<uint32_t>(counters_.size()));
    counters_.push_back({key, uses});
    return;
  }
  const uint32_t number = least_used();
  Counter& counter = counters_[number];
  numbers_.erase(counter.key);
  numbers_.emplace(key, number);
  counter = {key, counter.uses + uses};
}

uint32_t HotKeys::least_used() {
  for (size_t passed = 0; counters_[next_].uses > floor_; next_ = (next_ + 1) % kCounters) {
    if (++passed < kCounters) continue;
    floor_ = std::min_element(counters_.begin(), counters_.end(),
                              [](const Counter& a, const Counter& b) { return a.uses < b.uses; })
                 ->uses;
    passed = 0;
  }
  return next_;
}

std::vector<HotKeys::Entry> HotKeys::top(size_t entries_max) const {
  std::vector<Entry> out;
  for (const Counter& counter : counters_) {
    out.push_back({static_cast<Key>(counter.key), counter.uses});
  }
  std::sort(out.begin(), out.end(), [](const Entry& a, const Entry& b) {
    return a.uses != b.uses ? a.uses > b.uses : value(a.key) < value(b.key);
  });
  if (out.size() > entries_max) out.resize(entries_max);
  return out;
}

}  // namespace starling
