// `starling trainer`: one trainer of a job.
#include <fmt/format.h>

#include "bin/beside.h"
#include "bin/process.h"
#include "bin/run_directory.h"
#include "bin/training.h"
#include "net/makers.h"

namespace starling {
namespace {

constexpr const char* kTrainerHelp =
    R"(usage: starling trainer --scheduler ADDRESS --job FILE [--set KEY=VALUE]... [--name NAME]

Runs one trainer of a job, with train.threads workers. The first to come starts the job, makes its cuts, evaluates and ends
it; when that one dies another does. A trainer that comes later joins in. Ends with status 0 when every sample has been
trained, or by Ctrl-C or SIGTERM, when it leaves and others go on with its work.
  --scheduler ADDRESS  HOST:PORT (by cluster.protocol), grpc://HOST:PORT or grpc++://HOST:PORT
  --name NAME          of this node, the same after a restart. Default: trainer-HOST-PROCESS
  --run DIRECTORY      of the run: loss and AUC over time go to its metrics.jsonl
  --print-config       print every value and where it came from, and end
)";

constexpr Duration kStartPatience = seconds(60);
constexpr Duration kLook = milliseconds(200);

struct TrainerFlags {
  std::string scheduler;
  std::string name;
  std::string run;
  Flags job;
};

RunCommand command_of(const TrainerFlags& flags, const std::string& job) {
  const std::string run = flags.run == default_run_path(job) ? "" : flags.run;
  return {.job = flags.job, .run = run, .is_processes = true};
}

StatusOr<int> serve_trainer(const Job& loaded, const TrainerFlags& flags) {
  const StopSignal stop;
  const JobOptions& job = loaded.options;
  if (flags.scheduler.empty()) return invalid_argument("--scheduler ADDRESS is needed");
  STARLING_ASSIGN_OR_RETURN(NetOptions net, net_options(job.trainer.net, job.cluster));
  net.identity = {.role = v1::ROLE_TRAINER, .incarnation = make_incarnation()};
  STARLING_ASSIGN_OR_RETURN(const Log log, open_log(job.log, "trainer"));
  JobClient::Options member;
  STARLING_ASSIGN_OR_RETURN(member.scheduler, parse_address(flags.scheduler, job.cluster));
  member.role = v1::ROLE_TRAINER;
  member.name = flags.name.empty() ? default_node_name("trainer") : flags.name;
  member.workers = static_cast<uint32_t>(job.train.threads);
  member.lanes = static_cast<uint32_t>(job.trainer.lanes);
  Metrics metrics;
  const std::unique_ptr<Network> network = make_network(std::move(net), log, metrics);
  const Deadline soon = Deadline::in(RealClock(), kStartPatience);
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<JobClient> client,
                            JobClient::join(*network, member, soon));
  STARLING_RETURN_IF_ERROR(client->wait_for_servers(1, soon));
  Display display;
  Training::Options options;
  options.command = command_of(flags, job.name);
  if (!flags.run.empty()) options.metrics_path = metrics_path_of(flags.run);
  options.show = [](const RunProgress&) {};
  options.say = [&](const std::string& text) { display.say(text); };
  options.wait = [&] {
    return stop.came(kLook) ? Training::Asked::kLeave : Training::Asked::kNothing;
  };
  options.keep_dense = [&](DenseKeeper::Store store) {
    return DenseKeeper::start(*network, member.scheduler, member.name + "-dense", std::move(store));
  };
  Training training(job, *client, std::move(options));
  const StatusOr<Training::End> ended = training.run();
  client->leave(Deadline::in(RealClock(), seconds(5)));
  STARLING_RETURN_IF_ERROR(ended.status());
  return 0;
}

}  // namespace

StatusOr<int> trainer_main(std::vector<std::string> arguments) {
  if (take_switch(arguments, "--help") || take_switch(arguments, "-h")) {
    fmt::print("{}", kTrainerHelp);
    return 0;
  }
  TrainerFlags mine;
  STARLING_ASSIGN_OR_RETURN(mine.job, take_flags(arguments));
  STARLING_ASSIGN_OR_RETURN(mine.scheduler, take_value(arguments, "--scheduler"));
  STARLING_ASSIGN_OR_RETURN(mine.name, take_value(arguments, "--name"));
  STARLING_ASSIGN_OR_RETURN(mine.run, take_value(arguments, "--run"));
  STARLING_RETURN_IF_ERROR(no_more(arguments, "trainer"));
  STARLING_ASSIGN_OR_RETURN(const Job job, load_job(mine.job));
  if (mine.job.print_config) {
    fmt::print("{}", print_settings(job));
    return 0;
  }
  return serve_trainer(job, mine);
}

}  // namespace starling
