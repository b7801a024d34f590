// ShardRoutes says which shard owns a key or a part of a variable, by the map that the scheduler
// publishes.
//
// Uses: base, wire, table's frozen hash. Threads: a value.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "table/hash.h"
#include "wire/message.h"

namespace starling {

class ShardRoutes {
 public:
  ShardRoutes() = default;
  // InvalidArgument: no shard, not 4096 buckets, or a bucket of a shard that is not there.
  static StatusOr<ShardRoutes> make(v1::ShardMap map);

  uint64_t version() const { return map_.version(); }
  bool empty() const { return map_.shards().empty(); }
  uint32_t shards() const { return static_cast<uint32_t>(map_.shards_size()); }
  const v1::Shard& shard(uint32_t index) const { return map_.shards(static_cast<int>(index)); }
  uint32_t owner_of_bucket(uint32_t bucket) const { return owner_[bucket]; }
  uint32_t owner(const Placement& placement, Key key) const {
    return owner_[placement.bucket(key, mixed_hash(key))];
  }
  // Whether `shard` owns every one of the keys, which lie in the placement's range.
  bool owns_all(uint32_t shard, const Placement& placement, std::span<const Key> keys) const;
  // The index of a lane of a ps; shards() when it has none.
  uint32_t index_of(NodeId node, LaneId lane) const;
  const v1::ShardMap& map() const { return map_; }

 private:
  v1::ShardMap map_;
  std::vector<uint32_t> owner_;  // (kBuckets)
};

}  // namespace starling
