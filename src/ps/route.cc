#include "ps/route.h"

namespace starling {

StatusOr<ShardRoutes> ShardRoutes::make(v1::ShardMap map) {
  if (map.shards().empty()) return invalid_argument("the map has no shards");
  if (map.bucket_shard_size() != static_cast<int>(kBuckets)) {
    return invalid_argument("the map has {} buckets, not {}", map.bucket_shard_size(), kBuckets);
  }
  ShardRoutes routes;
  routes.owner_.assign(map.bucket_shard().begin(), map.bucket_shard().end());
  for (uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
    if (routes.owner_[bucket] >= static_cast<uint32_t>(map.shards_size())) {
      return invalid_argument("bucket {} belongs to shard {} of {}", bucket, routes.owner_[bucket],
                              map.shards_size());
    }
  }
  routes.map_ = std::move(map);
  return routes;
}

bool ShardRoutes::owns_all(uint32_t shard, const Placement& placement,
                           std::span<const Key> keys) const {
  if (shards() == 1 && shard == 0) return true;
  uint32_t differs = 0;
  for (const Key key : keys) differs |= owner(placement, key) ^ shard;
  return differs == 0;
}

uint32_t ShardRoutes::index_of(NodeId node, LaneId lane) const {
  for (uint32_t i = 0; i < shards(); ++i) {
    if (shard(i).node() == value(node) && shard(i).lane() == value(lane)) return i;
  }
  return shards();
}

}  // namespace starling
