// Eviction decides which rows go, says why, and hands them to a sink.
//
// Uses: base. Threads: shard-local, as the table that owns it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "table/statistics.h"

namespace starling {

// 0 means "not by this rule", unless said otherwise.
struct EvictionOptions {
  // At shrink, after show and click were multiplied with `decay`.
  double decay = 1;
  double score_min = 0;          // rows below it go
  uint32_t unseen_days_max = 0;  // rows above it go
  uint64_t idle_steps_max = 0;   // rows whose last touch is more steps ago go
  double norm_min = 0;           // rows whose weights' L2 norm is below it go
  // While running: none, lru (smallest last step goes first) or lfu (fewest touches). `rows_max` is
  // of the whole table; each bucket holds its 4096th part, rounded up.
  std::string capacity = "none";
  uint64_t rows_max = 0;
  size_t listed_max = 65536;  // evicted keys that the table remembers when it is given no sink

  bool by_lru() const { return capacity == "lru"; }
  bool by_lfu() const { return capacity == "lfu"; }
  bool by_capacity() const { return by_lru() || by_lfu(); }
  uint32_t bucket_rows_max() const {
    return static_cast<uint32_t>((rows_max + kBuckets - 1) / kBuckets);
  }
};

// InvalidArgument names `what`, the option and its range, or the statistics that a rule needs.
Status check_eviction(const EvictionOptions& options, const StatisticsOptions& statistics,
                      std::string_view what);

enum class EvictionReason { kScore, kUnseen, kIdle, kNorm, kCapacity };
inline constexpr size_t kEvictionReasons = 5;
std::string_view reason_name(EvictionReason reason);

// Which rule of a shrink at `step` takes the row, if any. `statistics` are after the decay.
std::optional<EvictionReason> eviction_of(const EvictionOptions& options,
                                          const StatisticsOptions& scores,
                                          const RowStatistics& statistics, uint64_t step,
                                          double norm);

// A row on its way out; the spans are a loan for the call.
struct EvictedRow {
  Key key;
  EvictionReason reason;
  std::span<const float> weights;
  std::span<const float> state;
  RowStatistics statistics;
};

class EvictionSink {
 public:
  virtual ~EvictionSink() = default;
  virtual void evicted(const EvictedRow& row) = 0;
};

// The newest keys that were evicted; the oldest goes when it is full.
class EvictedList final : public EvictionSink {
 public:
  struct Entry {
    Key key;
    EvictionReason reason;
  };
  explicit EvictedList(size_t entries_max) : entries_max_(entries_max) {}

  void evicted(const EvictedRow& row) override;
  const std::deque<Entry>& entries() const { return entries_; }
  size_t bytes() const { return entries_.size() * sizeof(Entry); }

 private:
  const size_t entries_max_;
  std::deque<Entry> entries_;
};

// Finds the row of one bucket with the smallest (rank, key), where ranks only grow: a heap of the
// smallest eighth, brought up to date when an entry reaches its top.
class VictimQueue {
 public:
  struct Entry {
    uint64_t rank;
    Key key;
    auto operator<=>(const Entry&) const = default;
  };

  // Takes all rows of the bucket when the queue has run out.
  void fill(std::vector<Entry> rows);
  // A row that is new or whose rank may have become smaller.
  void offer(const Entry& entry);
  // The smallest entry, perhaps out of date: compare with the row, and offer() it again with its
  // rank of today.
  std::optional<Entry> pop();
  void clear();
  size_t size() const { return heap_.size(); }
  size_t bytes() const { return heap_.capacity() * sizeof(Entry); }

 private:
  std::vector<Entry> heap_;
  std::optional<Entry> bound_;  // every row below it is in the heap; none: the queue is not filled
};

}  // namespace starling
