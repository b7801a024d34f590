// Admission decides which keys get a row. All its state is per bucket, so it moves with the bucket
// and does not depend on the number of shards.
//
// Uses: base. Threads: shard-local, as the table that owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace starling {

struct AdmissionOptions {
  // always; count: after `count` pushes, counted exactly for at most `candidates_max` keys; bloom:
  // after `count` pushes, counted by a Bloom filter for `expected_keys` keys at
  // `false_positive_rate`; probability: each push of a missing key admits it with `probability`;
  // score: when its show/click score reaches `score`.
  std::string kind = "always";
  uint32_t count = 2;
  double probability = 1;
  double score = 1;
  uint64_t expected_keys = 0;
  double false_positive_rate = 0.01;
  // Of the whole table; each bucket holds its 4096th part, rounded up. The candidate that goes
  // first has the smallest (last step, key).
  uint64_t candidates_max = uint64_t{1} << 22;
  // What a key that is not admitted reads as: its initializer's value, or zero.
  bool reads_initializer = false;
};

// One push of a key that has no row.
struct AdmissionEvent {
  Key key;
  uint32_t bucket;
  uint64_t step;
  double score;  // of this push
};

class Admission {
 public:
  virtual ~Admission() = default;
  // Counts the push; true when the key gets a row now, and is then forgotten here.
  virtual bool admit(const AdmissionEvent& event) = 0;
  // Whether admit() changes state that is worth saving.
  virtual bool has_state() const = 0;
  // Appends the bucket's state; docs/format/table.md.
  virtual void save(uint32_t bucket, std::vector<std::byte>& out) const = 0;
  // Replaces the bucket's state by a saved one. DataLoss: the bytes are not one of these options.
  virtual Status restore(uint32_t bucket, std::span<const std::byte> bytes) = 0;
  virtual void drop(uint32_t bucket) = 0;
  virtual size_t bytes() const = 0;
};

// `seed` and `stream` as for Initializer. InvalidArgument names `what`, the option and its range.
StatusOr<std::unique_ptr<Admission>> make_admission(const AdmissionOptions& options, uint64_t seed,
                                                    uint64_t stream, std::string_view what);

}  // namespace starling
