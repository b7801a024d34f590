#include "scheduler/shard_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/rng.h"

namespace starling {
namespace {

using Place = std::pair<uint32_t, uint32_t>;

std::vector<v1::Shard> shards_of(const std::set<Place>& places) {
  std::vector<v1::Shard> shards;
  for (const auto& [node, lane] : places) {
    shards.emplace_back().set_node(node);
    shards.back().set_lane(lane);
  }
  return shards;
}

std::vector<uint32_t> counts_of(const v1::ShardMap& map) {
  std::vector<uint32_t> counts(static_cast<size_t>(map.shards_size()), 0);
  for (const uint32_t shard : map.bucket_shard()) ++counts.at(shard);
  return counts;
}

TEST(ShardMapTest, TheFirstMapIsBalancedAndHasVersion1) {
  const v1::ShardMap map = rebalance({}, shards_of({{2, 0}, {1, 1}, {1, 0}}));
  EXPECT_EQ(map.version(), 1);
  EXPECT_EQ(map.bucket_shard_size(), 4096);
  EXPECT_EQ(map.shards(0).node(), 1);
  EXPECT_EQ(map.shards(2).node(), 2);
  const std::vector<uint32_t> counts = counts_of(map);
  EXPECT_EQ(*std::max_element(counts.begin(), counts.end()), 1366);
  EXPECT_EQ(*std::min_element(counts.begin(), counts.end()), 1365);
}

TEST(ShardMapTest, ASecondPsOfTheSameSizeTakesHalf) {
  const v1::ShardMap one = rebalance({}, shards_of({{1, 0}, {1, 1}}));
  const v1::ShardMap two = rebalance(one, shards_of({{1, 0}, {1, 1}, {2, 0}, {2, 1}}));
  EXPECT_EQ(moved_buckets(one, two), 2048);
  EXPECT_EQ(moved_buckets(two, rebalance(two, shards_of({{1, 0}, {1, 1}, {2, 0}, {2, 1}}))), 0);
}

// The fewest moves that lead to balance: what leaves shards that go, plus what is over the quota,
// where the quotas of one more go to those that have the most.
uint32_t fewest_moves(const v1::ShardMap& old, const std::set<Place>& next) {
  std::map<Place, uint32_t> has;
  for (const Place& place : next) has[place] = 0;
  uint32_t stays = 0;
  for (const uint32_t index : old.bucket_shard()) {
    const v1::Shard& shard = old.shards(static_cast<int>(index));
    if (const auto it = has.find({shard.node(), shard.lane()}); it != has.end()) ++it->second;
  }
  std::vector<uint32_t> sizes;
  for (const auto& [place, count] : has) sizes.push_back(count);
  std::sort(sizes.rbegin(), sizes.rend());
  const auto n = static_cast<uint32_t>(next.size());
  for (uint32_t i = 0; i < n; ++i) {
    stays += std::min(sizes[i], kBuckets / n + (i < kBuckets % n ? 1 : 0));
  }
  return kBuckets - stays;
}

TEST(ShardMapTest, AnyChangeOfShardsIsBalancedAndMovesTheFewest) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, 1, 0);
    std::set<Place> places = {{1, 0}};
    v1::ShardMap map = rebalance({}, shards_of(places));
    for (int step = 0; step < 12; ++step) {
      std::set<Place> next;
      for (const Place& place : places) {
        if (rng.below(5) != 0) next.insert(place);
      }
      const auto node = static_cast<uint32_t>(2 + rng.below(40));
      for (uint32_t lane = 0; lane <= rng.below(8); ++lane) next.insert({node, lane});
      const v1::ShardMap changed = rebalance(map, shards_of(next));
      EXPECT_EQ(changed.version(), map.version() + 1);
      const std::vector<uint32_t> counts = counts_of(changed);
      const auto [low, high] = std::minmax_element(counts.begin(), counts.end());
      EXPECT_LE(*high - *low, 1);
      EXPECT_EQ(moved_buckets(map, changed), fewest_moves(map, next));
      map = changed;
      places = next;
    }
  }
}

}  // namespace
}  // namespace starling
