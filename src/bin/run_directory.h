// RunDirectory is where a run of a job leaves what a person looks for: its state, the job file as
// it ran, metrics over time, and the logs of its processes. One process holds it at a time.
//
// Files: `state` (lines of `key: value`), `job.yaml` (the file's text), `settings` (every value
// with its origin), `metrics.jsonl`, `logs/NAME.log` and `logs/NAME.out`. Uses: base, conf, POSIX.
// Threads: one owner.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "conf/load.h"

namespace starling {

// What `starling status` finds a run by.
struct RunState {
  std::string job;
  int64_t process = 0;    // of the one that holds the directory
  std::string scheduler;  // its address; empty before it is there
  std::string state;      // running, done, stopped, failed
};

inline std::string metrics_path_of(const std::string& run) { return run + "/metrics.jsonl"; }

class RunDirectory {
 public:
  // Makes the directory where it is missing and holds it until the end of this process.
  // AlreadyExists: a run holds it; the message says which and what to do instead. Others: it cannot
  // be written.
  static StatusOr<RunDirectory> open(const std::string& path, const std::string& job);
  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;
  ~RunDirectory();

  const std::string& path() const { return path_; }
  std::string metrics_path() const { return metrics_path_of(path_); }
  std::string ledger_path() const { return path_ + "/ledger"; }
  std::string log_path(const std::string& name) const { return path_ + "/logs/" + name + ".log"; }
  std::string out_path(const std::string& name) const { return path_ + "/logs/" + name + ".out"; }

  // The job as it runs now. `is_new`: what an earlier run left (metrics, logs) goes.
  Status begin(const Job& job, const std::string& file, bool is_new);
  Status set_state(const std::string& state, const std::string& scheduler = "");

 private:
  RunDirectory(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  const std::string path_;
  int lock_;  // an open file; -1: moved from
  RunState state_;
};

// The directory of a job that names none.
std::string default_run_path(const std::string& job);
// NotFound: no run was ever there.
StatusOr<RunState> read_run_state(const std::string& path);
// True while a process holds the directory.
bool is_run_held(const std::string& path);
// Directories of runs that are held now, below the default place.
std::vector<std::string> held_runs();

// The keys of a job that must be as they were when the job goes on from a cut, as text for the
// checkpoint's directory: a line `key=value` each, in the order of the list.
std::string fixed_settings(const Job& job);
// FailedPrecondition naming every key that must not have changed, with both values. `before` is
// what fixed_settings() made.
Status check_resume(const std::string& before, const Job& now);

}  // namespace starling
