// `starling hub`: one hub of a job.
#include <fmt/format.h>

#include <charconv>

#include "bin/command.h"
#include "bin/process.h"
#include "bin/roles.h"
#include "net/makers.h"

namespace starling {
namespace {

constexpr const char* kHubHelp =
    R"(usage: starling hub --scheduler ADDRESS --job FILE [--set KEY=VALUE]... [--name NAME] [--listen ADDRESS]...

Runs one hub of a job: it reads the samples that trainers ask for, feeds their keys to the shards and leases batches to
trainers. Ends by Ctrl-C, SIGTERM or the end of the job with status 0 and the account of every dataset; with status 1
and the reason when the job fails.
  --scheduler ADDRESS  HOST:PORT (by cluster.protocol), grpc://HOST:PORT or grpc++://HOST:PORT
  --name NAME          of this node, the same after a restart. Default: hub-HOST-PROCESS
  --index NUMBER       which of the cluster.hubs hubs it is, from 0. Default: 0; synchronous jobs with several hubs need it
  --listen ADDRESS     grpc://HOST:PORT or grpc++://HOST:PORT, as often as wanted; port 0: the kernel chooses.
                       Default: cluster.protocol at hub.net.listen
  --advertise HOST     the name by which others reach this machine, when it listens on all of its addresses
  --print-config       print every value and where it came from, and end
The addresses are printed, one a line, when the scheduler has taken it in.
)";

struct HubFlags {
  std::string scheduler;
  std::string name;
  std::string index;
  std::string advertise;
  std::vector<std::string> listen;
};

StatusOr<HubServerOptions> hub_server_options(const HubFlags& flags, const JobOptions& job) {
  HubServerOptions options = hub_options(job);
  options.name = flags.name.empty() ? default_node_name("hub") : flags.name;
  if (flags.scheduler.empty()) return invalid_argument("--scheduler ADDRESS is needed");
  STARLING_ASSIGN_OR_RETURN(options.scheduler, parse_address(flags.scheduler, job.cluster));
  STARLING_ASSIGN_OR_RETURN(options.listen,
                            listen_addresses(flags.listen, job.hub.net, job.cluster));
  options.advertise = flags.advertise;
  if (!flags.index.empty()) {
    const char* end = flags.index.data() + flags.index.size();
    const auto [at, error] = std::from_chars(flags.index.data(), end, options.hub);
    if (error != std::errc() || at != end) {
      return invalid_argument("--index is '{}', a number is needed", flags.index);
    }
  }
  return options;
}

StatusOr<int> serve_hub(const JobOptions& job, const HubFlags& flags) {
  const StopSignal stop;
  STARLING_ASSIGN_OR_RETURN(HubServerOptions options, hub_server_options(flags, job));
  STARLING_ASSIGN_OR_RETURN(NetOptions net, net_options(job.hub.net, job.cluster));
  net.identity = {.role = v1::ROLE_HUB, .incarnation = options.incarnation};
  STARLING_ASSIGN_OR_RETURN(const Log log, open_log(job.log, "hub"));
  Metrics metrics;
  const std::unique_ptr<Network> network = make_network(std::move(net), log, metrics);
  const RealClock clock;
  const std::unique_ptr<FileSystems> files =
      FileSystems::standard({.incarnation = Incarnation{options.incarnation}}, clock);
  options.files = files.get();
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<HubServer> server,
                            HubServer::start(*network, std::move(options)));
  bool is_told = false;
  const auto over = [&]() -> Status {
    if (!is_told && server->wait_joined(Deadline(clock.now())).ok()) {
      for (const Address& address : server->addresses()) fmt::print("{}\n", address.to_string());
      std::fflush(stdout);
      is_told = true;
    }
    if (const auto end = server->ended(); end.has_value()) {
      return end->ok() ? cancelled("the job is done") : *end;
    }
    return absl::OkStatus();
  };
  const Status ended = stop.wait(over);
  fmt::print(stderr, "{}", server->progress());
  const Status stopped = server->stop(Deadline::in(clock, kRoleStopPatience));
  if (!ended.ok() && ended.code() != StatusCode::kCancelled) return ended;
  STARLING_RETURN_IF_ERROR(stopped);
  return 0;
}

}  // namespace

StatusOr<int> run_hub(std::vector<std::string> arguments) {
  if (take_switch(arguments, "--help") || take_switch(arguments, "-h")) {
    fmt::print("{}", kHubHelp);
    return 0;
  }
  STARLING_ASSIGN_OR_RETURN(const Flags flags, take_flags(arguments));
  HubFlags mine;
  STARLING_ASSIGN_OR_RETURN(mine.scheduler, take_value(arguments, "--scheduler"));
  STARLING_ASSIGN_OR_RETURN(mine.name, take_value(arguments, "--name"));
  STARLING_ASSIGN_OR_RETURN(mine.index, take_value(arguments, "--index"));
  STARLING_ASSIGN_OR_RETURN(mine.advertise, take_value(arguments, "--advertise"));
  STARLING_ASSIGN_OR_RETURN(mine.listen, take_values(arguments, "--listen"));
  STARLING_RETURN_IF_ERROR(no_more(arguments, "hub"));
  STARLING_ASSIGN_OR_RETURN(const Job job, load_job(flags));
  if (flags.print_config) {
    fmt::print("{}", print_settings(job));
    return 0;
  }
  return serve_hub(job.options, mine);
}

}  // namespace starling
