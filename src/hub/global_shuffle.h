// GlobalShuffle is a hub's part in one order of all samples of a memory dataset: it holds the
// samples of some files, says which of them a slice of the order wants, and puts slices together
// from what it holds and what other hubs send.
//
// The order depends on the seed and the epoch alone: whoever holds which file, a slice has the same
// samples. Uses: base, data. Threads: one caller at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/sample.h"

namespace starling {

using SampleBlocks = std::vector<std::shared_ptr<const SampleBlock>>;

class GlobalShuffle {
 public:
  // `slice_samples`: of every slice but the last.
  GlobalShuffle(uint64_t seed, uint64_t slice_samples)
      : seed_(seed), slice_samples_(slice_samples) {}

  // How many samples each file has, in the order of files, when all are known.
  // ResourceExhausted: more than an order can have (2^32 - 1).
  Status set_counts(const std::vector<uint64_t>& counts);
  bool is_known() const { return !begins_.empty(); }
  uint64_t samples() const { return begins_.empty() ? 0 : begins_.back(); }
  uint32_t slices() const;
  uint64_t slice_samples(uint32_t slice) const;

  // The samples of a file are here, or no longer.
  void hold(uint32_t file, SampleBlocks blocks);
  void drop(uint32_t file) { held_.erase(file); }

  // For another hub: records of the samples held here of a slice, from its place `at` on and about
  // `bytes_max` of them; moves `at` behind them. A record: the place in the slice and the length
  // (uint64, uint32), then a record of the features format.
  struct Records {
    std::string bytes;
    uint32_t samples = 0;
    bool is_last = false;
  };
  Records records(uint32_t epoch, uint32_t slice, uint64_t& at, size_t bytes_max);

  // Putting a slice together: begin, then take what is here and what comes until it is whole.
  void begin(uint32_t epoch, uint32_t slice, std::shared_ptr<const SampleSchema> schema);
  bool is_gathering(uint32_t epoch, uint32_t slice) const;
  // How many were new.
  uint64_t take_own();
  // InvalidArgument: these are no records, or not of the slice. Repeats change nothing.
  StatusOr<uint64_t> take(std::string_view records);
  bool is_whole() const { return gathering_.has_value() && gathering_->missing == 0; }
  uint64_t missing() const { return gathering_.has_value() ? gathering_->missing : 0; }
  // The slice in its order; nothing is being gathered any more.
  SampleBlocks finish();
  size_t bytes() const;  // of what is gathered

 private:
  struct Gathering {
    uint32_t epoch = 0;
    uint32_t slice = 0;
    std::unique_ptr<SampleBlock> samples;  // as they came
    std::vector<uint32_t> where;           // by place in the slice: in `samples`, or kNowhere
    uint64_t missing = 0;
  };
  const std::vector<uint32_t>& order_of(uint32_t epoch);
  // The sample of a place of an order; none when it is not held here.
  std::optional<SampleRef> find(uint32_t number) const;

  const uint64_t seed_;
  const uint64_t slice_samples_;
  std::vector<uint64_t> begins_;  // of files in the numbers of samples; all of them last
  std::map<uint32_t, SampleBlocks> held_;
  std::map<uint32_t, std::vector<uint32_t>> orders_;  // by epoch, the newest two
  std::optional<Gathering> gathering_;
};

}  // namespace starling
