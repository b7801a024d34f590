// Oracle sees what every shard acknowledges and knows what the tables must hold: each acknowledged
// operation applied exactly once, of synchronous runs in the order of clocks and ranks.
//
// Uses: base, wire, table, ps/shard.h. Threads: one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "ps/shard.h"
#include "store/file_systems.h"
#include "tests/sim/plan.h"

namespace starling::sim {

// All rows of a table as bytes, by bucket; those of a variable by element.
struct Image {
  std::map<std::string, std::map<uint32_t, std::vector<std::byte>>>
      tables;                                    // those with something in them
  std::map<uint64_t, std::vector<float>> dense;  // by first element: weights, then state
  bool operator==(const Image&) const = default;

  void add(Shard& shard);
};

// The disks, and what the oracle knows of the cuts on them; outlives every process.
struct Vault {
  static constexpr const char* kDirectory = "mem://sim/cuts";
  ManualClock clock;  // of the files
  std::unique_ptr<FileSystems> files = FileSystems::standard({}, clock);
  struct Cut {
    Image image;
    // Of a shard that was not at the cut's clock; a cut that has failed meanwhile may have one.
    std::string complaint;
    std::map<uint64_t, float> client_rows;          // what the oracle knew of them
    std::set<std::pair<uint32_t, uint32_t>> lanes;  // (node, lane) that are in it
  };
  std::map<uint64_t, Cut> cuts;
  uint64_t newest = 0;  // whose manifest is in place; 0: none
};

class Oracle {
 public:
  Oracle(World& world, const Plan& plan) : world_(world), plan_(plan) {}

  // A shard acknowledged a push by key.
  void keys_acknowledged(const std::string& shard, const Message& request);
  // A shard acknowledged a Shrink or Clear; `owns` says which keys are its own.
  void upkept(const std::string& shard, const Message& request,
              const std::function<bool(uint64_t key)>& owns);
  // What is expected of these shards' client rows now.
  const std::map<uint64_t, float>& client_rows() const { return client_rows_; }
  // The job goes back to this.
  void restored(std::map<uint64_t, float> client_rows);

  // At the end of a run.
  void check(const Image& image);
  // At a cut: exactly the batches that the hub has counted as done.
  void check_rows(const Image& image, const std::set<BatchId>& done, const std::string& when);

 private:
  void check_client_rows(const Image& image);
  void check_dense(const Image& image, const std::set<BatchId>& done, const std::string& when);
  // What a table holds that took these batches, one after the other.
  std::map<uint32_t, std::vector<std::byte>> replay(const std::set<BatchId>& done);

  World& world_;
  const Plan& plan_;
  std::map<uint64_t, float> client_rows_;
  std::set<std::tuple<std::string, uint64_t, uint64_t>> numbers_;  // shard, session, number
};

std::map<uint32_t, std::vector<std::byte>> buckets_of(const Table& table);

}  // namespace starling::sim
