// TableOptions and DenseOptions: everything a table is told when it is made, with its bounds.
//
// Uses: base. Threads: any; all are values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "table/admission.h"
#include "table/eviction.h"
#include "table/hash.h"
#include "table/initializer.h"
#include "table/rules.h"
#include "table/schedule.h"
#include "table/statistics.h"

namespace starling {

inline constexpr uint32_t kDimMax = 4096;
inline constexpr size_t kTableNameBytesMax = 256;

struct TableOptions {
  std::string name;
  uint64_t seed = 0;  // the job's
  uint32_t dim = 16;
  std::string storage =
      "float32";        // or bfloat16, float16: weights only, rounded stochastically by each step
  Placement placement;  // by hash unless a range is given
  OptimizerOptions optimizer;
  // A rule of its own for weights 1 .. dim - 1. That part of a row is created when the row's
  // show/click score reaches rest_score_min, and is zero before.
  std::optional<OptimizerOptions> rest_optimizer;
  double rest_score_min = 0;
  ScheduleOptions schedule;
  InitializerOptions initializer;
  AdmissionOptions admission;
  EvictionOptions eviction;
  StatisticsOptions statistics;
  // A push with a NaN or infinite gradient is refused whole; otherwise the rows hit by one are left
  // alone and counted.
  bool refuse_nonfinite = false;
  // How far changed_since() reaches back.
  size_t deletions_max = size_t{1} << 20;
  uint32_t operations_max = UINT32_MAX - 1;
};

// A named tensor, or the range of its flat elements that this shard holds.
struct DenseOptions {
  std::string name;
  uint64_t seed = 0;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;  // 0: all elements
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  InitializerOptions initializer;
  bool refuse_nonfinite = false;  // otherwise such a push changes nothing and is counted
  uint32_t ranks_max = 65536;     // gradients that may wait for a synchronous step
};

// The checks that need no other part of the table. InvalidArgument names the table, the option and
// its range.
Status check_options(const TableOptions& options);

}  // namespace starling
