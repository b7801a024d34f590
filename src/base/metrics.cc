#include "base/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace starling {

Histogram::Summary Histogram::summary() const {
  std::array<uint64_t, kBucketCount> counts;
  Summary out;
  for (size_t i = 0; i < kBucketCount; ++i) {
    counts[i] = counts_[i].load(std::memory_order_relaxed);
    out.count += counts[i];
  }
  out.sum = sum_.load(std::memory_order_relaxed);
  out.max = max_.load(std::memory_order_relaxed);
  auto quantile = [&](uint64_t percent) {
    const uint64_t wanted = (out.count * percent + 99) / 100;
    uint64_t seen = 0;
    for (size_t i = 0; i < kBucketCount; ++i) {
      seen += counts[i];
      if (seen >= wanted && seen > 0) return std::min(upper_of(i), out.max);
    }
    return out.max;
  };
  out.p50 = quantile(50);
  out.p95 = quantile(95);
  out.p99 = quantile(99);
  return out;
}

Counter& Metrics::counter(std::string_view name) {
  MutexLock lock(mutex_);
  auto it = counters_.find(name);
  if (it == counters_.end()) it = counters_.emplace(name, std::make_unique<Counter>()).first;
  return *it->second;
}

Histogram& Metrics::histogram(std::string_view name, std::string_view unit) {
  MutexLock lock(mutex_);
  auto it = histograms_.find(name);
  if (it == histograms_.end()) {
    it = histograms_.emplace(name, std::make_unique<Measured>()).first;
    it->second->unit = unit;
  }
  return it->second->histogram;
}

Metrics::Snapshot Metrics::snapshot() const {
  MutexLock lock(mutex_);
  Snapshot out;
  for (const auto& [name, counter] : counters_) out.counters.push_back({name, counter->value()});
  for (const auto& [name, measured] : histograms_) {
    out.histograms.push_back({name, measured->unit, measured->histogram.summary()});
  }
  return out;
}

std::string Metrics::print() const {
  const Snapshot now = snapshot();
  std::string text;
  for (const auto& [name, value] : now.counters) text += fmt::format("{} {}\n", name, value);
  for (const auto& [name, unit, s] : now.histograms) {
    text += fmt::format("{} count={} p50={}{} p95={}{} p99={}{} max={}{}\n", name, s.count, s.p50,
                        unit, s.p95, unit, s.p99, unit, s.max, unit);
  }
  return text;
}

}  // namespace starling
