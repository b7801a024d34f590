// `starling trainer`: one trainer of a job.
#include <fmt/format.h>

#include "bin/beside.h"
#include "bin/process.h"
#include "bin/training.h"
#include "net/makers.h"

namespace starling {
namespace {

constexpr const char* kHelp =
    R"(usage: starling trainer --scheduler ADDRESS --job FILE [--set KEY=VALUE]... [--name NAME]

Runs one trainer of a job, with train.threads workers. The first to come starts the job, makes its cuts, evaluates and ends
it; when that one dies another does. A trainer that comes later joins in. Ends with status 0 when every sample has been
trained, or by Ctrl-C or SIGTERM, when it leaves and others go on with its work.
  --scheduler ADDRESS  HOST:PORT (by cluster.protocol), grpc://HOST:PORT or grpc++://HOST:PORT
  --name NAME          of this node, the same after a restart. Default: trainer-HOST-PROCESS
  --metrics FILE       where loss and AUC over time go, a JSON object a line
  --print-config       print every value and where it came from, and end
)";

constexpr Duration kStartPatience = seconds(60);
constexpr Duration kLook = milliseconds(200);

struct TrainerFlags {
  std::string scheduler;
  std::string name;
  std::string metrics;
};

StatusOr<int> serve(const Job& loaded, const TrainerFlags& flags, const std::string& job_file) {
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
  Metrics metrics;
  const std::unique_ptr<Network> network = make_network(std::move(net), log, metrics);
  const Deadline soon = Deadline::in(RealClock(), kStartPatience);
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<JobClient> client,
                            JobClient::join(*network, member, soon));
  STARLING_RETURN_IF_ERROR(client->wait_for_servers(1, soon));
  Display display;
  Training::Options options;
  options.job_file = job_file;
  options.metrics_path = flags.metrics;
  options.show = [](const RunProgress&) {};
  options.say = [&](const std::string& text) { display.say(text); };
  options.wait = [&] {
    return stop.came(kLook) ? Training::Asked::kLeave : Training::Asked::kNothing;
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
    fmt::print("{}", kHelp);
    return 0;
  }
  STARLING_ASSIGN_OR_RETURN(const Flags flags, take_flags(arguments));
  TrainerFlags mine;
  STARLING_ASSIGN_OR_RETURN(mine.scheduler, take_value(arguments, "--scheduler"));
  STARLING_ASSIGN_OR_RETURN(mine.name, take_value(arguments, "--name"));
  STARLING_ASSIGN_OR_RETURN(mine.metrics, take_value(arguments, "--metrics"));
  STARLING_RETURN_IF_ERROR(no_more(arguments, "trainer"));
  STARLING_ASSIGN_OR_RETURN(const Job job, load_job(flags));
  if (flags.print_config) {
    fmt::print("{}", print_settings(job));
    return 0;
  }
  return serve(job, mine, flags.job);
}

}  // namespace starling
