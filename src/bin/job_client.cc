#include "bin/job_client.h"

#include <algorithm>
#include <thread>

#include "base/rng.h"
#include "bin/process.h"
#include "hub/options.h"
#include "hub/position.h"

namespace starling {
namespace {

constexpr Duration kLook = milliseconds(100);
constexpr Duration kPatience = seconds(30);
constexpr const char* kTrainQueue = "train";

Deadline soon() { return Deadline::in(RealClock(), kPatience); }

Status put_key(SchedulerClient& scheduler, const std::string& key, const std::string& value,
               Deadline deadline) {
  v1::PutOption option;
  option.set_key(key);
  option.set_value(value);
  return scheduler.put(option, deadline).status();
}

// The clock at which the ranks go on: of a cut without one the highest that it knows.
uint64_t start_clock(const ckpt::Manifest& manifest) {
  if (manifest.has_clock()) return manifest.clock();
  uint64_t clock = 0;
  for (const ckpt::Clock& one : manifest.state().clocks()) clock = std::max(clock, one.clock());
  return clock;
}

// How far the hubs had read, as trainers tell them again.
StatusOr<v1::StartSampleOption> resume_of(const ckpt::Manifest& manifest) {
  v1::StartSampleOption out;
  out.set_dataset(kTrainQueue);
  std::vector<std::string> positions;
  for (const auto& one : manifest.positions()) positions.push_back(one.position());
  STARLING_RETURN_IF_ERROR(resume_at({manifest.queues().begin(), manifest.queues().end()},
                                     positions, start_clock(manifest), out));
  return out;
}

}  // namespace

StatusOr<std::unique_ptr<JobClient>> JobClient::join(Network& network, const Options& options,
                                                     Deadline deadline) {
  std::unique_ptr<JobClient> client(new JobClient());
  SchedulerClientOptions to_scheduler;
  to_scheduler.scheduler = options.scheduler;
  to_scheduler.role = options.role;
  to_scheduler.name = options.name;
  to_scheduler.incarnation = make_incarnation();
  to_scheduler.workers = options.workers;
  for (uint32_t i = 0; i < options.lanes; ++i) client->add_lane(network, to_scheduler);
  STARLING_ASSIGN_OR_RETURN(client->registered_, client->scheduler_->join_wait(deadline));
  for (const LaneOfClients& one : client->lanes_) {
    one.ps->joined(client->registered_);
    one.hubs->joined(client->registered_);
  }
  const MutexLock lock(client->mutex_);
  // What came by Watch meanwhile is newer.
  if (client->job_.state() == v1::JOB_STATE_UNKNOWN) client->job_ = client->registered_.job();
  return client;
}

void JobClient::add_lane(Network& network, const SchedulerClientOptions& member) {
  const size_t index = lanes_.size();
  LaneOfClients& one = lanes_.emplace_back();
  one.lane = network.make_lane(fmt::format("job-{}", index), static_cast<uint32_t>(index));
  if (scheduler_ == nullptr) {
    scheduler_ = std::make_unique<SchedulerClient>(network, one.lane, member, this);
  }
  // Clients number their requests by themselves, so that each is a session of its own.
  PsClientOptions to_ps;
  to_ps.role = member.role;
  to_ps.incarnation = member.incarnation;
  to_ps.session = mix64(member.incarnation + 2 * index + 1);
  one.ps = std::make_unique<PsClient>(network, one.lane, to_ps, scheduler_.get());
  HubClientOptions to_hubs;
  to_hubs.role = member.role;
  to_hubs.incarnation = member.incarnation;
  to_hubs.session = mix64(member.incarnation + 2 * index + 2);
  one.hubs = std::make_unique<HubClient>(network, one.lane, to_hubs);
}

JobClient::~JobClient() {
  for (const LaneOfClients& one : lanes_) one.lane->stop();
}

Status JobClient::wait_for_servers(size_t hubs, Deadline deadline) {
  for (const LaneOfClients& one : lanes_) {
    STARLING_RETURN_IF_ERROR(one.hubs->wait_for_hubs(hubs, deadline).status());
    STARLING_RETURN_IF_ERROR(one.ps->wait_for_map(deadline).status());
  }
  return absl::OkStatus();
}

void JobClient::on_event(const v1::Event& event) {
  for (const LaneOfClients& one : lanes_) {
    one.ps->on_event(event);
    one.hubs->on_event(event);
  }
  if (!event.has_job()) return;
  const MutexLock lock(mutex_);
  job_ = event.job();
}

void JobClient::on_refused(const Status& status) {
  const MutexLock lock(mutex_);
  refused_ = status;
}

void JobClient::on_heartbeat(v1::SchedulerHeartbeatOption* option) {
  const MutexLock lock(mutex_);
  for (const auto& [name, value] : rates_) {
    v1::NamedValue* rate = option->add_rates();
    rate->set_name(name);
    rate->set_value(value);
  }
}

void JobClient::set_rates(std::vector<std::pair<std::string, double>> rates) {
  const MutexLock lock(mutex_);
  rates_ = std::move(rates);
}

v1::JobState JobClient::state() const {
  const MutexLock lock(mutex_);
  return job_.state();
}

uint32_t JobClient::seats() const {
  const MutexLock lock(mutex_);
  return job_.seats().empty() ? 0 : job_.seats().rbegin()->ranks();
}

Status JobClient::failure() const {
  const MutexLock lock(mutex_);
  if (job_.state() == v1::JOB_STATE_FAILED) {
    return unavailable("the job failed: {}", job_.reason());
  }
  return refused_;
}

void JobClient::leave(Deadline deadline) {
  scheduler_->leave({}, deadline).IgnoreError();
  scheduler_->stop();
}

StatusOr<std::string> save_cut(SchedulerClient& scheduler, const std::string& directory,
                               uint32_t keep, const std::function<bool()>& may_wait) {
  v1::SaveJobOption option;
  option.set_keep(keep);
  if (!directory.empty()) option.mutable_save()->set_path(directory + "/");
  STARLING_ASSIGN_OR_RETURN(const v1::SaveJobReply begun, scheduler.save(option, soon()));
  v1::SaveJobOption ask;
  ask.set_action(v1::SAVE_ACTION_STATUS);
  ask.set_cut_id(begun.cut().cut_id());
  while (may_wait()) {
    STARLING_ASSIGN_OR_RETURN(const v1::SaveJobReply now, scheduler.save(ask, soon()));
    if (now.cut().phase() == v1::CUT_PHASE_COMMITTED) return now.path();
    if (now.cut().phase() == v1::CUT_PHASE_FAILED) {
      return aborted("cut {} failed: {}", now.cut().cut_id(), now.cut().error());
    }
    std::this_thread::sleep_for(kLook);
  }
  return cancelled("nobody waits for cut {} any more", begun.cut().cut_id());
}

namespace {

// True once something may have been trained; a cut before would not know how far a resumed job was.
StatusOr<bool> has_trained(SchedulerClient& scheduler) {
  STARLING_ASSIGN_OR_RETURN(const v1::GetJobReply now, scheduler.get_job({}, soon()));
  const v1::JobState state = now.job().state();
  return state == v1::JOB_STATE_TRAINING || state == v1::JOB_STATE_SAVING ||
         state == v1::JOB_STATE_DONE;
}

}  // namespace

StatusOr<bool> stop_with_cut(SchedulerClient& scheduler, const StopOptions& options) {
  if (options.checkpoint_path.empty()) {
    options.say("stopped; the job has no checkpoint.path, so what was trained is lost");
    return true;
  }
  STARLING_ASSIGN_OR_RETURN(const bool has_begun, has_trained(scheduler));
  if (!has_begun) {
    options.say("stopped before anything was trained");
    return true;
  }
  options.say("stopping: a checkpoint is made first; once more stops at once");
  while (options.may_wait()) {
    STARLING_RETURN_IF_ERROR(options.prepare());
    const StatusOr<std::string> cut = save_cut(scheduler, "", 0, options.may_wait);
    if (cut.ok()) {
      options.say(fmt::format("stopped, checkpoint {}\nGo on with: {}", *cut, options.resume));
      return true;
    }
    // Another cut runs, or all is trained meanwhile.
    if (cut.status().code() != StatusCode::kFailedPrecondition && options.may_wait()) {
      return with_context(cut.status(), "stopped without a checkpoint");
    }
    std::this_thread::sleep_for(kLook);
  }
  return false;
}

uint32_t evaluations_of(const ckpt::Manifest& manifest) {
  uint32_t next = 0;
  for (const v1::WorkQueueInfo& queue : manifest.queues()) {
    if (queue.epoch() >= kEvalEpoch) next = std::max(next, queue.epoch() - kEvalEpoch + 1);
  }
  for (const v1::Watermark& mark : manifest.state().watermarks()) {
    if (mark.epoch() >= kEvalEpoch) next = std::max(next, mark.epoch() - kEvalEpoch + 1);
  }
  return next;
}

StatusOr<RestoredJob> resume_job(JobClient& client, const Cut& cut, const JobOptions& job,
                                 bool trains, Deadline deadline) {
  STARLING_ASSIGN_OR_RETURN(const v1::StartSampleOption resume, resume_of(cut.manifest));
  STARLING_RETURN_IF_ERROR(
      put_key(client.scheduler(), kResumeKey, resume.SerializeAsString(), deadline));
  STARLING_RETURN_IF_ERROR(put_key(client.scheduler(), kEvaluationsKey,
                                   std::to_string(evaluations_of(cut.manifest)), deadline));
  RestoreJob restore;
  restore.schema = cut.manifest.state().schema();
  restore.restore.set_path(cut.path);
  restore.restore.set_cut_id(cut.manifest.cut_id());
  const v1::JobInfo& running = client.registered().job();
  if (running.has_staleness()) restore.freeze.set_staleness(running.staleness());
  const int64_t ranks = std::max<int64_t>(1, job.cluster.trainers * job.train.threads);
  restore.freeze.set_ranks(static_cast<uint32_t>(ranks));
  // All that the staging budget has room for.
  restore.freeze.set_push_bytes_max(static_cast<uint64_t>(job.ps.staging_max / ranks));
  restore.start_clock = start_clock(cut.manifest);
  restore.trains = trains;
  return restore_job(client.scheduler(), client.ps(), restore, deadline);
}

Status set_job_state(SchedulerClient& scheduler, v1::JobState state, const std::string& reason,
                     Deadline deadline) {
  v1::SetJobOption option;
  option.set_state(state);
  option.set_reason(reason);
  return scheduler.set_job(option, deadline).status();
}

}  // namespace starling
