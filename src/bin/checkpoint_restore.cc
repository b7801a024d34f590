#include "bin/checkpoint_restore.h"

#include <fmt/format.h>

#include <algorithm>

#include "bin/process.h"
#include "net/makers.h"
#include "ps/client.h"

namespace starling {
namespace {

constexpr Duration kLeavePatience = seconds(2);

// Hands deaths and maps to the client of the ps.
class Told final : public SchedulerEvents {
 public:
  void on_event(const v1::Event& event) override {
    if (ps != nullptr) ps->on_event(event);
  }
  PsClient* ps = nullptr;
};

// The clock at which the ranks go on: of a cut without one the highest that it knows.
uint64_t start_clock(const ckpt::Manifest& manifest) {
  if (manifest.has_clock()) return manifest.clock();
  uint64_t clock = 0;
  for (const ckpt::Clock& one : manifest.state().clocks()) clock = std::max(clock, one.clock());
  return clock;
}

RestoreJob restore_of(const Cut& cut, const JobOptions& job, const v1::JobInfo& running,
                      bool trains) {
  RestoreJob out;
  out.schema = cut.manifest.state().schema();
  out.restore.set_path(cut.path);
  out.restore.set_cut_id(cut.manifest.cut_id());
  if (running.has_staleness()) out.freeze.set_staleness(running.staleness());
  const int64_t ranks = std::max<int64_t>(1, job.cluster.trainers * job.train.threads);
  out.freeze.set_ranks(static_cast<uint32_t>(ranks));
  // All that the staging budget has room for.
  out.freeze.set_push_bytes_max(static_cast<uint64_t>(job.ps.staging_max / ranks));
  out.start_clock = start_clock(cut.manifest);
  out.trains = trains;
  return out;
}

}  // namespace

StatusOr<int> restore_cut(const Cut& cut, const JobOptions& job, const RestoreFlags& flags) {
  STARLING_ASSIGN_OR_RETURN(NetOptions net, net_options(job.scheduler.net, job.cluster));
  STARLING_ASSIGN_OR_RETURN(const Address address, parse_address(flags.scheduler, job.cluster));
  Metrics metrics;
  const std::unique_ptr<Network> network = make_network(std::move(net), Log(), metrics);
  const std::shared_ptr<LoopLane> lane = network->make_driven_lane();
  const Deadline deadline = Deadline::in(lane->clock(), flags.patience);
  const uint64_t incarnation = make_incarnation();
  Told told;
  SchedulerClientOptions options;
  options.scheduler = address;
  options.role = v1::ROLE_CLIENT;
  options.name = fmt::format("restore-{:016x}", incarnation);
  options.incarnation = incarnation;
  SchedulerClient scheduler(*network, lane, options, &told);
  PsClient ps(*network, lane, {.role = v1::ROLE_CLIENT, .incarnation = incarnation}, &scheduler);
  told.ps = &ps;
  STARLING_ASSIGN_OR_RETURN(const v1::RegisterReply member, scheduler.join_wait(deadline));
  ps.joined(member);
  const StatusOr<RestoredJob> restored =
      restore_job(scheduler, ps, restore_of(cut, job, member.job(), !flags.stays_frozen), deadline);
  // Whoever stays holds every cut until its lease ends.
  scheduler.leave({}, Deadline::in(lane->clock(), kLeavePatience)).IgnoreError();
  scheduler.stop();
  told.ps = nullptr;
  STARLING_RETURN_IF_ERROR(restored.status());
  fmt::print("cut {} restored: {} rows, {} bytes read; the job is {} in generation {}\n",
             restored->read.cut_id(), restored->read.rows(), restored->read.bytes(),
             flags.stays_frozen ? "frozen" : "training", restored->generation);
  return 0;
}

}  // namespace starling
