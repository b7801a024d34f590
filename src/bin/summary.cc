#include "bin/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <fstream>

#include "bin/process.h"
#include "store/file_systems.h"

namespace starling {
namespace {

constexpr size_t kSampleBytes = 1 << 20;
constexpr double kUnknownLine = 250;  // of files that cannot be looked into

// What `starling generate` left beside the test file; empty: these are other data.
std::string best_possible(const JobOptions& job) {
  if (job.data.test.empty()) return "";
  const std::string& file = job.data.test.front();
  const size_t slash = file.rfind('/');
  std::ifstream in((slash == std::string::npos ? "" : file.substr(0, slash + 1)) + "best_auc");
  std::string text;
  std::getline(in, text);
  return text.substr(0, 6);
}

// As a shell takes it.
std::string quoted(const std::string& word) {
  const bool is_plain = std::all_of(word.begin(), word.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || std::strchr("_-./=:,+@%", letter) != nullptr;
  });
  if (is_plain && !word.empty()) return word;
  std::string out = "'";
  for (const char letter : word) out += letter == '\'' ? "'\\''" : std::string(1, letter);
  return out + "'";
}

std::string sets_of(const Flags& flags) {
  std::string out;
  for (const std::string& set : flags.sets) out += " --set " + quoted(set);
  return out;
}

std::string megabytes(uint64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

std::string staleness_text(const JobOptions& job) {
  return job.train.staleness == kInfinite ? "inf" : std::to_string(job.train.staleness);
}

// A line per table, then the memory of all shards.
std::string tables_text(const JobOptions& job, const std::vector<v1::StatReply>& stats) {
  std::string out;
  uint64_t memory = 0;
  for (const v1::StatReply& stat : stats) memory += stat.memory_bytes();
  for (const TableSection& table : job.tables) {
    uint64_t rows = 0, pushes = 0;
    for (const v1::StatReply& stat : stats) {
      for (const v1::TableStat& one : stat.tables()) {
        if (one.name() != table.name) continue;
        rows += one.rows();
        pushes += one.pushes();
      }
    }
    out += fmt::format("\n  table {}: dim {}, {}, {} rows, {} updates", table.name, table.dim,
                       table.optimizer.empty() ? "default optimizer" : table.optimizer.name, rows,
                       pushes);
  }
  return out + fmt::format("\n  {} of memory on {} shards", megabytes(memory), stats.size());
}

}  // namespace

std::string RunCommand::train(bool as_processes) const {
  std::string out = fmt::format("starling train {}{}", quoted(job.job), sets_of(job));
  if (!run.empty()) out += " --run " + quoted(run);
  return as_processes ? out + " --processes" : out;
}

std::string RunCommand::evaluate(const std::string& cut) const {
  return fmt::format("starling eval {}{} --checkpoint {}", quoted(job.job), sets_of(job),
                     quoted(cut));
}

std::string start_text(const JobOptions& job, const ModelShape& shape,
                       const std::vector<v1::StatReply>& stats, bool is_resumed) {
  std::string out = fmt::format(
      "{} job '{}': model {} on {} fields ({} numbers wide) and {} dense values, {} workers, "
      "staleness {}",
      is_resumed ? "going on with" : "training", job.name, job.model.name, shape.fields.size(),
      shape.width(), shape.dense, job.cluster.trainers * job.train.threads, staleness_text(job));
  return out + fmt::format("\n  BLAS: {}", Trainer::blas()) + tables_text(job, stats);
}

std::string score_text(const Evaluation& scored) {
  std::string out = fmt::format("AUC {:.4f}  log loss {:.4f}  on {} samples held out", scored.auc,
                                scored.log_loss, scored.samples);
  if (scored.groups > 0) {
    out += fmt::format("\n  AUC {:.4f} inside of {} groups", scored.group_auc, scored.groups);
  }
  for (size_t i = 0; i < scored.more.size(); ++i) {
    out += fmt::format("\n  label {}: AUC {:.4f}  log loss {:.4f}", i + 2, scored.more[i].auc,
                       scored.more[i].log_loss);
  }
  return out;
}

std::string evaluation_json(const Evaluation& scored, double time_s, uint64_t steps) {
  const auto number = [](double value) {
    return std::isfinite(value) ? fmt::format("{:.9f}", value) : std::string("null");
  };
  const auto numbers = [&](const Evaluation& one) {
    std::string out = fmt::format(
        R"("auc": {}, "log_loss": {}, "accuracy": {}, "mae": {}, "rmse": {}, "calibration": {})",
        number(one.auc), number(one.log_loss), number(one.accuracy), number(one.mae),
        number(one.rmse), number(one.calibration));
    if (one.groups == 0) return out;
    return out +
           fmt::format(R"(, "groups": {}, "group_auc": {})", one.groups, number(one.group_auc));
  };
  std::string more;
  for (const Evaluation& one : scored.more) {
    more += fmt::format("{}{{{}}}", more.empty() ? "" : ", ", numbers(one));
  }
  if (!more.empty()) more = fmt::format(R"(, "more_labels": [{}])", more);
  return fmt::format(R"({{"time_s": {:.1f}, "evaluation": {{"steps": {}, "samples": {}, {}{}}}}})",
                     time_s, steps, scored.samples, numbers(scored), more);
}

std::string summary_text(const JobOptions& job, const TrainProgress& progress,
                         const RunSummary& summary) {
  const StepTimes& times = progress.times;
  std::string out;
  if (summary.batches_before > 0) {
    out =
        fmt::format("{} batches were trained before the cut; since then ", summary.batches_before);
  }
  out += fmt::format(
      "{} samples read, {} trained, {} skipped by rule\n"
      "{:.1f} s; of each worker: network {:.1f} s, rows to input {:.1f} s, dense variables "
      "{:.1f} s, pushing {:.1f} s",
      summary.samples_trained + summary.samples_skipped, summary.samples_trained,
      summary.samples_skipped, summary.time_s,
      times.computing / static_cast<double>(job.train.threads),
      times.gathering / static_cast<double>(job.train.threads),
      times.dense / static_cast<double>(job.train.threads),
      times.pushing / static_cast<double>(job.train.threads));
  out += fmt::format(
      "\nlookups ran {} clocks ahead of the slowest worker at most, {:.2f} on average; "
      "train.staleness is {}",
      progress.staleness_max, progress.staleness_mean, staleness_text(job));
  out += tables_text(job, summary.stats);
  if (const std::string best = best_possible(job); !best.empty() && !summary.score.empty()) {
    out += fmt::format("\nreached {}; no model can reach more than AUC {}", summary.score, best);
  }
  if (summary.cut.empty()) {
    out += "\nno checkpoint: the job has no checkpoint.path";
  } else {
    out += fmt::format("\ncheckpoint {}\nTrain on: {} --set data.epochs={}\nEvaluate: {}",
                       summary.cut, summary.command.resume(), job.data.epochs + 1,
                       summary.command.evaluate(summary.cut));
  }
  const bool other = !summary.command.is_processes;
  return out + fmt::format("\nThe same {}: {}", other ? "as processes" : "in one process",
                           summary.command.train(other));
}

double line_bytes(const std::vector<std::string>& patterns) {
  const RealClock clock;
  const std::unique_ptr<FileSystems> files =
      FileSystems::standard({.incarnation = Incarnation{make_incarnation()}}, clock);
  for (const std::string& pattern : patterns) {
    const StatusOr<std::vector<FileInfo>> found = files->list(pattern);
    if (!found.ok() || found->empty()) continue;
    const auto reader = files->open_read(found->front().url, {});
    if (!reader.ok()) continue;
    std::string text(kSampleBytes, '\0');
    const StatusOr<size_t> read = read_full(**reader, std::as_writable_bytes(std::span(text)));
    if (!read.ok() || *read == 0) continue;
    const auto lines = std::count(text.begin(), text.begin() + static_cast<int64_t>(*read), '\n');
    if (lines > 0) return static_cast<double>(*read) / static_cast<double>(lines);
  }
  return kUnknownLine;
}

}  // namespace starling
