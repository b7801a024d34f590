// The first value of a row: a function of (job seed, table, key) alone, never of arrival order,
// shards or restarts.
//
// Uses: base. Threads: any; an initializer is a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/status.h"

namespace starling {

struct InitializerOptions {
  // zero; constant: `value`; uniform: [low, high); normal: mean, std; truncated_normal: the same,
  // drawn again outside two std; xavier: uniform in +-sqrt(6 / (fan_in + fan_out)), where fan_out 0
  // means the table's dim.
  std::string kind = "uniform";
  double value = 0;
  double low = -0.01;
  double high = 0.01;
  double mean = 0;
  double std = 0.01;
  double fan_in = 1;
  double fan_out = 0;
};

class Initializer {
 public:
  // `what` names the options in messages, `dim` is the length of a row. InvalidArgument: a value is
  // out of range.
  static StatusOr<Initializer> make(const InitializerOptions& options, size_t dim,
                                    std::string_view what);

  // Fills `out` with the first weights of a row. `stream` is the table's name_hash.
  void fill(uint64_t seed, uint64_t stream, Key key, std::span<float> out) const;

 private:
  friend struct InitializerKinds;
  using Fill = void (*)(const Initializer& self, uint64_t seed, uint64_t stream, Key key,
                        std::span<float> out);
  Fill fill_ = nullptr;
  double a_ = 0;  // low, mean or the constant
  double b_ = 0;  // high or std
};

}  // namespace starling
