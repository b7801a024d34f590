// Makes the map: which shard owns which of the 4096 buckets. Balanced to within one bucket, and a
// new map moves as few buckets as balance allows.
//
// Uses: base, the messages. Threads: free functions.
#pragma once

#include <vector>

#include "base/ids.h"
#include "starling/v1/types.pb.h"

namespace starling {

// The map over `shards` that differs least from `old`: a bucket moves only when its shard is not
// among the new ones or has too many. Every shard gets kBuckets / n buckets or one more. `old` may
// be empty; its version plus one is the new one's. `shards` has 1 .. kBuckets entries and comes
// back in the order of (node, lane).
v1::ShardMap rebalance(const v1::ShardMap& old, std::vector<v1::Shard> shards);

// How many buckets have another owner in `b`, by (node, lane).
uint32_t moved_buckets(const v1::ShardMap& a, const v1::ShardMap& b);

}  // namespace starling
