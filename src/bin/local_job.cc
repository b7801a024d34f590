#include "bin/local_job.h"

#include "bin/process.h"
#include "hub/options.h"
#include "net/makers.h"

namespace starling {
namespace {

constexpr Duration kStopPatience = seconds(5);

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
  STARLING_RETURN_IF_ERROR(local->start_servers(job, deadline));
  STARLING_RETURN_IF_ERROR(local->start_trainer(job, deadline));
  return local;
}

Status LocalJob::start_servers(const JobOptions& job, Deadline deadline) {
  SchedulerServerOptions scheduler;
  scheduler.scheduler.job_name = job.name;
  scheduler.scheduler.seed = job.seed;
  scheduler.scheduler.staleness = staleness_of(job);
  scheduler.scheduler.checkpoint_path = job.checkpoint.path;
  scheduler.scheduler.ps_expected = static_cast<uint32_t>(job.cluster.ps);
  scheduler.scheduler.hubs_expected = static_cast<uint32_t>(job.cluster.hubs);
  scheduler.scheduler.trainers_expected = 1;
  scheduler.listen = {inproc("scheduler")};
  STARLING_ASSIGN_OR_RETURN(std::unique_ptr<MemoryLedger> ledger, MemoryLedger::open(journal_));
  STARLING_ASSIGN_OR_RETURN(scheduler_, SchedulerServer::start(*network_, std::move(scheduler),
                                                               std::move(ledger), nullptr));
  for (int64_t i = 0; i < job.cluster.ps; ++i) {
    PsServerOptions options;
    options.name = fmt::format("ps-{}", i);
    options.scheduler = scheduler_->addresses().front();
    options.listen = {inproc(options.name)};
    options.incarnation = make_incarnation();
    options.shards = static_cast<uint32_t>(job.cluster.shards);
    options.memory_bytes_max = static_cast<size_t>(job.ps.memory_max);
    options.staging_bytes_max = static_cast<size_t>(job.ps.staging_max);
    options.files = files_.get();
    STARLING_ASSIGN_OR_RETURN(std::unique_ptr<PsServer> ps,
                              PsServer::start(*network_, std::move(options)));
    ps_.push_back(std::move(ps));
  }
  for (int64_t i = 0; i < job.cluster.hubs; ++i) {
    HubServerOptions options;
    options.name = fmt::format("hub-{}", i);
    options.scheduler = scheduler_->addresses().front();
    options.listen = {inproc(options.name)};
    options.incarnation = make_incarnation();
    options.tables = batch_tables(job);
    options.threads = static_cast<uint32_t>(job.hub.readers);
    options.memory_bytes_max = static_cast<size_t>(job.hub.memory_max);
    options.hub = static_cast<uint32_t>(i);
    options.hubs = static_cast<uint32_t>(job.cluster.hubs);
    options.files = files_.get();
    STARLING_ASSIGN_OR_RETURN(std::unique_ptr<HubServer> hub,
                              HubServer::start(*network_, std::move(options)));
    hubs_.push_back(std::move(hub));
  }
  for (const auto& ps : ps_) STARLING_RETURN_IF_ERROR(ps->wait_joined(deadline));
  for (const auto& hub : hubs_) STARLING_RETURN_IF_ERROR(hub->wait_joined(deadline));
  return absl::OkStatus();
}

Status LocalJob::start_trainer(const JobOptions& job, Deadline deadline) {
  lane_ = network_->make_lane("trainer", 0);
  SchedulerClientOptions options;
  options.scheduler = scheduler_->addresses().front();
  options.role = v1::ROLE_TRAINER;
  options.name = "trainer-0";
  options.incarnation = make_incarnation();
  options.workers = static_cast<uint32_t>(job.train.threads);
  scheduler_client_ = std::make_unique<SchedulerClient>(*network_, lane_, options, this);
  PsClientOptions to_ps;
  to_ps.role = v1::ROLE_TRAINER;
  to_ps.incarnation = options.incarnation;
  ps_client_ = std::make_unique<PsClient>(*network_, lane_, to_ps, scheduler_client_.get());
  HubClientOptions to_hubs;
  to_hubs.incarnation = options.incarnation;
  hub_client_ = std::make_unique<HubClient>(*network_, lane_, to_hubs);
  STARLING_ASSIGN_OR_RETURN(registered_, scheduler_client_->join_wait(deadline));
  ps_client_->joined(registered_);
  hub_client_->joined(registered_);
  STARLING_RETURN_IF_ERROR(
      hub_client_->wait_for_hubs(static_cast<size_t>(job.cluster.hubs), deadline).status());
  return ps_client_->wait_for_map(deadline).status();
}

void LocalJob::on_event(const v1::Event& event) {
  ps_client_->on_event(event);
  hub_client_->on_event(event);
}

LocalJob::~LocalJob() {
  const Deadline deadline = Deadline::in(clock_, kStopPatience);
  for (const auto& hub : hubs_) hub->stop(deadline).IgnoreError();
  for (const auto& ps : ps_) ps->stop(deadline).IgnoreError();
  if (lane_ != nullptr) lane_->stop();
  hub_client_.reset();
  ps_client_.reset();
  scheduler_client_.reset();
  hubs_.clear();
  ps_.clear();
  scheduler_.reset();
}

}  // namespace starling
