// Plan is what a seed decides before a run: the size of the cluster, its work, its weather and who
// dies when. Batches and gradients are functions of the plan alone.
//
// Uses: base, wire. Threads: a value.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "tests/sim/network.h"

namespace starling::sim {

inline constexpr const char* kRowsTable = "rows";  // trained by batch
inline constexpr const char* kClientTable = "kv";  // pushed to by key
inline constexpr const char* kVariable = "dense";  // trained by batch, split over the shards
inline constexpr uint32_t kVariableElements = 6;
inline constexpr uint32_t kVariableSplit = 2;  // elements per part

// The epoch that a tick without a batch names.
inline constexpr uint32_t kNoBatch = UINT32_MAX;
// A hub that is broken on purpose adds multiples of this to a batch's number.
inline constexpr uint64_t kInvented = 1 << 20;
inline BatchId real_id(BatchId id) {
  id.number %= kInvented;
  return id;
}

// What the driver asks of all shards while a cut holds everybody.
enum class Upkeep { kNone, kShrink, kClear };
// Rows of the clients below it go with a shrink.
inline constexpr double kShrinkBelow = 4.5;

enum class Victim { kTrainer, kScheduler, kHub, kClient, kPs };
struct Crash {
  Victim victim{};
  uint32_t which = 0;
  Duration at{};
  Duration down{};  // until it comes back
};

// A change of the staleness while the job runs.
struct NewStaleness {
  std::optional<uint32_t> staleness;
  Duration at{};
};

struct Plan {
  static Plan of(uint64_t seed);
  // The same work without faults.
  Plan without_faults() const;
  std::string describe() const;

  bool is_synchronous() const { return staleness == 0u; }
  bool has_upkeep() const {
    return std::any_of(upkeeps.begin(), upkeeps.end(),
                       [](Upkeep upkeep) { return upkeep != Upkeep::kNone; });
  }
  uint64_t batches() const { return uint64_t{items} * batches_per_item; }
  BatchId id_of(uint64_t linear) const {
    return {.epoch = 0,
            .item = static_cast<uint32_t>(linear / batches_per_item),
            .number = linear % batches_per_item};
  }
  uint64_t linear_of(const BatchId& id) const {
    return uint64_t{id.item} * batches_per_item + id.number;
  }
  // The keys of a batch, each once; sample i has the i-th.
  std::vector<uint64_t> keys_of(const BatchId& id) const;
  // The gradient of a row: of synchronous runs it depends on what was read, so that a wrong read
  // shows; of others it is whole numbers, whose sums do not depend on their order.
  std::vector<float> gradient(const BatchId& id, uint64_t key, std::span<const float> row) const;
  std::vector<float> dense_gradient(const BatchId& id) const;
  v1::CreateOption schema() const;

  uint64_t seed = 0;
  std::vector<uint32_t> lanes;  // of each ps
  uint32_t ranks = 1;
  uint32_t hubs = 1;  // of synchronous runs always one
  std::optional<uint32_t> staleness;
  uint32_t items = 1;
  uint32_t batches_per_item = 1;
  uint32_t batch_keys = 4;
  uint32_t universe = 24;
  uint32_t dim = 2;
  uint32_t window = 8;  // prepared batches of the hub
  uint32_t optimizer = 0;
  Duration batch_lease{};
  Duration step_time{};  // the longest that a trainer computes
  bool deals_before_fed = false;
  uint32_t clients = 0;
  uint32_t client_operations = 0;
  std::vector<Duration> cuts;
  std::vector<Upkeep> upkeeps;  // one per cut
  // While the job trains its bound changes to this one, of jobs that are not synchronous.
  std::optional<NewStaleness> new_staleness;
  uint64_t lead_clocks = 3;  // of announcements

  Weather weather;
  Duration storm{};  // faults end after it
  std::vector<Crash> crashes;
};

}  // namespace starling::sim
