#include "bin/local_job.h"

#include "bin/process.h"
#include "net/makers.h"
#include "ps/cut_keeper.h"

namespace starling {
namespace {

Address inproc(const std::string& name) { return {.protocol = Protocol::kInproc, .host = name}; }

}  // namespace

StatusOr<std::unique_ptr<LocalJob>> LocalJob::start(const JobOptions& job, const Log& log,
                                                    Deadline deadline) {
  std::unique_ptr<LocalJob> local(new LocalJob());
  STARLING_ASSIGN_OR_RETURN(NetOptions net, net_options(job.trainer.net, job.cluster));
  const uint64_t incarnation = make_incarnation();
  net.identity = {.role = v1::ROLE_TRAINER, .incarnation = incarnation};
  local->network_ = make_network(std::move(net), log, local->metrics_);
  local->files_ = FileSystems::standard({.incarnation = Incarnation{incarnation}}, local->clock_);
  STARLING_RETURN_IF_ERROR(local->start_scheduler(job, incarnation, log));
  STARLING_RETURN_IF_ERROR(local->start_servers(job, log, deadline));
  return local;
}

Status LocalJob::start_scheduler(const JobOptions& job, uint64_t incarnation, const Log& log) {
  SchedulerServerOptions options;
  options.scheduler = scheduler_options(job);
  STARLING_ASSIGN_OR_RETURN(options.scheduler.first_cut, first_cut(*files_, job.checkpoint.path));
  options.incarnation = incarnation;
  STARLING_ASSIGN_OR_RETURN(options.listen, listen_addresses({}, job.scheduler.net, job.cluster));
  options.listen.insert(options.listen.begin(), inproc("scheduler"));
  cuts_ = std::make_unique<JobCuts>(*files_, Incarnation{incarnation},
                                    static_cast<uint32_t>(job.checkpoint.keep), log);
  STARLING_ASSIGN_OR_RETURN(std::unique_ptr<MemoryLedger> ledger, MemoryLedger::open(journal_));
  STARLING_ASSIGN_OR_RETURN(scheduler_, SchedulerServer::start(*network_, std::move(options),
                                                               std::move(ledger), cuts_.get()));
  return absl::OkStatus();
}

Status LocalJob::start_servers(const JobOptions& job, const Log& log, Deadline deadline) {
  for (int64_t i = 0; i < job.cluster.ps; ++i) {
    PsServerOptions options = ps_options(job);
    options.name = fmt::format("ps-{}", i);
    options.scheduler = scheduler();
    options.listen = {inproc(options.name)};
    options.files = files_.get();
    options.make_keeper = make_cut_keepers(*files_, {}, log);
    STARLING_ASSIGN_OR_RETURN(std::unique_ptr<PsServer> ps,
                              PsServer::start(*network_, std::move(options)));
    ps_.push_back(std::move(ps));
  }
  for (int64_t i = 0; i < job.cluster.hubs; ++i) {
    HubServerOptions options = hub_options(job);
    options.name = fmt::format("hub-{}", i);
    options.scheduler = scheduler();
    options.listen = {inproc(options.name)};
    options.hub = static_cast<uint32_t>(i);
    options.files = files_.get();
    STARLING_ASSIGN_OR_RETURN(std::unique_ptr<HubServer> hub,
                              HubServer::start(*network_, std::move(options)));
    hubs_.push_back(std::move(hub));
  }
  for (const auto& ps : ps_) STARLING_RETURN_IF_ERROR(ps->wait_joined(deadline));
  for (const auto& hub : hubs_) STARLING_RETURN_IF_ERROR(hub->wait_joined(deadline));
  return absl::OkStatus();
}

LocalJob::~LocalJob() {
  const Deadline deadline = Deadline::in(clock_, kRoleStopPatience);
  for (const auto& hub : hubs_) hub->stop(deadline).IgnoreError();
  for (const auto& ps : ps_) ps->stop(deadline).IgnoreError();
  hubs_.clear();
  ps_.clear();
  scheduler_.reset();
}

}  // namespace starling
