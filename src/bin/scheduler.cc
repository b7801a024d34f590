// `starling scheduler`: the scheduler of one job.
#include <fmt/format.h>

#include "bin/command.h"
#include "bin/process.h"
#include "net/makers.h"
#include "ps/cut_publisher.h"
#include "scheduler/file_ledger.h"
#include "scheduler/memory_ledger.h"
#include "scheduler/server.h"
#include "store/file_systems.h"

namespace starling {
namespace {

constexpr const char* kHelp =
    R"(usage: starling scheduler [--job FILE] [--set KEY=VALUE]... [--listen ADDRESS]...

Runs the scheduler of a job: who is in it, who owns which bucket, where the work is. Ends by Ctrl-C or SIGTERM.
  --listen ADDRESS  HOST:PORT (by cluster.protocol), grpc://HOST:PORT or grpc++://HOST:PORT, as often as wanted; port 0:
                    the kernel chooses.
                    Default: cluster.protocol at scheduler.net.listen
  --print-config    print every value and where it came from, and end
The addresses are printed, one a line, when it is ready. With scheduler.ledger=FILE a scheduler that was killed goes on
where it was; without it the job is lost with the process.
)";

constexpr Duration kStopPatience = seconds(5);

// Hands what the scheduler knows of a finished cut to the one who knows the format.
class CutsByPublisher final : public CutWriter {
 public:
  CutsByPublisher(CutPublisher& publisher, uint32_t keep) : publisher_(publisher), keep_(keep) {}

  void commit(const FinishedCut& cut, Done done) override {
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
  void discard(const FinishedCut& cut) override {
    publisher_.discard(cut.record.cut().save().path(), cut.record.cut().cut_id());
  }

 private:
  CutPublisher& publisher_;
  const uint32_t keep_;
};

SchedulerOptions scheduler_options(const JobOptions& job) {
  SchedulerOptions options;
  options.job_name = job.name;
  options.seed = job.seed;
  options.staleness = staleness_of(job);
  options.checkpoint_path = job.checkpoint.path;
  options.lease = milliseconds(job.scheduler.lease_ms);
  options.heartbeat = options.lease / 5;
  options.ps_expected = static_cast<uint32_t>(job.cluster.ps);
  options.hubs_expected = static_cast<uint32_t>(job.cluster.hubs);
  options.trainers_expected = static_cast<uint32_t>(job.cluster.trainers);
  return options;
}

// Numbers of cuts are unique in a path, whatever ledgers the job had.
StatusOr<uint64_t> first_cut(FileSystem& files, const std::string& path) {
  if (path.empty()) return uint64_t{1};
  const StatusOr<std::vector<FileInfo>> infos = files.list_directory(path);
  if (infos.status().code() == StatusCode::kNotFound) return uint64_t{1};
  STARLING_RETURN_IF_ERROR(with_context(infos.status(), "checkpoint.path"));
  uint64_t newest = 0;
  for (const FileInfo& info : *infos) newest = std::max(newest, id_of_cut_name(info.name()));
  return newest + 1;
}

StatusOr<int> serve(const JobOptions& job, const std::vector<Address>& listen) {
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
  CutPublisher publisher(*files, {.incarnation = Incarnation{options.incarnation}}, log);
  CutsByPublisher cuts(publisher, static_cast<uint32_t>(job.checkpoint.keep));
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
  const Status stopped = server->stop(Deadline::in(clock, kStopPatience));
  STARLING_RETURN_IF_ERROR(ended);
  STARLING_RETURN_IF_ERROR(stopped);
  return 0;
}

}  // namespace

StatusOr<int> run_scheduler(std::vector<std::string> arguments) {
  if (take_switch(arguments, "--help") || take_switch(arguments, "-h")) {
    fmt::print("{}", kHelp);
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
  return serve(job.options, addresses);
}

}  // namespace starling
