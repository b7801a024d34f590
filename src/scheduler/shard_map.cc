#include "scheduler/shard_map.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace starling {
namespace {

using Place = std::pair<uint32_t, uint32_t>;  // node, lane

Place place_of(const v1::Shard& shard) { return {shard.node(), shard.lane()}; }

constexpr uint32_t kNobody = UINT32_MAX;

// For each bucket its old owner's index among the new shards.
std::vector<uint32_t> keep_owners(const v1::ShardMap& old, const std::vector<v1::Shard>& shards) {
  std::map<Place, uint32_t> index;
  for (const v1::Shard& shard : shards) {
    index.emplace(place_of(shard), static_cast<uint32_t>(index.size()));
  }
  std::vector<uint32_t> owners(kBuckets, kNobody);
  for (int bucket = 0; bucket < old.bucket_shard_size(); ++bucket) {
    const auto it = index.find(place_of(old.shards(static_cast<int>(old.bucket_shard(bucket)))));
    if (it != index.end()) owners[static_cast<size_t>(bucket)] = it->second;
  }
  return owners;
}

// How many buckets each shard shall have. The remainder goes to those that have the most already,
// since each bucket that stays is one that does not move.
std::vector<uint32_t> quotas(const std::vector<uint32_t>& owners, size_t shards) {
  std::vector<uint32_t> has(shards, 0);
  for (const uint32_t owner : owners) {
    if (owner != kNobody) ++has[owner];
  }
  std::vector<uint32_t> by_size(shards);
  std::iota(by_size.begin(), by_size.end(), 0);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&has](uint32_t a, uint32_t b) { return has[a] > has[b]; });
  std::vector<uint32_t> quota(shards, static_cast<uint32_t>(kBuckets / shards));
  for (size_t i = 0; i < kBuckets % shards; ++i) ++quota[by_size[i]];
  return quota;
}

}  // namespace

v1::ShardMap rebalance(const v1::ShardMap& old, std::vector<v1::Shard> shards) {
  STARLING_CHECK(!shards.empty() && shards.size() <= kBuckets, "a map needs 1 to 4096 shards");
  std::sort(shards.begin(), shards.end(),
            [](const auto& a, const auto& b) { return place_of(a) < place_of(b); });
  std::vector<uint32_t> owners = keep_owners(old, shards);
  std::vector<uint32_t> room = quotas(owners, shards.size());
  for (uint32_t& owner : owners) {
    if (owner == kNobody) continue;
    if (room[owner] == 0) {
      owner = kNobody;
    } else {
      --room[owner];
    }
  }
  uint32_t next = 0;
  for (uint32_t& owner : owners) {
    if (owner != kNobody) continue;
    while (room[next] == 0) ++next;
    owner = next;
    --room[next];
  }
  v1::ShardMap map;
  map.set_version(old.version() + 1);
  map.mutable_shards()->Assign(shards.begin(), shards.end());
  map.mutable_bucket_shard()->Assign(owners.begin(), owners.end());
  return map;
}

uint32_t moved_buckets(const v1::ShardMap& a, const v1::ShardMap& b) {
  uint32_t moved = 0;
  for (int i = 0; i < std::min(a.bucket_shard_size(), b.bucket_shard_size()); ++i) {
    const v1::Shard& from = a.shards(static_cast<int>(a.bucket_shard(i)));
    const v1::Shard& to = b.shards(static_cast<int>(b.bucket_shard(i)));
    moved += place_of(from) == place_of(to) ? 0 : 1;
  }
  return moved;
}

}  // namespace starling
