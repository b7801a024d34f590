// `starling scheduler`: the scheduler of one job.
#include <fmt/format.h>

#include "bin/command.h"
#include "bin/process.h"
#include "bin/roles.h"
#include "net/makers.h"
#include "scheduler/file_ledger.h"
#include "scheduler/memory_ledger.h"
#include "scheduler/server.h"

namespace starling {
namespace {

constexpr const char* kSchedulerHelp =
    R"(usage: starling scheduler [--job FILE] [--set KEY=VALUE]... [--listen ADDRESS]...

Runs the scheduler of a job: who is in it, who owns which bucket, where the work is. Ends by Ctrl-C or SIGTERM.
  --listen ADDRESS  HOST:PORT (by cluster.protocol), grpc://HOST:PORT or grpc++://HOST:PORT, as often as wanted; port 0:
                    the kernel chooses.
                    Default: cluster.protocol at scheduler.net.listen
  --print-config    print every value and where it came from, and end
The addresses are printed, one a line, when it is ready. With scheduler.ledger=FILE a scheduler that was killed goes on
where it was; without it the job is lost with the process.
)";

StatusOr<int> serve_scheduler(const JobOptions& job, const std::vector<Address>& listen) {
  const StopSignal stop;
  STARLING_ASSIGN_OR_RETURN(NetOptions net, net_options(job.scheduler.net, job.cluster));
  SchedulerServerOptions options;
  options.scheduler = scheduler_options(job);
  options.listen = listen;
  options.incarnation = make_incarnation();
  net.identity = {.role = v1::ROLE_SCHEDULER, .incarnation = options.incarnation};
  STARLING_ASSIGN_OR_RETURN(const Log log, open_log(job.log, "scheduler"));
  Metrics metrics;
  const std::unique_ptr<Network> network = make_network(std::move(net), log, metrics);
  const RealClock clock;
  const std::unique_ptr<FileSystems> files =
      FileSystems::standard({.incarnation = Incarnation{options.incarnation}}, clock);
  STARLING_ASSIGN_OR_RETURN(options.scheduler.first_cut, first_cut(*files, job.checkpoint.path));
  JobCuts cuts(*files, Incarnation{options.incarnation}, static_cast<uint32_t>(job.checkpoint.keep),
               log);
  MemoryJournal journal;
  std::unique_ptr<Ledger> ledger;
  if (job.scheduler.ledger.empty()) {
    log.warning("no_ledger", {{"means", "the job is lost when this process ends"}});
    STARLING_ASSIGN_OR_RETURN(ledger, MemoryLedger::open(journal));
  } else {
    STARLING_ASSIGN_OR_RETURN(ledger, FileLedger::open(*files, job.scheduler.ledger));
  }
  STARLING_ASSIGN_OR_RETURN(
      const std::unique_ptr<SchedulerServer> server,
      SchedulerServer::start(*network, std::move(options), std::move(ledger), &cuts));
  for (const Address& address : server->addresses()) fmt::print("{}\n", address.to_string());
  std::fflush(stdout);
  const Status ended = stop.wait([&server] { return server->failure(); });
  const Status stopped = server->stop(Deadline::in(clock, kRoleStopPatience));
  STARLING_RETURN_IF_ERROR(ended);
  STARLING_RETURN_IF_ERROR(stopped);
  return 0;
}

}  // namespace

StatusOr<int> run_scheduler(std::vector<std::string> arguments) {
  if (take_switch(arguments, "--help") || take_switch(arguments, "-h")) {
    fmt::print("{}", kSchedulerHelp);
    return 0;
  }
  STARLING_ASSIGN_OR_RETURN(const Flags flags, take_flags(arguments));
  STARLING_ASSIGN_OR_RETURN(const auto listen, take_values(arguments, "--listen"));
  STARLING_RETURN_IF_ERROR(no_more(arguments, "scheduler"));
  STARLING_ASSIGN_OR_RETURN(const Job job, load_job(flags));
  if (flags.print_config) {
    fmt::print("{}", print_settings(job));
    return 0;
  }
  STARLING_ASSIGN_OR_RETURN(
      const auto addresses,
      listen_addresses(listen, job.options.scheduler.net, job.options.cluster));
  return serve_scheduler(job.options, addresses);
}

}  // namespace starling
