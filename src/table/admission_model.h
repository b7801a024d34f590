// Admission once more, as maps and plain loops: what the property test compares the real one with.
//
// Uses: base. Threads: one owner. For tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/rng.h"
#include "table/admission.h"
#include "table/hash.h"

namespace starling {

class AdmissionModel {
 public:
  AdmissionModel(const AdmissionOptions& options, uint64_t seed, uint64_t stream)
      : options_(options), seed_(seed), stream_(stream) {}

  // One push of a key without a row: whether it gets one.
  bool admits(Key key, uint64_t step, double score) {
    if (options_.kind == "always") return true;
    if (options_.kind == "probability") {
      Rng rng(mix64(seed_) ^ step, mix64(stream_), value(key));
      return rng.uniform() < options_.probability;
    }
    return options_.kind == "bloom" ? bloom_admits(key) : candidate_admits(key, step, score);
  }

 private:
  struct Candidate {
    uint32_t pushes = 0;
    double score = 0;
    uint64_t last_step = 0;
  };

  bool candidate_admits(Key key, uint64_t step, double score) {
    auto& bucket = candidates_[bucket_bits(mixed_hash(key))];
    Candidate& candidate = bucket[key];
    candidate.pushes += 1;
    candidate.score += score;
    candidate.last_step = std::max(candidate.last_step, step);
    const bool enough = options_.kind == "count" ? candidate.pushes >= options_.count
                                                 : candidate.score >= options_.score;
    if (enough) {
      bucket.erase(key);
    } else if (bucket.size() > (options_.candidates_max + kBuckets - 1) / kBuckets) {
      bucket.erase(std::min_element(bucket.begin(), bucket.end(), [](const auto& a, const auto& b) {
        return std::pair(a.second.last_step, a.first) < std::pair(b.second.last_step, b.first);
      }));
    }
    return enough;
  }

  // The places of a key among the counters of its bucket (docs/format/table.md).
  std::set<uint64_t> places(Key key) const {
    const double mean = static_cast<double>(options_.expected_keys) / kBuckets;
    const double keys = std::max(1.0, mean + 3 * std::sqrt(mean));
    const double ln2 = std::log(2.0);
    const auto counters = static_cast<uint64_t>(
        std::ceil(-keys * std::log(options_.false_positive_rate) / (ln2 * ln2)));
    const auto hashes = std::lround(static_cast<double>(counters) / keys * ln2);
    std::set<uint64_t> places;
    uint64_t hash = mix64(~mixed_hash(key));
    const uint64_t step = mix64(hash) | 1;
    for (int64_t i = 0; i < std::max<int64_t>(1, hashes); ++i, hash += step) {
      places.insert((hash >> 32) * counters >> 32);
    }
    return places;
  }

  bool bloom_admits(Key key) {
    auto& counters = filters_[bucket_bits(mixed_hash(key))];
    uint32_t least = UINT32_MAX;
    for (const uint64_t at : places(key)) least = std::min(least, ++counters[at]);
    if (least < options_.count) return false;
    for (const uint64_t at : places(key)) counters[at] -= options_.count;
    return true;
  }

  const AdmissionOptions options_;
  const uint64_t seed_;
  const uint64_t stream_;
  std::map<uint32_t, std::map<Key, Candidate>> candidates_;   // by bucket
  std::map<uint32_t, std::map<uint64_t, uint32_t>> filters_;  // by bucket: place -> count
};

}  // namespace starling
