#include "table/schedule.h"

#include <cmath>
#include <numbers>

namespace starling {

namespace {

using Curve = double (*)(const ScheduleOptions& options, uint64_t step);

double constant_curve(const ScheduleOptions&, uint64_t) { return 1; }

double step_curve(const ScheduleOptions& options, uint64_t step) {
  const uint64_t periods = step / options.period_steps;
  return std::pow(options.factor, static_cast<double>(periods));
}

double exponential_curve(const ScheduleOptions& options, uint64_t step) {
  return std::pow(options.factor,
                  static_cast<double>(step) / static_cast<double>(options.period_steps));
}

double cosine_curve(const ScheduleOptions& options, uint64_t step) {
  if (step >= options.period_steps) return options.floor;
  const double part = static_cast<double>(step) / static_cast<double>(options.period_steps);
  return options.floor + (1 - options.floor) * 0.5 * (1 + std::cos(std::numbers::pi * part));
}

// The list. A new curve is a function and a line here.
constexpr struct {
  std::string_view kind;
  Curve curve;
} kCurves[] = {{"constant", constant_curve},
               {"step", step_curve},
               {"exponential", exponential_curve},
               {"cosine", cosine_curve}};

Curve find_curve(std::string_view kind) {
  for (const auto& entry : kCurves) {
    if (entry.kind == kind) return entry.curve;
  }
  return nullptr;
}

}  // namespace

Status check_schedule(const ScheduleOptions& options, std::string_view what) {
  if (find_curve(options.kind) == nullptr) {
    return invalid_argument("{}: no schedule is called '{}'", what, options.kind);
  }
  if (options.period_steps == 0)
    return invalid_argument("{}.period_steps is 0, it must be >= 1", what);
  if (!(options.factor > 0 && options.factor <= 1)) {
    return invalid_argument("{}.factor is {}, it must lie in (0, 1]", what, options.factor);
  }
  if (!(options.floor >= 0 && options.floor <= 1)) {
    return invalid_argument("{}.floor is {}, it must lie in [0, 1]", what, options.floor);
  }
  return {};
}

double schedule_factor(const ScheduleOptions& options, uint64_t step) {
  if (step < options.warmup_steps) {
    return static_cast<double>(step + 1) / static_cast<double>(options.warmup_steps);
  }
  return find_curve(options.kind)(options, step - options.warmup_steps);
}

}  // namespace starling
