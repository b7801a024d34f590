// A job's way back to a cut: new generation, everybody registers, all shards read, training.
#include <fmt/ranges.h>

#include <future>

#include "ps/client.h"

namespace starling {
namespace {

constexpr Duration kLookEvery = milliseconds(50);

// On the client's own timer: a driven lane goes on turning.
void pause(Lane& lane) {
  const TimePoint until = lane.clock().now() + kLookEvery;
  if (lane.here()) {
    lane.run_until([] { return false; }, Deadline(until));
    return;
  }
  auto passed = std::make_shared<std::promise<void>>();
  std::future<void> future = passed->get_future();
  lane.post([&lane, until, passed] { lane.call_at(until, [passed] { passed->set_value(); }); });
  // A lane that has stopped runs no timer.
  (void)future.wait_for(kLookEvery * 20);
}

// Empty when the map has every living ps and nobody else; else what is missing, for people. A ps of
// the generation before comes back or is declared dead.
std::string missing_in(const v1::ShardMap& map, const v1::GetJobReply& job) {
  if (map.shards().empty()) return "no map has been published yet";
  std::map<uint32_t, uint64_t> living;  // node, incarnation
  std::vector<std::string> problems;
  for (const v1::Node& node : job.nodes()) {
    if (node.role() != v1::ROLE_PS || node.state() != v1::NODE_STATE_ALIVE) continue;
    living[node.id()] = node.incarnation();
    if (node.generation() != job.job().generation()) {
      problems.push_back(fmt::format("{} has not registered again", node.name()));
    }
  }
  std::map<uint32_t, uint64_t> placed;
  for (const v1::Shard& shard : map.shards()) placed[shard.node()] = shard.incarnation();
  if (problems.empty() && placed != living) {
    problems.push_back(
        fmt::format("map {} has {} ps, {} are there", map.version(), placed.size(), living.size()));
  }
  return fmt::format("{}", fmt::join(problems, ", "));
}

// Waits for the map of the new generation and hands it to the client.
Status wait_for_ps(SchedulerClient& scheduler, PsClient& ps, Deadline deadline) {
  v1::GetJobOption with_nodes;
  with_nodes.set_with_nodes(true);
  while (true) {
    STARLING_ASSIGN_OR_RETURN(const v1::GetJobReply job, scheduler.get_job(with_nodes, deadline));
    STARLING_ASSIGN_OR_RETURN(const v1::ShardMap map, scheduler.get_map(deadline));
    const std::string missing = missing_in(map, job);
    if (missing.empty()) {
      v1::Event event;
      for (const v1::Node& node : job.nodes()) {
        *event.mutable_node() = node;
        ps.on_event(event);
      }
      *event.mutable_map() = map;
      ps.on_event(event);
      return absl::OkStatus();
    }
    if (deadline.passed(ps.lane().clock().now())) {
      return deadline_exceeded("not every ps has registered again: {}", missing);
    }
    pause(ps.lane());
  }
}

Status set_state(SchedulerClient& scheduler, v1::JobState state, uint64_t hash,
                 uint64_t map_version, Deadline deadline) {
  v1::SetJobOption option;
  option.set_state(state);
  option.set_schema_hash(hash);
  option.set_map_version(map_version);
  return scheduler.set_job(option, deadline).status();
}

// One try. REASON_STALE_MAP: the map has changed on the way, so that rows lie where nobody looks
// for them.
StatusOr<RestoredJob> try_restore(SchedulerClient& scheduler, PsClient& ps, const RestoreJob& job,
                                  Deadline deadline) {
  v1::SetJobOption anew;
  anew.set_new_generation(true);
  anew.set_start_clock(job.start_clock);
  STARLING_RETURN_IF_ERROR(
      with_context(scheduler.set_job(anew, deadline).status(), "a new generation of the job"));
  STARLING_ASSIGN_OR_RETURN(const v1::RegisterReply member, scheduler.join_wait(deadline));
  ps.joined(member);
  STARLING_RETURN_IF_ERROR(wait_for_ps(scheduler, ps, deadline));
  RestoredJob out;
  out.generation = member.generation();
  STARLING_RETURN_IF_ERROR(ps.create(job.schema, deadline));
  const uint64_t version = ps.routes()->version();
  STARLING_ASSIGN_OR_RETURN(out.read, ps.restore(job.restore, deadline));
  STARLING_ASSIGN_OR_RETURN(out.schema_hash, ps.freeze(job.freeze, deadline));
  // All of it was by this map, says the scheduler, and it will not move any more.
  STARLING_RETURN_IF_ERROR(
      set_state(scheduler, v1::JOB_STATE_FROZEN, out.schema_hash, version, deadline));
  if (!job.trains) return out;
  STARLING_RETURN_IF_ERROR(
      set_state(scheduler, v1::JOB_STATE_TRAINING, out.schema_hash, 0, deadline));
  return out;
}

}  // namespace

StatusOr<RestoredJob> restore_job(SchedulerClient& scheduler, PsClient& ps, const RestoreJob& job,
                                  Deadline deadline) {
  while (true) {
    StatusOr<RestoredJob> restored = try_restore(scheduler, ps, job, deadline);
    if (reason_of(restored.status()) != v1::REASON_STALE_MAP) return restored;
    if (deadline.passed(ps.lane().clock().now())) return restored;
  }
}

}  // namespace starling
