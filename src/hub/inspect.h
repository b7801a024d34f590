// What a job's files look like through its options: the first samples as a table, and statistics
// of every field.
//
// Uses: base, wire, store, data. Threads: free functions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "store/file_system.h"
#include "wire/message.h"

namespace starling {

// The first `samples` samples of the dataset: a line per field, a column per sample.
// Codes as the reading of the dataset; InvalidArgument: a record that cannot be read.
StatusOr<std::string> show_samples(FileSystem& files, const Clock& clock,
                                   const v1::StartSampleOption& option, uint32_t samples);

// Of the first `samples_max` samples, per field: in how many samples it is, how many keys there are
// (estimated), the most frequent ones; mean, deviation and range of numbers, the rate of labels.
StatusOr<std::string> sample_stats(FileSystem& files, const Clock& clock,
                                   const v1::StartSampleOption& option, uint64_t samples_max);

// Mean and deviation of every dense field of the first `samples_max` samples, as the YAML that the
// job file's data.stats names.
StatusOr<std::string> sample_constants(FileSystem& files, const Clock& clock,
                                       const v1::StartSampleOption& option, uint64_t samples_max);

// An estimate of how many distinct numbers were added, about 2 % off (Flajolet et al., 2007).
class DistinctEstimate {
 public:
  void add(uint64_t number);
  double value() const;

 private:
  static constexpr uint32_t kBits = 12;
  std::array<uint8_t, 1 << kBits> most_{};  // leading zeros + 1, per register
};

// The most frequent numbers of a stream, by Space-Saving (Metwally et al., 2005): counts are too
// high by at most the smallest kept.
class FrequentNumbers {
 public:
  explicit FrequentNumbers(size_t kept_max) : kept_max_(kept_max) {}
  void add(uint64_t number);
  // The highest first.
  std::vector<std::pair<uint64_t, uint64_t>> top(size_t count) const;

 private:
  const size_t kept_max_;
  std::unordered_map<uint64_t, uint64_t> counts_;
};

}  // namespace starling
