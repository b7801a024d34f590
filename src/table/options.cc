#include "table/options.h"

namespace starling {

namespace {

Status check_storage(const TableOptions& options) {
  for (const std::string_view known : {"float32", "bfloat16", "float16"}) {
    if (options.storage == known) return {};
  }
  return invalid_argument("table '{}': storage is '{}', it must be float32, bfloat16 or float16",
                          options.name, options.storage);
}

Status check_rest(const TableOptions& options) {
  if (!options.rest_optimizer.has_value()) {
    if (options.rest_score_min == 0) return {};
    return invalid_argument("table '{}': rest_score_min is {} but there is no rest_optimizer",
                            options.name, options.rest_score_min);
  }
  if (options.dim < 2) {
    return invalid_argument("table '{}': rest_optimizer needs dim >= 2, it is {}", options.name,
                            options.dim);
  }
  if (!options.statistics.enabled) {
    return invalid_argument("table '{}': rest_optimizer needs statistics.enabled", options.name);
  }
  if (!(options.rest_score_min >= 0 && options.rest_score_min <= 1e30)) {
    return invalid_argument("table '{}': rest_score_min is {}, it must lie in [0, 1e30]",
                            options.name, options.rest_score_min);
  }
  return {};
}

Status check_statistics(const TableOptions& options) {
  const StatisticsOptions& s = options.statistics;
  for (const double x : {s.nonclick_coeff, s.click_coeff, s.base_threshold, s.delta_threshold}) {
    if (!(x >= 0 && x <= 1e30)) {
      return invalid_argument("table '{}': statistics: {} must lie in [0, 1e30]", options.name, x);
    }
  }
  if (options.admission.kind == "score" && !s.enabled) {
    return invalid_argument("table '{}': admission by score needs statistics.enabled",
                            options.name);
  }
  return {};
}

}  // namespace

Status check_options(const TableOptions& options) {
  if (options.name.empty() || options.name.size() > kTableNameBytesMax) {
    return invalid_argument("a table's name has {} bytes, it must have 1 to {}",
                            options.name.size(), kTableNameBytesMax);
  }
  if (options.dim == 0 || options.dim > kDimMax) {
    return invalid_argument("table '{}': dim is {}, it must lie in [1, {}]", options.name,
                            options.dim, kDimMax);
  }
  if (options.placement.by_range() && options.placement.low >= options.placement.high) {
    return invalid_argument("table '{}': the range [{}, {}) is empty", options.name,
                            options.placement.low, options.placement.high);
  }
  if (!options.placement.by_range() && options.placement.low != 0) {
    return invalid_argument("table '{}': a range that starts at {} needs an end", options.name,
                            options.placement.low);
  }
  if (options.operations_max == 0 || options.operations_max == UINT32_MAX) {
    return invalid_argument("table '{}': operations_max is {}, it must lie in [1, 2^32 - 2]",
                            options.name, options.operations_max);
  }
  STARLING_RETURN_IF_ERROR(check_storage(options));
  STARLING_RETURN_IF_ERROR(check_rest(options));
  STARLING_RETURN_IF_ERROR(check_statistics(options));
  const std::string what = "table '" + options.name + "'";
  STARLING_RETURN_IF_ERROR(check_schedule(options.schedule, what + ": schedule"));
  return check_eviction(options.eviction, options.statistics, what + ": eviction");
}

}  // namespace starling
