#include "bin/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "bin/process.h"

namespace starling {
namespace {

constexpr const char* kRuns = "runs";

// What may change at a resume: where and how fast the job runs, not what it computes.
constexpr auto kFree = std::to_array<std::string_view>(
    {"data.test", "data.epochs", "train.threads", "train.tensor_fuse", "train.evaluate_minutes",
     "train.evaluate_steps", "train.exact_auc", "train.window_samples", "cluster.", "checkpoint.",
     "scheduler.", "ps.", "hub.", "trainer.", "log."});

bool is_free(const std::string& key) {
  return std::any_of(kFree.begin(), kFree.end(), [&](std::string_view free) {
    return free.ends_with('.') ? key.starts_with(free) : key == free;
  });
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

Status write_text(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  std::ofstream out(temporary, std::ios::binary);
  out << text;
  out.close();
  if (!out || std::rename(temporary.c_str(), path.c_str()) != 0) {
    return unavailable("{}: cannot be written: {}", path, std::strerror(errno));
  }
  return absl::OkStatus();
}

// -1: another process has it.
int lock_file(const std::string& path, bool creates) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | (creates ? O_CREAT : 0), 0644);
  if (file < 0) return -2;
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return file;
  ::close(file);
  return -1;
}

std::string lock_path(const std::string& path) { return path + "/lock"; }

std::map<std::string, std::string> lines_of(const std::string& text, const std::string& between) {
  std::map<std::string, std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find(between);
    if (at != std::string::npos) out[line.substr(0, at)] = line.substr(at + between.size());
  }
  return out;
}

}  // namespace

StatusOr<RunDirectory> RunDirectory::open(const std::string& path, const std::string& job) {
  std::error_code error;
  std::filesystem::create_directories(path + "/logs", error);
  if (error) return unavailable("{}: cannot be made: {}", path, error.message());
  const int lock = lock_file(lock_path(path), true);
  if (lock == -2) return unavailable("{}: cannot be opened: {}", path, std::strerror(errno));
  if (lock < 0) {
    const StatusOr<RunState> state = read_run_state(path);
    const std::string process = state.ok() ? std::to_string(state->process) : "unknown";
    return already_exists(
        "job '{}' runs already, as process {} in {}. Look at it: starling status --run {}. Stop "
        "it with a checkpoint: kill {}. Run a second one beside it: --run DIRECTORY with another "
        "checkpoint.path",
        job, process, path, path, process);
  }
  RunDirectory run(path, lock);
  run.state_.job = job;
  run.state_.process = ::getpid();
  return run;
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(other.path_), lock_(std::exchange(other.lock_, -1)), state_(other.state_) {}

RunDirectory::~RunDirectory() {
  if (lock_ >= 0) ::close(lock_);
}

Status RunDirectory::begin(const Job& job, const std::string& file, bool is_new) {
  std::error_code ignored;
  std::filesystem::remove(ledger_path(), ignored);
  if (is_new) {
    std::filesystem::remove(metrics_path(), ignored);
    for (const auto& entry : std::filesystem::directory_iterator(path_ + "/logs", ignored)) {
      std::filesystem::remove(entry.path(), ignored);
    }
  }
  STARLING_RETURN_IF_ERROR(write_text(path_ + "/job.yaml", read_text(file)));
  STARLING_RETURN_IF_ERROR(write_text(path_ + "/settings", print_settings(job)));
  return set_state("running");
}

Status RunDirectory::set_state(const std::string& state, const std::string& scheduler) {
  state_.state = state;
  if (!scheduler.empty()) state_.scheduler = scheduler;
  return write_text(path_ + "/state",
                    fmt::format("job: {}\nprocess: {}\nscheduler: {}\nstate: {}\n", state_.job,
                                state_.process, state_.scheduler, state_.state));
}

std::string default_run_path(const std::string& job) { return fmt::format("{}/{}", kRuns, job); }

StatusOr<RunState> read_run_state(const std::string& path) {
  std::map<std::string, std::string> lines = lines_of(read_text(path + "/state"), ": ");
  if (lines.empty()) return not_found("{}: no job ran here", path);
  RunState out;
  out.job = lines["job"];
  out.scheduler = lines["scheduler"];
  out.state = lines["state"];
  out.process = std::atoll(lines["process"].c_str());
  return out;
}

bool is_run_held(const std::string& path) {
  const int lock = lock_file(lock_path(path), false);
  if (lock >= 0) ::close(lock);
  return lock == -1;
}

std::vector<std::string> held_runs() {
  std::vector<std::string> out;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(kRuns, ignored)) {
    if (is_run_held(entry.path().string())) out.push_back(entry.path().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string fixed_settings(const Job& job) {
  std::string out;
  for (const Setting& setting : job.settings) {
    if (!is_free(setting.path)) out += fmt::format("{}={}\n", setting.path, setting.value);
  }
  if (job.options.train.staleness != 0) return out;
  // Batches of synchronous jobs are dealt to ranks in turn.
  return out + fmt::format("cluster.trainers * train.threads={}\n",
                           job.options.cluster.trainers * job.options.train.threads);
}

Status check_resume(const std::string& before, const Job& now) {
  const std::map<std::string, std::string> was = lines_of(before, "=");
  std::map<std::string, std::string> is = lines_of(fixed_settings(now), "=");
  std::string changed;
  for (const auto& [key, value] : was) {
    if (is[key] != value) changed += fmt::format("\n  {} was {}, is {}", key, value, is[key]);
  }
  for (const auto& [key, value] : is) {
    if (!was.contains(key)) changed += fmt::format("\n  {} was not set, is {}", key, value);
  }
  if (changed.empty()) return absl::OkStatus();
  return failed_precondition(
      "a job that goes on from a cut must compute what it did; these keys have changed:{}\nSet "
      "them "
      "back, or start a new job from the tables of this one with --init-from",
      changed);
}

}  // namespace starling
