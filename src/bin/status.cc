// `starling status`: what the scheduler knows of a job, as a table or as JSON.
#include <fmt/ranges.h>

#include <map>

#include "bin/command.h"
#include "bin/process.h"
#include "bin/run_directory.h"
#include "net/makers.h"
#include "scheduler/client.h"

namespace starling {
namespace {

constexpr const char* kStatusHelp =
    R"(usage: starling status [--scheduler ADDRESS | --run DIRECTORY] [--json] [--timeout SECONDS] [--job FILE] [--set KEY=VALUE]...

Prints the nodes of a job, its map, state, rates and work, and who is slow.
  --scheduler ADDRESS  grpc://HOST:PORT or grpc++://HOST:PORT, as starling scheduler printed it
  --run DIRECTORY      of starling train. Default: the only one below runs/ that runs now
  --json               one JSON object {"job": GetJobReply, "map": GetMapReply} (scheduler_options.proto)
  --timeout SECONDS    how long to wait for the scheduler, 10 when not given
)";

// "JOB_STATE_TRAINING" -> "training".
std::string word_of(std::string_view name, std::string_view prefix) {
  std::string word(name.substr(name.starts_with(prefix) ? prefix.size() : 0));
  for (char& letter : word) letter = static_cast<char>(std::tolower(letter));
  return word;
}

void print_job(const v1::GetJobReply& reply, const v1::ShardMap& map) {
  const v1::JobInfo& job = reply.job();
  fmt::print("job {}: {}{}{}\n", job.name(), word_of(v1::JobState_Name(job.state()), "JOB_STATE_"),
             job.reason().empty() ? "" : ": ", job.reason());
  fmt::print("  generation {}, clock {}, staleness {}, newest cut {}\n", job.generation(),
             job.clock(), job.has_staleness() ? std::to_string(job.staleness()) : "inf",
             job.newest_cut() == 0 ? "none" : std::to_string(job.newest_cut()));
  fmt::print("  map version {}, {} buckets over {} shards\n", map.version(),
             map.bucket_shard_size(), map.shards_size());
  if (reply.has_cut()) {
    fmt::print("  cut {}: {}\n", reply.cut().cut_id(),
               word_of(v1::CutPhase_Name(reply.cut().phase()), "CUT_PHASE_"));
  }
}

void print_nodes(const v1::GetJobReply& reply, const v1::ShardMap& map) {
  std::map<uint32_t, uint32_t> buckets;
  for (const uint32_t shard : map.bucket_shard()) {
    ++buckets[map.shards(static_cast<int>(shard)).node()];
  }
  fmt::print("\n{:>4}  {:<16} {:<8} {:<8} {:>8} {:>6} {:>8}  {}\n", "id", "name", "role", "state",
             "seen_ms", "lanes", "buckets", "rates");
  for (const v1::Node& node : reply.nodes()) {
    std::string rates;
    for (const v1::NamedValue& rate : node.rates()) {
      rates += fmt::format("{}={:g} ", rate.name(), rate.value());
    }
    if (node.slow()) rates += "SLOW";
    fmt::print("{:>4}  {:<16} {:<8} {:<8} {:>8} {:>6} {:>8}  {}\n", node.id(), node.name(),
               word_of(v1::Role_Name(node.role()), "ROLE_"),
               word_of(v1::NodeState_Name(node.state()), "NODE_STATE_"), node.last_seen_ms(),
               node.lanes(), buckets[node.id()], rates);
  }
  for (const v1::WorkQueueInfo& queue : reply.queues()) {
    fmt::print("\nqueue {} epoch {}: {} of {} items done, {} taken{}\n", queue.queue(),
               queue.epoch(), queue.done(), queue.items(), queue.taken(),
               queue.complete() ? "" : ", more may come");
  }
}

StatusOr<int> ask(const Address& address, const JobOptions& job, bool json, Duration timeout) {
  STARLING_ASSIGN_OR_RETURN(NetOptions net, net_options(job.scheduler.net, job.cluster));
  Metrics metrics;
  const std::unique_ptr<Network> network = make_network(std::move(net), Log(), metrics);
  const std::shared_ptr<LoopLane> lane = network->make_driven_lane();
  SchedulerClient client(*network, lane, {.scheduler = address, .session = make_incarnation()},
                         nullptr);
  const Deadline deadline = Deadline::in(lane->clock(), timeout);
  v1::GetJobOption option;
  option.set_with_nodes(true);
  option.set_with_work(true);
  STARLING_ASSIGN_OR_RETURN(const v1::GetJobReply reply, client.get_job(option, deadline));
  STARLING_ASSIGN_OR_RETURN(const v1::ShardMap map, client.get_map(deadline));
  if (json) {
    v1::GetMapReply whole;
    whole.set_version(map.version());
    *whole.mutable_map() = map;
    STARLING_ASSIGN_OR_RETURN(const std::string job_json, json_of(reply));
    STARLING_ASSIGN_OR_RETURN(const std::string map_json, json_of(whole));
    fmt::print("{{\"job\": {},\n\"map\": {}}}\n", job_json, map_json);
    return 0;
  }
  print_job(reply, map);
  print_nodes(reply, map);
  return 0;
}

// Where the scheduler of a run listens. Says to `out` what the run is; no address when it is over.
StatusOr<std::string> find_scheduler(std::string run, std::FILE* out) {
  if (run.empty()) {
    const std::vector<std::string> held = held_runs();
    if (held.size() != 1) {
      return invalid_argument(
          "{} jobs run below runs/{}; --run DIRECTORY or --scheduler ADDRESS "
          "says which",
          held.size(), held.empty() ? "" : fmt::format(" ({})", fmt::join(held, ", ")));
    }
    run = held.front();
  }
  STARLING_ASSIGN_OR_RETURN(const RunState state, read_run_state(run));
  const bool is_held = is_run_held(run);
  fmt::print(out, "run {}: job {}, process {}, {}\n", run, state.job, state.process,
             !is_held && state.state == "running" ? "killed" : state.state);
  return is_held ? state.scheduler : "";
}

}  // namespace

StatusOr<int> run_status(std::vector<std::string> arguments) {
  if (take_switch(arguments, "--help") || take_switch(arguments, "-h")) {
    fmt::print("{}", kStatusHelp);
    return 0;
  }
  STARLING_ASSIGN_OR_RETURN(const Flags flags, take_flags(arguments));
  STARLING_ASSIGN_OR_RETURN(std::string scheduler, take_value(arguments, "--scheduler"));
  STARLING_ASSIGN_OR_RETURN(const std::string run, take_value(arguments, "--run"));
  STARLING_ASSIGN_OR_RETURN(const std::string timeout, take_value(arguments, "--timeout"));
  const bool json = take_switch(arguments, "--json");
  STARLING_RETURN_IF_ERROR(no_more(arguments, "status"));
  if (scheduler.empty()) {
    STARLING_ASSIGN_OR_RETURN(scheduler, find_scheduler(run, json ? stderr : stdout));
    if (scheduler.empty()) return 0;
  }
  STARLING_ASSIGN_OR_RETURN(const Duration patience, parse_timeout(timeout, seconds(10)));
  STARLING_ASSIGN_OR_RETURN(const Job job, load_job(flags));
  STARLING_ASSIGN_OR_RETURN(const Address address, parse_address(scheduler, job.options.cluster));
  return ask(address, job.options, json, patience);
}

}  // namespace starling
