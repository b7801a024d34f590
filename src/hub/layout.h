// How an assembled batch becomes messages: what each shard is fed, and what the trainer is leased.
//
// Uses: base, wire, data, ps/client.h. Threads: free functions.
#pragma once

#include <cstdint>
#include <vector>

#include "data/batch.h"
#include "hub/dealer.h"
#include "ps/client.h"

namespace starling {

// What a batch needs beside its samples.
struct BatchPlace {
  BatchId id;
  uint64_t step = 0;         // its number in the order of the job
  uint64_t map_version = 0;  // by which it was assembled
  uint32_t window = 64;      // of this hub on every shard
  bool is_fused = true;      // all tables of a shard in one message; else one each
};

// FeedSample of every shard, watermarks left out.
std::vector<ShardMessage> feeds_of(const Batch& batch, const SampleSchema& schema,
                                   const std::vector<BatchTable>& tables, const BatchPlace& place);
// What the dealer deals.
HubBatch lease_of(const Batch& batch, const SampleSchema& schema,
                  const std::vector<BatchTable>& tables, const BatchPlace& place);

}  // namespace starling
