#include "ps/hot_keys.h"

#include <algorithm>

namespace starling {

void HotKeys::count(std::span<const Key> keys) {
  // The first use of the next sampled position; positions go through all batches.
  for (uint64_t at = (kSample - seen_ % kSample) % kSample; at < keys.size(); at += kSample) {
    const uint64_t key = value(keys[at]);
    if (auto it = counters_.find(key); it != counters_.end()) {
      ++it->second;
    } else if (counters_.size() < kCounters) {
      counters_.emplace(key, 1);
    } else {
      const auto least =
          std::min_element(counters_.begin(), counters_.end(), [](const auto& a, const auto& b) {
            return a.second != b.second ? a.second < b.second : a.first < b.first;
          });
      const uint64_t uses = least->second + 1;
      counters_.erase(least);
      counters_.emplace(key, uses);
    }
  }
  seen_ += keys.size();
}

std::vector<HotKeys::Entry> HotKeys::top(size_t entries_max) const {
  std::vector<Entry> out;
  for (const auto& [key, uses] : counters_) out.push_back({static_cast<Key>(key), uses * kSample});
  std::sort(out.begin(), out.end(), [](const Entry& a, const Entry& b) {
    return a.uses != b.uses ? a.uses > b.uses : value(a.key) < value(b.key);
  });
  if (out.size() > entries_max) out.resize(entries_max);
  return out;
}

}  // namespace starling
