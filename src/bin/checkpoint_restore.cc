#include "bin/checkpoint_restore.h"

#include <fmt/format.h>

#include "bin/job_client.h"
#include "bin/process.h"
#include "net/makers.h"

namespace starling {
namespace {

constexpr Duration kLeavePatience = seconds(2);

}  // namespace

StatusOr<int> restore_cut(const Cut& cut, const JobOptions& job, const RestoreFlags& flags) {
  STARLING_ASSIGN_OR_RETURN(NetOptions net, net_options(job.scheduler.net, job.cluster));
  JobClient::Options options;
  STARLING_ASSIGN_OR_RETURN(options.scheduler, parse_address(flags.scheduler, job.cluster));
  options.name = fmt::format("restore-{:016x}", make_incarnation());
  Metrics metrics;
  const std::unique_ptr<Network> network = make_network(std::move(net), Log(), metrics);
  const RealClock clock;
  const Deadline deadline = Deadline::in(clock, flags.patience);
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<JobClient> client,
                            JobClient::join(*network, options, deadline));
  const StatusOr<RestoredJob> restored =
      resume_job(*client, cut, job, !flags.stays_frozen, deadline);
  // Whoever stays holds every cut until its lease ends.
  client->leave(Deadline::in(clock, kLeavePatience));
  STARLING_RETURN_IF_ERROR(restored.status());
  fmt::print("cut {} restored: {} rows, {} bytes read; the job is {} in generation {}\n",
             restored->read.cut_id(), restored->read.rows(), restored->read.bytes(),
             flags.stays_frozen ? "frozen" : "training", restored->generation);
  return 0;
}

}  // namespace starling
