#include "bin/processes.h"

#include <signal.h>

#include <algorithm>

#include "bin/summary.h"
#include "net/makers.h"

namespace starling {
namespace {

constexpr Duration kStartPatience = seconds(60);
constexpr Duration kRestorePatience = seconds(3600);
constexpr Duration kStopPatience = seconds(20);
constexpr Duration kLook = milliseconds(200);
constexpr int kStopped = 130;  // as a shell shows a Ctrl-C
constexpr size_t kLinesShown = 12;
// A process that dies so often in its first seconds never comes up.
constexpr uint32_t kStartsMax = 5;
constexpr Duration kYoung = seconds(30);

}  // namespace

Processes::Processes(Launch& launch, const StopSignal& stop, std::string program)
    : launch_(launch), job_(launch.job.options), stop_(stop), children_(std::move(program)) {}

Processes::Node& Processes::add(Role role, const std::string& name,
                                std::vector<std::string> arguments) {
  Node& node = nodes_.emplace_back();
  node.role = role;
  node.name = name;
  const Flags& flags = launch_.flags.job;
  node.arguments = std::move(arguments);
  node.arguments.insert(node.arguments.end(), {"--job", flags.job});
  for (const std::string& set : flags.sets) {
    node.arguments.insert(node.arguments.end(), {"--set", set});
  }
  node.out_path = launch_.run.out_path(name);
  new_lines(node.out_path, node.said);  // of a run before
  node.log_path = launch_.run.log_path(name);
  return node;
}

StatusOr<std::string> Processes::wait_ready(Node& node) {
  const Deadline deadline = Deadline::in(clock_, kStartPatience);
  while (true) {
    const std::vector<std::string> lines = new_lines(node.out_path, node.said);
    if (!lines.empty()) return lines.front();
    children_.reap();
    if (node.process == 0) {
      return unavailable("{} ended with status {} before it was ready{}", node.name, node.status,
                         said_last(node));
    }
    if (deadline.passed(clock_.now())) return deadline_exceeded("{} is not ready", node.name);
    if (stop_.came(milliseconds(20))) return cancelled("stopped while {} started", node.name);
  }
}

std::string Processes::said_last(const Node& node) const {
  const std::string lines = last_lines(node.log_path, kLinesShown);
  return lines.empty() ? "" : fmt::format("; it said last ({}):\n{}", node.log_path, lines);
}

Status Processes::start_scheduler() {
  std::vector<std::string> arguments{"scheduler", "--set",
                                     "scheduler.ledger=" + launch_.run.ledger_path()};
  Node& node = add(Role::kScheduler, "scheduler", arguments);
  STARLING_RETURN_IF_ERROR(children_.start(node));
  STARLING_ASSIGN_OR_RETURN(scheduler_, wait_ready(node));
  // One that is started again must be found where it was.
  node.arguments.insert(node.arguments.end(), {"--listen", scheduler_});
  return launch_.run.set_state("running", scheduler_);
}

Status Processes::start(Role role, int64_t count, const std::string& word) {
  const size_t first = nodes_.size();
  for (int64_t i = 0; i < count; ++i) {
    const std::string name = fmt::format("{}-{}", word, i);
    std::vector<std::string> arguments{word, "--scheduler", scheduler_, "--name", name};
    if (role == Role::kHub) arguments.insert(arguments.end(), {"--index", std::to_string(i)});
    if (role == Role::kTrainer) {
      arguments.insert(arguments.end(), {"--run", launch_.run.path()});
    }
    Node& node = add(role, name, arguments);
    node.started = clock_.now();
    STARLING_RETURN_IF_ERROR(children_.start(node));
  }
  if (role == Role::kTrainer) return absl::OkStatus();
  for (size_t i = first; i < nodes_.size(); ++i) {
    STARLING_RETURN_IF_ERROR(wait_ready(nodes_[i]).status());
  }
  return absl::OkStatus();
}

Status Processes::make_network() {
  STARLING_ASSIGN_OR_RETURN(NetOptions net, net_options(job_.scheduler.net, job_.cluster));
  network_ = starling::make_network(std::move(net), Log(), metrics_);
  STARLING_ASSIGN_OR_RETURN(const Address address, parse_address(scheduler_, job_.cluster));
  lane_ = network_->make_lane("tool", 0);
  SchedulerClientOptions options;
  options.scheduler = address;
  options.session = make_incarnation();
  tool_ = std::make_unique<SchedulerClient>(*network_, lane_, options, nullptr);
  STARLING_RETURN_IF_ERROR(
      restore_launch(*network_, address, launch_, Deadline::in(clock_, kRestorePatience)));
  // From here on the tool speaks to this generation of the job.
  return tool_->get_job({}, Deadline::in(clock_, kStartPatience)).status();
}

Status Processes::start_all() {
  new_lines(launch_.run.metrics_path(), metrics_read_);  // of a run before
  STARLING_RETURN_IF_ERROR(start_scheduler());
  STARLING_RETURN_IF_ERROR(start(Role::kPs, job_.cluster.ps, "ps"));
  STARLING_RETURN_IF_ERROR(start(Role::kHub, job_.cluster.hubs, "hub"));
  STARLING_RETURN_IF_ERROR(make_network());
  STARLING_RETURN_IF_ERROR(start(Role::kTrainer, job_.cluster.trainers, "trainer"));
  display_.say(fmt::format("{} processes run, their logs are in {}/logs", nodes_.size(),
                           launch_.run.path()));
  return absl::OkStatus();
}

StatusOr<int> Processes::run() {
  StatusOr<int> result = [&]() -> StatusOr<int> {
    STARLING_RETURN_IF_ERROR(start_all());
    return watch();
  }();
  if (result.ok() && !is_killed_) {
    const Status stopped = stop_servers();
    if (!stopped.ok()) result = stopped;
  }
  if (lane_ != nullptr) lane_->stop();
  children_.kill_all();
  launch_.run.set_state(!result.ok() ? "failed" : *result == 0 ? "done" : "stopped").IgnoreError();
  if (result.status().code() == StatusCode::kCancelled) return kStopped;
  return result;
}

StatusOr<int> Processes::watch() {
  while (true) {
    if (stop_.came(kLook)) return stop_with_cut();
    show();
    STARLING_RETURN_IF_ERROR(see_deaths());
    if (!all_ended(Role::kTrainer)) continue;
    show();
    return 0;
  }
}

Status Processes::see_deaths() {
  for (Child* child : children_.reap()) {
    STARLING_RETURN_IF_ERROR(died(*static_cast<Node*>(child)));
  }
  return absl::OkStatus();
}

bool Processes::all_ended(Role role) const {
  return std::none_of(nodes_.begin(), nodes_.end(),
                      [role](const Node& node) { return node.role == role && node.process != 0; });
}

std::vector<Child*> Processes::of(Role role) {
  std::vector<Child*> out;
  for (Node& node : nodes_) {
    if (node.role == role) out.push_back(&node);
  }
  return out;
}

Status Processes::died(Node& node) {
  // The job is done, or it was told to leave.
  if (node.status == 0 && node.role != Role::kPs) return absl::OkStatus();
  Status why = unavailable("{} died with status {}{}", node.name, node.status, said_last(node));
  if (node.role == Role::kPs) return why;
  const bool is_last = all_ended(node.role) && node.role != Role::kScheduler;
  if (is_last) return why;
  const bool is_named = node.role == Role::kScheduler || job_.train.staleness == 0;
  display_.say(fmt::format("{} died with status {}; {}", node.name, node.status,
                           is_named ? "it is started again" : "its work is dealt to others"));
  if (!is_named) return absl::OkStatus();
  if (node.starts >= kStartsMax && clock_.now() < node.started + kYoung) return why;
  node.started = clock_.now();
  return children_.start(node);
}

void Processes::show() {
  for (Node& node : nodes_) {
    if (node.role != Role::kTrainer) continue;
    for (const std::string& line : new_lines(node.out_path, node.said)) display_.say(line);
  }
  std::optional<RunProgress> newest;
  for (const std::string& line : new_lines(launch_.run.metrics_path(), metrics_read_)) {
    if (auto progress = parse_progress(line); progress.has_value()) newest = progress;
  }
  if (newest.has_value()) display_.show(*newest);
}

bool Processes::may_wait() {
  is_killed_ = is_killed_ || stop_.came(Duration(0));
  return !is_killed_;
}

StatusOr<int> Processes::stop_with_cut() {
  const RunCommand command{
      .job = launch_.flags.job, .run = launch_.flags.run, .is_processes = true};
  Status lost;  // why the job ends before its cut
  StopOptions stop;
  stop.checkpoint_path = job_.checkpoint.path;
  stop.resume = command.resume();
  stop.say = [this](const std::string& text) { display_.say(text); };
  stop.may_wait = [&] {
    const Status seen = see_deaths();
    if (lost.ok()) lost = seen;
    return lost.ok() && may_wait() && !all_ended(Role::kTrainer);
  };
  const StatusOr<bool> is_stopped = starling::stop_with_cut(*tool_, stop);
  STARLING_RETURN_IF_ERROR(lost);
  if (is_killed_) return kStopped;
  STARLING_RETURN_IF_ERROR(is_stopped.status());
  show();
  return *is_stopped ? kStopped : 0;
}

// Trainers and hubs end when the job is done; ps and the scheduler when they are told.
Status Processes::stop_servers() {
  const Deadline deadline = Deadline::in(clock_, kStopPatience);
  // A job whose tables are not made yet has no end that they could hear of.
  const bool is_done = set_job_state(*tool_, v1::JOB_STATE_DONE, "", deadline).ok();
  for (const Role role : {Role::kTrainer, Role::kHub, Role::kPs, Role::kScheduler}) {
    const bool hears = role == Role::kTrainer || role == Role::kHub;
    for (Child* child : of(role)) {
      if (!hears || !is_done) children_.signal(*child, SIGTERM);
    }
    if (!children_.wait(of(role), deadline, [this] { return may_wait(); })) break;
    show();
  }
  for (const Node& node : nodes_) {
    if (node.process != 0 && !is_killed_) {
      display_.say(fmt::format("{} did not end in time and was killed", node.name));
    }
  }
  return absl::OkStatus();
}

}  // namespace starling
