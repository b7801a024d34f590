// `starling ps`: one parameter server of a job.
#include <fmt/format.h>

#include "bin/command.h"
#include "bin/process.h"
#include "bin/roles.h"
#include "net/makers.h"
#include "ps/cut_keeper.h"

namespace starling {
namespace {

constexpr const char* kPsHelp =
    R"(usage: starling ps --scheduler ADDRESS [--job FILE] [--set KEY=VALUE]... [--name NAME] [--listen ADDRESS]...

Runs one parameter server of a job: cluster.shards shards, each with its buckets of every table. Ends by Ctrl-C, SIGTERM
or the Stop RPC with status 0; with status 1 and the reason when the job fails, such as the name of a ps that died.
  --scheduler ADDRESS  HOST:PORT (by cluster.protocol), grpc://HOST:PORT or grpc++://HOST:PORT
  --name NAME          of this node, the same after a restart. Default: ps-HOST-PROCESS
  --listen ADDRESS     HOST:PORT, grpc://HOST:PORT or grpc++://HOST:PORT, as often as wanted; port 0: the kernel chooses.
                       Default: cluster.protocol at ps.net.listen
  --advertise HOST     the name by which others reach this machine, when it listens on all of its addresses
  --trace-dir PATH     where Profile writes its traces, too
  --print-config       print every value and where it came from, and end
The addresses are printed, one a line, when the scheduler has taken it in.
)";

struct PsFlags {
  std::string scheduler;
  std::string name;
  std::string advertise;
  std::string trace_path;
  std::vector<std::string> listen;
};

StatusOr<PsServerOptions> ps_server_options(const PsFlags& flags, const JobOptions& job) {
  PsServerOptions options = ps_options(job);
  options.name = flags.name.empty() ? default_node_name("ps") : flags.name;
  if (flags.scheduler.empty()) return invalid_argument("--scheduler ADDRESS is needed");
  STARLING_ASSIGN_OR_RETURN(options.scheduler, parse_address(flags.scheduler, job.cluster));
  STARLING_ASSIGN_OR_RETURN(options.listen,
                            listen_addresses(flags.listen, job.ps.net, job.cluster));
  options.advertise = flags.advertise;
  options.trace_path = flags.trace_path;
  return options;
}

StatusOr<int> serve_ps(const JobOptions& job, const PsFlags& flags) {
  const StopSignal stop;
  STARLING_ASSIGN_OR_RETURN(PsServerOptions options, ps_server_options(flags, job));
  STARLING_ASSIGN_OR_RETURN(NetOptions net, net_options(job.ps.net, job.cluster));
  net.identity = {.role = v1::ROLE_PS, .incarnation = options.incarnation};
  STARLING_ASSIGN_OR_RETURN(const Log log, open_log(job.log, "ps"));
  Metrics metrics;
  const std::unique_ptr<Network> network = make_network(std::move(net), log, metrics);
  const RealClock clock;
  const std::unique_ptr<FileSystems> files =
      FileSystems::standard({.incarnation = Incarnation{options.incarnation}}, clock);
  options.files = files.get();
  options.make_keeper = make_cut_keepers(*files, {}, log);
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<PsServer> server,
                            PsServer::start(*network, std::move(options)));
  bool is_told = false;
  const auto over = [&]() -> Status {
    if (!is_told && server->wait_joined(Deadline(clock.now())).ok()) {
      for (const Address& address : server->addresses()) fmt::print("{}\n", address.to_string());
      std::fflush(stdout);
      is_told = true;
    }
    if (const auto end = server->ended(); end.has_value()) {
      return end->status.ok() ? cancelled("stopped") : end->status;
    }
    return absl::OkStatus();
  };
  const Status ended = stop.wait(over);
  const auto end = server->ended();
  const Duration grace = end.has_value() ? end->grace : kRoleStopPatience;
  const Status stopped = server->stop(Deadline::in(clock, grace));
  if (!ended.ok() && ended.code() != StatusCode::kCancelled) return ended;
  STARLING_RETURN_IF_ERROR(stopped);
  return 0;
}

}  // namespace

StatusOr<int> run_ps(std::vector<std::string> arguments) {
  if (take_switch(arguments, "--help") || take_switch(arguments, "-h")) {
    fmt::print("{}", kPsHelp);
    return 0;
  }
  STARLING_ASSIGN_OR_RETURN(const Flags flags, take_flags(arguments));
  PsFlags mine;
  STARLING_ASSIGN_OR_RETURN(mine.scheduler, take_value(arguments, "--scheduler"));
  STARLING_ASSIGN_OR_RETURN(mine.name, take_value(arguments, "--name"));
  STARLING_ASSIGN_OR_RETURN(mine.advertise, take_value(arguments, "--advertise"));
  STARLING_ASSIGN_OR_RETURN(mine.trace_path, take_value(arguments, "--trace-dir"));
  STARLING_ASSIGN_OR_RETURN(mine.listen, take_values(arguments, "--listen"));
  STARLING_RETURN_IF_ERROR(no_more(arguments, "ps"));
  STARLING_ASSIGN_OR_RETURN(const Job job, load_job(flags));
  if (flags.print_config) {
    fmt::print("{}", print_settings(job));
    return 0;
  }
  return serve_ps(job.options, mine);
}

}  // namespace starling
