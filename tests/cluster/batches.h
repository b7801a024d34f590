// Batches as a hub cuts them and a trainer trains them: samples with fields, their feeds per shard,
// the vectors of a lookup, and gradients merged in the one order that gives the same bits anywhere.
//
// Uses: ps/client.h; for tests only. Threads: a value of its caller.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "ps/client.h"

namespace starling::cluster {

struct Field {
  std::string name;
  std::string table;
  bool mean = false;
};

struct Samples {
  BatchId id;
  uint64_t step = 0;
  // keys[field][sample]
  std::vector<std::vector<std::vector<uint64_t>>> keys;
  size_t samples() const { return keys.empty() ? 0 : keys.front().size(); }
};

class Batch {
 public:
  Batch(std::vector<Field> fields, Samples samples, const ShardRoutes& routes,
        std::map<std::string, uint32_t> dims);

  // What each shard is fed; all fields travel as rows.
  std::vector<ShardMessage> feeds() const;
  std::vector<ShardMessage> lookups(uint32_t rank, uint64_t clock) const;
  // Takes the rows of a lookup in.
  Status take(const std::vector<Message>& replies);
  // The pooled vector of one field in one sample.
  std::vector<float> pooled(size_t field, size_t sample) const;
  // `gradient` gives that of a pooled vector. One message per shard, ticks included.
  std::vector<Message> pushes(
      uint32_t rank, uint64_t clock,
      const std::function<std::vector<float>(size_t field, size_t sample)>& gradient) const;

 private:
  struct Part {  // one table on one shard
    std::vector<uint64_t> keys;
    std::map<uint64_t, uint32_t> position;
  };
  Message header(uint32_t rank, uint64_t clock) const;

  const std::vector<Field> fields_;
  const Samples samples_;
  const uint32_t shards_;
  const uint64_t map_version_;
  std::map<std::string, uint32_t> dims_;
  std::vector<std::map<std::string, Part>> parts_;                      // by shard
  std::map<std::string, std::map<uint64_t, uint32_t>> owner_;           // table, key -> shard
  std::map<std::string, std::map<uint64_t, std::vector<float>>> rows_;  // table, key -> weights
};

inline std::vector<ShardMessage> numbered(std::vector<Message> messages) {
  std::vector<ShardMessage> out;
  for (uint32_t shard = 0; shard < messages.size(); ++shard) {
    out.push_back({shard, std::move(messages[shard])});
  }
  return out;
}

}  // namespace starling::cluster
