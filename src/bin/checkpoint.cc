// `starling checkpoint`: lists, shows, verifies and exports cuts, and takes a job back to one.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <ctime>

#include "bin/checkpoint_restore.h"
#include "bin/command.h"
#include "bin/process.h"
#include "ps/checkpoint_export.h"
#include "ps/manifest.h"
#include "store/file_systems.h"

namespace starling {
namespace {

constexpr const char* kCheckpointHelp =
    R"(usage: starling checkpoint ls PATH
       starling checkpoint show PATH [--cut NUMBER]
       starling checkpoint verify PATH [--cut NUMBER | --all]
       starling checkpoint export PATH --to DIRECTORY [--cut NUMBER] [--table NAME]... [--format text|csv|npy]
       starling checkpoint restore PATH --scheduler ADDRESS [--cut NUMBER] [--stay-frozen] [--timeout SECONDS]
                [--job FILE] [--set KEY=VALUE]...

PATH is a directory of cuts (the job's checkpoint.path) or one cut; a local path or hdfs://HOST:PORT/PATH.
  ls       every cut with its mode, rows and bytes; also what is damaged or was never finished
  show     what one cut holds: tables, variables, clocks, files
  verify   reads every byte of a cut and of all it builds on; status 1 and one line for each file that is damaged
  export   writes keys and weights, NAME.txt, NAME.csv, or NAME.keys.npy and NAME.weights.npy; a variable gives a row per element
  restore  takes the running job back to a cut: starts a new generation of it, has every ps read its part, whatever number
           of shards wrote it, and lets the job train. Hubs and trainers register again by themselves and go on at the
           clock of the cut
  --cut NUMBER  default: the newest whole cut
  --table NAME  a table or variable, as often as wanted; default: all of them
  --format F    text when not given
  --scheduler ADDRESS  HOST:PORT (by cluster.protocol), grpc://HOST:PORT or grpc++://HOST:PORT
  --stay-frozen        end before training starts; somebody sets the job to training
  --timeout SECONDS    of all of it; 3600 when not given
)";

const char* mode_of(const ckpt::Manifest& manifest) {
  return manifest.mode() == ckpt::MODE_FULL ? "full" : "increment";
}

const char* filter_of(const ckpt::Manifest& manifest) {
  switch (manifest.filter()) {
    case v1::SAVE_FILTER_DELTA:
      return "delta";
    case v1::SAVE_FILTER_BASE:
      return "base";
    case v1::SAVE_FILTER_DAILY:
      return "daily";
    default:
      return "all";
  }
}

struct Sum {
  uint64_t rows = 0;
  uint64_t bytes = 0;
};

Sum sum_of(const ckpt::Manifest& manifest, const std::string* table = nullptr) {
  Sum sum;
  for (const ckpt::File& file : manifest.files()) {
    if (table != nullptr && (file.table() != *table || table->empty())) continue;
    sum.rows += file.rows();
    sum.bytes += file.bytes();
  }
  return sum;
}

std::string time_of(int64_t modified_ms) {
  const std::time_t at = modified_ms / 1000;
  std::tm parts{};
  if (::gmtime_r(&at, &parts) == nullptr) return "-";
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

StatusOr<int> list(FileSystem& fs, const std::string& path) {
  STARLING_ASSIGN_OR_RETURN(const std::vector<CutEntry> entries, list_cuts(fs, path));
  fmt::print("{:>12}  {:<9}  {:>12}  {:<6}  {:>14}  {:>16}  {:>6}  {}\n", "cut", "mode", "base",
             "filter", "rows", "bytes", "files", "published");
  for (const CutEntry& entry : entries) {
    if (!entry.status.ok()) {
      const bool is_unfinished = entry.status.code() == StatusCode::kNotFound;
      fmt::print("{:>12}  {}\n", entry.cut_id,
                 is_unfinished ? "never finished" : fmt::format("{}", message_of(entry.status)));
      continue;
    }
    const ckpt::Manifest& manifest = entry.cut.manifest;
    const Sum sum = sum_of(manifest);
    fmt::print("{:>12}  {:<9}  {:>12}  {:<6}  {:>14}  {:>16}  {:>6}  {}{}\n", entry.cut_id,
               mode_of(manifest),
               manifest.base_cut() == 0 ? "-" : std::to_string(manifest.base_cut()),
               filter_of(manifest), sum.rows, sum.bytes, manifest.files_size(),
               time_of(entry.cut.modified_ms), is_whole(manifest) ? "" : "  (not a whole job)");
  }
  return 0;
}

void show(const Cut& cut) {
  const ckpt::Manifest& manifest = cut.manifest;
  const ckpt::ShardState& state = manifest.state();
  const Sum sum = sum_of(manifest);
  fmt::print("cut {} of job '{}' in {}\n", manifest.cut_id(), manifest.job(), cut.path);
  fmt::print("  published  {}\n", time_of(cut.modified_ms));
  fmt::print("  mode       {}{}\n", mode_of(manifest),
             manifest.base_cut() == 0 ? "" : fmt::format(" on cut {}", manifest.base_cut()));
  fmt::print("  filter     {}\n", filter_of(manifest));
  if (!manifest.names().empty()) fmt::print("  names      {}\n", fmt::join(manifest.names(), ", "));
  fmt::print("  generation {}, seed {}, step {}, clock {}\n", manifest.generation(),
             state.schema().seed(), state.step(),
             manifest.has_clock() ? std::to_string(manifest.clock()) : "none");
  fmt::print("  schema     {:016x}\n", state.schema_hash());
  fmt::print("  map        version {}, {} shards\n", manifest.map().version(),
             manifest.map().shards_size());
  fmt::print("  applied    {} watermarks, {} sessions, {} ranks\n", state.watermarks_size(),
             state.sessions_size(), state.clocks_size());
  fmt::print("  hubs       {} positions, {} work queues\n", manifest.positions_size(),
             manifest.queues_size());
  fmt::print("  in all     {} rows, {} bytes in {} files\n", sum.rows, sum.bytes,
             manifest.files_size());
  for (const v1::TableOptions& table : state.schema().tables()) {
    const Sum of_table = sum_of(manifest, &table.name());
    fmt::print("  table      {:<24} dim {:<5} {:<16} {:>14} rows {:>16} bytes\n", table.name(),
               table.dim(), table.optimizer().name(), of_table.rows, of_table.bytes);
  }
  for (const v1::DenseOptions& variable : state.schema().variables()) {
    fmt::print("  variable   {:<24} shape [{}]\n", variable.name(),
               fmt::join(variable.shape(), ", "));
  }
  for (const ckpt::File& file : manifest.files()) {
    fmt::print("  file       {} {} bytes {:016x}\n", file.name(), file.bytes(), file.xxh3());
  }
}

StatusOr<int> verify(FileSystem& fs, const std::vector<Cut>& cuts) {
  size_t damaged = 0;
  for (const Cut& cut : cuts) {
    STARLING_ASSIGN_OR_RETURN(const std::vector<std::string> problems, verify_cut(fs, cut));
    for (const std::string& problem : problems) fmt::print("DAMAGED {}\n", problem);
    if (problems.empty()) {
      fmt::print("cut {}: {} files, {} bytes, all as written\n", cut.manifest.cut_id(),
                 cut.manifest.files_size(), sum_of(cut.manifest).bytes);
    }
    damaged += problems.size();
  }
  return damaged == 0 ? 0 : 1;
}

StatusOr<int> verify_all(FileSystem& fs, const std::string& path) {
  STARLING_ASSIGN_OR_RETURN(const std::vector<CutEntry> entries, list_cuts(fs, path));
  std::vector<Cut> cuts;
  bool is_damaged = false;
  for (const CutEntry& entry : entries) {
    if (entry.status.ok()) cuts.push_back(entry.cut);
    if (entry.status.code() != StatusCode::kDataLoss) continue;
    fmt::print("DAMAGED {}\n", message_of(entry.status));
    is_damaged = true;
  }
  STARLING_ASSIGN_OR_RETURN(const int result, verify(fs, cuts));
  return is_damaged ? 1 : result;
}

StatusOr<int> restore(const Cut& cut, std::vector<std::string> arguments) {
  STARLING_ASSIGN_OR_RETURN(const Flags flags, take_flags(arguments));
  RestoreFlags mine;
  STARLING_ASSIGN_OR_RETURN(mine.scheduler, take_value(arguments, "--scheduler"));
  STARLING_ASSIGN_OR_RETURN(const std::string timeout, take_value(arguments, "--timeout"));
  mine.stays_frozen = take_switch(arguments, "--stay-frozen");
  STARLING_RETURN_IF_ERROR(no_more(arguments, "checkpoint"));
  if (mine.scheduler.empty()) return invalid_argument("restore: --scheduler ADDRESS is needed");
  STARLING_ASSIGN_OR_RETURN(mine.patience, parse_timeout(timeout, seconds(3600)));
  if (!is_whole(cut.manifest)) {
    return failed_precondition("restore: cut {} does not hold all of a job", cut.manifest.cut_id());
  }
  STARLING_ASSIGN_OR_RETURN(const Job job, load_job(flags));
  return restore_cut(cut, job.options, mine);
}

StatusOr<uint64_t> cut_number(const std::string& text) {
  if (text.empty()) return uint64_t{0};
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number == 0) {
    return invalid_argument("--cut {}: the number of a cut is needed", text);
  }
  return number;
}

}  // namespace

StatusOr<int> run_checkpoint(std::vector<std::string> arguments) {
  if (take_switch(arguments, "--help") || take_switch(arguments, "-h") || arguments.empty()) {
    fmt::print("{}", kCheckpointHelp);
    return 0;
  }
  const std::string action = arguments.front();
  arguments.erase(arguments.begin());
  STARLING_ASSIGN_OR_RETURN(const std::string cut_text, take_value(arguments, "--cut"));
  STARLING_ASSIGN_OR_RETURN(const std::string to, take_value(arguments, "--to"));
  STARLING_ASSIGN_OR_RETURN(const std::string format_name, take_value(arguments, "--format"));
  STARLING_ASSIGN_OR_RETURN(const auto tables, take_values(arguments, "--table"));
  const bool is_all = take_switch(arguments, "--all");
  if (arguments.empty()) return invalid_argument("{}: PATH is needed", action);
  const std::string path = arguments.front();
  arguments.erase(arguments.begin());
  if (action != "restore") STARLING_RETURN_IF_ERROR(no_more(arguments, "checkpoint"));
  STARLING_ASSIGN_OR_RETURN(const uint64_t number, cut_number(cut_text));
  const RealClock clock;
  const std::unique_ptr<FileSystems> fs =
      FileSystems::standard({.incarnation = Incarnation{make_incarnation()}}, clock);
  if (action == "ls") return list(*fs, path);
  if (action == "verify" && is_all) return verify_all(*fs, path);
  if (action != "show" && action != "verify" && action != "export" && action != "restore") {
    return invalid_argument("'{}' is none of ls, show, verify, export, restore", action);
  }
  STARLING_ASSIGN_OR_RETURN(const Cut cut, find_cut(*fs, path, number));
  if (action == "show") {
    show(cut);
    return 0;
  }
  if (action == "verify") {
    STARLING_ASSIGN_OR_RETURN(const std::vector<Cut> chain, chain_of(*fs, cut));
    return verify(*fs, chain);
  }
  if (action == "restore") return restore(cut, std::move(arguments));
  if (to.empty()) return invalid_argument("export: --to DIRECTORY is needed");
  STARLING_ASSIGN_OR_RETURN(const ExportFormat format,
                            export_format(format_name.empty() ? "text" : format_name));
  STARLING_ASSIGN_OR_RETURN(const auto exported, export_cut(*fs, cut, tables, format, to));
  for (const Exported& one : exported) {
    fmt::print("{}: {} rows in {}\n", one.name, one.rows, fmt::join(one.files, ", "));
  }
  return 0;
}

}  // namespace starling
