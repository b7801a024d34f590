// `starling train`: a whole job, in this process or as processes of this machine.
#include <fmt/format.h>

#include "bin/beside.h"
#include "bin/launch.h"
#include "bin/local_job.h"
#include "bin/processes.h"
#include "bin/training.h"

namespace starling {
namespace {

constexpr const char* kTrainHelp =
    R"(usage: starling train JOB.yaml [--set KEY=VALUE]... [--processes] [--resume | --fresh | --init-from PATH]

Runs a whole job: scheduler, parameter servers, hubs and a trainer with train.threads workers, all in this process. Shows
the progress, evaluates on data.test after each epoch, and ends with status 0 when every sample has been trained. Ctrl-C or
SIGTERM stops it with a checkpoint (status 130), a second one at once.
  --processes       every role is a process of this machine, as often as cluster.* says
  --resume          go on from the newest cut in checkpoint.path
  --fresh           start from the beginning though checkpoint.path has cuts
  --init-from PATH  start a new job with the tables of a cut (or of the newest one in PATH)
  --run DIRECTORY   logs, metrics.jsonl and the job as it ran. Default: runs/ and the job's name
  --print-config    print every value and where it came from, and end
)";

constexpr Duration kStartPatience = seconds(60);
constexpr Duration kRestorePatience = seconds(3600);
constexpr Duration kLook = milliseconds(200);
constexpr int kStopped = 130;

StatusOr<int> train_here(Launch& launch, const StopSignal& stop) {
  JobOptions& job = launch.job.options;
  // All trainers of the job are this one.
  job.train.threads *= std::exchange(job.cluster.trainers, 1);
  LogSection to = job.log;
  if (to.file.empty()) to.file = launch.run.log_path("train");
  STARLING_ASSIGN_OR_RETURN(const Log log, open_log(to, "train"));
  const RealClock clock;
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<LocalJob> local,
                            LocalJob::start(job, log, Deadline::in(clock, kStartPatience)));
  STARLING_RETURN_IF_ERROR(launch.run.set_state("running", local->scheduler_outside().to_string()));
  STARLING_RETURN_IF_ERROR(restore_launch(local->network(), local->scheduler(), launch,
                                          Deadline::in(clock, kRestorePatience)));
  JobClient::Options member;
  member.scheduler = local->scheduler();
  member.role = v1::ROLE_TRAINER;
  member.name = "trainer-0";
  member.workers = static_cast<uint32_t>(job.train.threads);
  member.lanes = static_cast<uint32_t>(job.trainer.lanes);
  const Deadline soon = Deadline::in(clock, kStartPatience);
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<JobClient> client,
                            JobClient::join(local->network(), member, soon));
  STARLING_RETURN_IF_ERROR(client->wait_for_servers(static_cast<size_t>(job.cluster.hubs), soon));
  Display display;
  Training::Options options;
  options.command = {.job = launch.flags.job, .run = launch.flags.run};
  options.metrics_path = launch.run.metrics_path();
  options.show = [&](const RunProgress& progress) { display.show(progress); };
  options.say = [&](const std::string& text) { display.say(text); };
  options.wait = [&] {
    if (!stop.came(kLook)) return Training::Asked::kNothing;
    stop.release();
    return Training::Asked::kSaveAndStop;
  };
  options.keep_dense = [&](DenseKeeper::Store store) {
    return DenseKeeper::start(local->network(), local->scheduler(), member.name + "-dense",
                              std::move(store));
  };
  Training training(job, *client, std::move(options));
  STARLING_ASSIGN_OR_RETURN(const Training::End end, training.run());
  return end == Training::End::kDone ? 0 : kStopped;
}

StatusOr<int> train(LaunchFlags flags, Job job, bool in_processes) {
  const StopSignal stop;
  STARLING_ASSIGN_OR_RETURN(Launch launch, prepare_launch(std::move(flags), std::move(job)));
  if (in_processes) {
    STARLING_ASSIGN_OR_RETURN(const std::string program, program_beside("starling"));
    return Processes(launch, stop, program).run();
  }
  StatusOr<int> result = train_here(launch, stop);
  launch.run.set_state(!result.ok() ? "failed" : *result == 0 ? "done" : "stopped").IgnoreError();
  return result;
}

}  // namespace

StatusOr<int> train_main(std::vector<std::string> arguments) {
  if (take_switch(arguments, "--help") || take_switch(arguments, "-h")) {
    fmt::print("{}", kTrainHelp);
    return 0;
  }
  LaunchFlags flags;
  STARLING_ASSIGN_OR_RETURN(flags.job, take_flags(arguments));
  const bool in_processes = take_switch(arguments, "--processes");
  flags.resumes = take_switch(arguments, "--resume");
  flags.is_fresh = take_switch(arguments, "--fresh");
  STARLING_ASSIGN_OR_RETURN(flags.init_from, take_value(arguments, "--init-from"));
  STARLING_ASSIGN_OR_RETURN(flags.run, take_value(arguments, "--run"));
  if (flags.job.job.empty() && !arguments.empty()) {
    flags.job.job = arguments.front();
    arguments.erase(arguments.begin());
  }
  STARLING_RETURN_IF_ERROR(no_more(arguments, "train"));
  if (flags.job.job.empty())
    return invalid_argument("a job file is needed; see starling train --help");
  STARLING_ASSIGN_OR_RETURN(Job job, load_job(flags.job));
  if (flags.job.print_config) {
    fmt::print("{}", print_settings(job));
    return 0;
  }
  return train(std::move(flags), std::move(job), in_processes);
}

}  // namespace starling
