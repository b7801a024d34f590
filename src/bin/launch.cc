#include "bin/launch.h"

#include <algorithm>
#include <set>

#include "bin/process.h"
#include "hub/options.h"
#include "store/file_systems.h"
#include "trainer/trainer.h"

namespace starling {
namespace {

constexpr Duration kLeavePatience = seconds(5);

std::string settings_path(const JobOptions& job) { return job.checkpoint.path + "/settings"; }

StatusOr<Cut> find_resume(FileSystem& files, const Job& job) {
  const std::string& path = job.options.checkpoint.path;
  if (path.empty()) return invalid_argument("--resume: the job has no checkpoint.path");
  StatusOr<Cut> cut = find_cut(files, path, 0);
  if (cut.status().code() == StatusCode::kNotFound) {
    return not_found("--resume: {} has no cut to go on from; start without --resume", path);
  }
  STARLING_RETURN_IF_ERROR(cut.status());
  const StatusOr<std::string> before = read_file(files, settings_path(job.options));
  // Cuts that were made by hand have none; the tables are compared in any case.
  if (before.status().code() == StatusCode::kNotFound) return cut;
  STARLING_RETURN_IF_ERROR(before.status());
  STARLING_RETURN_IF_ERROR(check_resume(*before, job));
  return cut;
}

Status check_fresh(FileSystem& files, const Job& job, const LaunchFlags& flags) {
  const std::string& path = job.options.checkpoint.path;
  if (path.empty() || flags.is_fresh) return absl::OkStatus();
  const StatusOr<Cut> old = find_cut(files, path, 0);
  if (old.status().code() == StatusCode::kNotFound) return absl::OkStatus();
  STARLING_RETURN_IF_ERROR(old.status());
  return failed_precondition(
      "{} has cuts of an earlier run, the newest is {}. Go on from it: --resume. Start again, with "
      "its cuts in the place of these: --fresh. Keep both: another checkpoint.path",
      path, name_in_directory(old->path));
}

// The names that the cut and the job have both.
std::vector<std::string> shared_names(const v1::CreateOption& job, const v1::CreateOption& cut) {
  std::set<std::string> mine;
  for (const v1::TableOptions& table : job.tables()) mine.insert(table.name());
  for (const v1::DenseOptions& variable : job.variables()) mine.insert(variable.name());
  std::vector<std::string> out;
  for (const v1::TableOptions& table : cut.tables()) {
    if (mine.contains(table.name())) out.push_back(table.name());
  }
  for (const v1::DenseOptions& variable : cut.variables()) {
    if (mine.contains(variable.name())) out.push_back(variable.name());
  }
  return out;
}

// A new job with the tables and variables of another's cut, as far as both have them.
Status init_job(JobClient& client, const Cut& cut, const JobOptions& job, Deadline deadline) {
  STARLING_ASSIGN_OR_RETURN(const v1::StartSampleOption dataset, train_dataset(job));
  STARLING_RETURN_IF_ERROR(
      client.wait_for_servers(static_cast<size_t>(job.cluster.hubs), deadline));
  STARLING_ASSIGN_OR_RETURN(const v1::StartSampleReply told,
                            client.hubs().start(dataset, deadline));
  RestoreJob restore;
  STARLING_ASSIGN_OR_RETURN(restore.schema, Trainer::schema_of(job, told));
  restore.restore.set_path(cut.path);
  restore.restore.set_cut_id(cut.manifest.cut_id());
  restore.restore.set_partial(true);
  const std::vector<std::string> names =
      shared_names(restore.schema, cut.manifest.state().schema());
  if (names.empty()) {
    return failed_precondition("--init-from: {} has no table of this job", cut.path);
  }
  for (const std::string& name : names) restore.restore.add_names(name);
  restore.freeze = Trainer::freeze_of(job);
  restore.trains = false;
  STARLING_ASSIGN_OR_RETURN(const RestoredJob restored,
                            restore_job(client.scheduler(), client.ps(), restore, deadline));
  fmt::print("took {} rows of {} from {}\n", restored.read.rows(), names.size(), cut.path);
  for (const std::string& left : restored.read.left_out()) fmt::print("  left out: {}\n", left);
  std::fflush(stdout);
  return absl::OkStatus();
}

}  // namespace

StatusOr<Launch> prepare_launch(LaunchFlags flags, Job job) {
  const RealClock clock;
  const std::unique_ptr<FileSystems> files =
      FileSystems::standard({.incarnation = Incarnation{make_incarnation()}}, clock);
  if (flags.resumes && !flags.init_from.empty()) {
    return invalid_argument("--resume goes on with a job, --init-from starts a new one; give one");
  }
  const std::string path = flags.run.empty() ? default_run_path(job.options.name) : flags.run;
  STARLING_ASSIGN_OR_RETURN(RunDirectory run, RunDirectory::open(path, job.options.name));
  std::optional<Cut> cut;
  if (flags.resumes) {
    STARLING_ASSIGN_OR_RETURN(cut, find_resume(*files, job));
  } else {
    STARLING_RETURN_IF_ERROR(check_fresh(*files, job, flags));
  }
  if (!flags.init_from.empty()) {
    STARLING_ASSIGN_OR_RETURN(cut, find_cut(*files, flags.init_from, 0));
  }
  STARLING_RETURN_IF_ERROR(run.begin(job, flags.job.job, !flags.resumes));
  if (!job.options.checkpoint.path.empty()) {
    STARLING_RETURN_IF_ERROR(with_context(
        write_file(*files, settings_path(job.options), fixed_settings(job)), "checkpoint.path"));
  }
  return Launch{.flags = std::move(flags),
                .job = std::move(job),
                .run = std::move(run),
                .cut = std::move(cut)};
}

Status restore_launch(Network& network, const Address& scheduler, const Launch& launch,
                      Deadline deadline) {
  if (!launch.cut.has_value()) return absl::OkStatus();
  JobClient::Options options;
  options.scheduler = scheduler;
  options.name = fmt::format("restore-{:016x}", make_incarnation());
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<JobClient> client,
                            JobClient::join(network, options, deadline));
  const JobOptions& job = launch.job.options;
  Status restored = launch.flags.resumes
                        ? resume_job(*client, *launch.cut, job, false, deadline).status()
                        : init_job(*client, *launch.cut, job, deadline);
  client->leave(Deadline::in(RealClock(), kLeavePatience));
  return restored;
}

}  // namespace starling
