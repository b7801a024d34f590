#include "bin/roles.h"

#include <algorithm>

#include "bin/process.h"
#include "hub/options.h"

namespace starling {

SchedulerOptions scheduler_options(const JobOptions& job) {
  SchedulerOptions options;
  options.job_name = job.name;
  options.seed = job.seed;
  options.staleness = staleness_of(job);
  options.checkpoint_path = job.checkpoint.path;
  options.lease = milliseconds(job.scheduler.lease_ms);
  // Joins and cuts go on with a beat, so a long lease is no reason for a slow one.
  options.heartbeat = std::min(options.lease / 5, SchedulerOptions().heartbeat);
  options.ps_expected = static_cast<uint32_t>(job.cluster.ps);
  options.hubs_expected = static_cast<uint32_t>(job.cluster.hubs);
  options.trainers_expected = static_cast<uint32_t>(job.cluster.trainers);
  return options;
}

PsServerOptions ps_options(const JobOptions& job) {
  PsServerOptions options;
  options.incarnation = make_incarnation();
  options.shards = static_cast<uint32_t>(job.cluster.shards);
  options.memory_bytes_max = static_cast<size_t>(job.ps.memory_max);
  options.staging_bytes_max = static_cast<size_t>(job.ps.staging_max);
  return options;
}

HubServerOptions hub_options(const JobOptions& job) {
  HubServerOptions options;
  options.incarnation = make_incarnation();
  options.tables = batch_tables(job);
  options.lanes = static_cast<uint32_t>(job.hub.lanes);
  options.threads = static_cast<uint32_t>(job.hub.readers);
  options.memory_bytes_max = static_cast<size_t>(job.hub.memory_max);
  options.hubs = static_cast<uint32_t>(job.cluster.hubs);
  return options;
}

std::string best_cuts_path(const std::string& path) { return path + "/best"; }

StatusOr<uint64_t> first_cut(FileSystem& files, const std::string& path) {
  if (path.empty()) return uint64_t{1};
  uint64_t newest = 0;
  for (const std::string& directory : {path, best_cuts_path(path)}) {
    const StatusOr<std::vector<FileInfo>> infos = files.list_directory(directory);
    if (infos.status().code() == StatusCode::kNotFound) continue;
    STARLING_RETURN_IF_ERROR(with_context(infos.status(), "checkpoint.path"));
    for (const FileInfo& info : *infos) newest = std::max(newest, id_of_cut_name(info.name()));
  }
  return newest + 1;
}

void JobCuts::commit(const FinishedCut& cut, Done done) {
  CutDraft draft;
  const v1::SaveOption& save = cut.record.cut().save();
  draft.path = save.path();
  draft.keep = cut.record.keep() != 0 ? cut.record.keep() : keep_;
  ckpt::Manifest& manifest = draft.manifest;
  manifest.set_cut_id(cut.record.cut().cut_id());
  manifest.set_job(cut.job.name());
  manifest.set_mode(save.mode() == v1::SAVE_MODE_FULL ? ckpt::MODE_FULL : ckpt::MODE_INCREMENTAL);
  manifest.set_filter(save.filter());
  *manifest.mutable_names() = save.names();
  manifest.set_base_cut(save.base_cut());
  manifest.set_generation(cut.job.generation());
  manifest.set_seed(cut.job.seed());
  if (cut.job.has_staleness()) manifest.set_staleness(cut.job.staleness());
  if (cut.record.cut().has_clock()) manifest.set_clock(cut.record.cut().clock());
  *manifest.mutable_map() = cut.map;
  for (const v1::WorkQueueInfo& queue : cut.queues) *manifest.add_queues() = queue;
  for (const ledger::CutReport& report : cut.record.reports()) {
    for (const v1::Watermark& mark : report.watermarks()) draft.watermarks.push_back(mark);
    if (!report.position().empty()) {
      ckpt::HubPosition* position = manifest.add_positions();
      position->set_hub(report.node());
      position->set_position(report.position());
    }
    if (report.phase() != v1::CUT_PHASE_WRITE) continue;
    for (const v1::SavedFile& file : report.written().files()) draft.files.push_back(file);
  }
  publisher_.commit(std::move(draft), std::move(done));
}

void JobCuts::discard(const FinishedCut& cut) {
  publisher_.discard(cut.record.cut().save().path(), cut.record.cut().cut_id());
}

}  // namespace starling
