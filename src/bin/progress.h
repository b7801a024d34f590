// What a person sees of a job while it trains: one line that is written over on a terminal, and a
// line of metrics.jsonl per moment.
//
// Uses: base. Threads: Display from any; the rest are values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"

namespace starling {

// A moment of a run. Numbers that are not known are negative.
struct RunProgress {
  double time_s = 0;  // since the run began
  uint64_t samples = 0;
  double samples_per_s = 0;  // of the last seconds
  double loss = -1;          // of the last window
  double auc = -1;
  double part = -1;  // that is trained, 0 to 1
  double left_s = -1;

  std::string text() const;
  std::string json() const;
};

// The number behind "name": in a line of metrics.jsonl.
std::optional<double> json_number(const std::string& line, const std::string& name);
std::optional<RunProgress> parse_progress(const std::string& line);

class Display {
 public:
  Display();
  // Shows the moment; elsewhere than on a terminal every ten seconds.
  void show(const RunProgress& progress);
  // A line that stays.
  void say(const std::string& text);

 private:
  const RealClock clock_;
  const bool is_terminal_;
  Mutex mutex_;
  bool is_open_ ABSL_GUARDED_BY(mutex_) = false;  // a line is to be written over
  TimePoint shown_at_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling
