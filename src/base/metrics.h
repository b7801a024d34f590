// Metrics are counters and latency histograms that any room can register and one call prints.
//
// Uses: mutex.h. Threads: any; adding to a counter or histogram takes no lock.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace starling {

class Counter {
 public:
  void add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Buckets of one sixteenth of a power of two: a quantile is at most 1/16 above the true value, and
// the maximum is exact.
class Histogram {
 public:
  void record(uint64_t value) {
    counts_[bucket_of(value)].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
    uint64_t max = max_.load(std::memory_order_relaxed);
    while (value > max && !max_.compare_exchange_weak(max, value, std::memory_order_relaxed)) {
    }
  }
  void record(Duration duration) {
    record(static_cast<uint64_t>(duration.count() < 0 ? 0 : duration.count()));
  }

  struct Summary {
    uint64_t count = 0;
    uint64_t sum = 0;
    uint64_t p50 = 0, p95 = 0, p99 = 0, max = 0;
  };
  // Numbers recorded meanwhile may be in or out.
  Summary summary() const;

  static constexpr uint64_t kSub = 16;
  static constexpr size_t kBucketCount = kSub + (64 - 4) * kSub;
  static constexpr size_t bucket_of(uint64_t value) {
    if (value < kSub) return static_cast<size_t>(value);
    const int shift = static_cast<int>(std::bit_width(value)) - 5;  // leaves 5 bits: 16 .. 31
    return static_cast<size_t>(shift) * kSub + static_cast<size_t>(value >> shift);
  }
  // The largest value of a bucket.
  static constexpr uint64_t upper_of(size_t bucket) {
    if (bucket < kSub) return bucket;
    const uint64_t shift = bucket / kSub - 1;
    return ((bucket % kSub + kSub + 1) << shift) - 1;
  }

 private:
  std::array<std::atomic<uint64_t>, kBucketCount> counts_{};
  std::atomic<uint64_t> sum_{0};
  std::atomic<uint64_t> max_{0};
};

class Metrics {
 public:
  // The one of that name, made when it is new. References stay valid as long as the Metrics.
  Counter& counter(std::string_view name);
  // `unit` is printed behind the numbers, such as "ns" or "B".
  Histogram& histogram(std::string_view name, std::string_view unit);

  struct NamedCounter {
    std::string name;
    uint64_t value;
  };
  struct NamedHistogram {
    std::string name;
    std::string unit;
    Histogram::Summary summary;
  };
  struct Snapshot {
    std::vector<NamedCounter> counters;      // by name
    std::vector<NamedHistogram> histograms;  // by name
  };
  Snapshot snapshot() const;
  // One line each, sorted by name.
  std::string print() const;

 private:
  struct Measured {
    std::string unit;
    Histogram histogram;
  };
  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<Counter>, std::less<>> counters_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::unique_ptr<Measured>, std::less<>> histograms_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling
