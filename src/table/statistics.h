// Show/click statistics of a row, its score, and the filters that decide which rows a save takes.
//
// Uses: base. Threads: any; all are values and pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace starling {

struct StatisticsOptions {
  bool enabled = false;  // show, click, unseen days and delta score per row
  double nonclick_coeff = 0.1;
  double click_coeff = 1;
  // Save filters.
  double base_threshold = 1.5;
  double delta_threshold = 0.25;
  uint32_t delta_keep_days = 16;
};

// What a row remembers beside weights and state. Fields that a table does not keep read as here.
struct RowStatistics {
  double show = 0;
  double click = 0;
  float delta_score = 0;
  uint32_t unseen_days = 0;
  uint64_t last_step = 0;
  uint64_t touches = 0;  // pushes that reached the row
  bool second = true;    // the rest of a split row exists

  bool operator==(const RowStatistics&) const = default;
};

inline double score_of(const StatisticsOptions& options, double show, double click) {
  return (show - click) * options.nonclick_coeff + click * options.click_coeff;
}

enum class SaveFilter { kAll, kDelta, kBase, kDaily };

// Whether a save of this kind takes the row.
inline bool save_takes(const StatisticsOptions& options, SaveFilter filter,
                       const RowStatistics& row) {
  if (filter == SaveFilter::kAll || filter == SaveFilter::kDaily) return true;
  const double delta = filter == SaveFilter::kBase ? 0 : options.delta_threshold;
  return score_of(options, row.show, row.click) >= options.base_threshold &&
         row.delta_score >= delta && row.unseen_days <= options.delta_keep_days;
}

// What publishing such a save changes in the row: delta and base set the delta score of rows they
// took to 0, daily makes every row a day older.
inline void save_changes(const StatisticsOptions& options, SaveFilter filter, RowStatistics& row) {
  if (filter == SaveFilter::kAll) return;
  if (filter == SaveFilter::kDaily) {
    ++row.unseen_days;
  } else if (save_takes(options, filter, row)) {
    row.delta_score = 0;
  }
}

}  // namespace starling
