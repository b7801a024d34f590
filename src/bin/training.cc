#include "bin/training.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "bin/process.h"
#include "bin/roles.h"
#include "bin/shared_window.h"
#include "hub/options.h"
#include "hub/position.h"

namespace starling {
namespace {

constexpr Duration kPatience = seconds(60);
constexpr Duration kLeadEvery = seconds(2);
constexpr Duration kSeatEvery = seconds(2);
constexpr Duration kMetricsEvery = seconds(2);
constexpr Duration kRateEvery = seconds(3);
constexpr const char* kLeadKey = "job/lead";
constexpr int kFinalTries = 5;

double seconds_of(Duration time) { return std::chrono::duration<double>(time).count(); }
Duration in_minutes(double minutes) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double, std::ratio<60>>(minutes));
}
Deadline soon() { return Deadline::in(RealClock(), kPatience); }

TrainerClients clients_of(JobClient& client) {
  TrainerClients clients{.scheduler = &client.scheduler()};
  for (size_t i = 0; i < client.lanes(); ++i) {
    clients.lanes.push_back({&client.ps(i), &client.hubs(i)});
  }
  return clients;
}

bool is_running(v1::JobState state) {
  return state == v1::JOB_STATE_TRAINING || state == v1::JOB_STATE_SAVING;
}

}  // namespace

Training::Training(const JobOptions& job, JobClient& client, Options options)
    : job_(job), client_(client), options_(std::move(options)), since_(clock_.now()) {
  next_lead_ = next_metrics_ = next_window_ = next_seat_ = rate_since_ = since_;
}

Training::~Training() { end_threads(); }

void Training::end_threads() {
  is_ending_ = true;
  if (trainer_ != nullptr) trainer_->cancel();
  // A worker may wait for dense values of a ps that is gone.
  for (size_t i = 0; i < client_.lanes(); ++i) client_.ps(i).stop();
  training_.join();
  evaluating_.join();
  saving_.join();
}

StatusOr<Training::End> Training::run() {
  STARLING_RETURN_IF_ERROR(prepare());
  training_ = Thread({.name = "train"}, [this] {
    trained_ = trainer_->train(
        dataset_, [this](uint32_t epoch) { return on_epoch(epoch); }, Deadline::never());
    is_trained_ = true;
  });
  StatusOr<End> ended = loop();
  end_threads();
  return ended;
}

Status Training::prepare() {
  STARLING_RETURN_IF_ERROR(start_dataset());
  STARLING_ASSIGN_OR_RETURN(const v1::StartSampleReply told,
                            client_.hubs().start(dataset_, soon()));
  Trainer::Options options;
  const v1::RegisterReply& registered = client_.registered();
  options.ranks = {registered.ranks().begin(), registered.ranks().end()};
  options.start_clock = registered.start_clock();
  options.ahead = static_cast<uint32_t>(job_.trainer.prefetch);
  options.staleness = staleness_of(job_);
  STARLING_ASSIGN_OR_RETURN(trainer_,
                            Trainer::make(job_, clients_of(client_), std::move(options), told));
  if (job_.dense.home == "trainer") {
    STARLING_ASSIGN_OR_RETURN(
        keeper_, options_.keep_dense([this] { return trainer_->store_dense(soon()); }));
  }
  STARLING_RETURN_IF_ERROR(start_job(soon()));
  next_save_ = clock_.now() + std::chrono::minutes(job_.checkpoint.every_minutes);
  next_evaluation_ = clock_.now() + in_minutes(job_.train.evaluate_minutes);
  return absl::OkStatus();
}

// The same words for every hub and trainer, also of those that come later.
Status Training::start_dataset() {
  STARLING_ASSIGN_OR_RETURN(dataset_, train_dataset(job_));
  v1::GetOption option;
  option.set_key(kResumeKey);
  STARLING_ASSIGN_OR_RETURN(const v1::GetReply found, client_.scheduler().get(option, soon()));
  v1::StartSampleOption resume;
  if (found.values_size() > 0 && !resume.ParseFromString(found.values(0).value())) {
    return internal_error("the scheduler's key {} is no StartSampleOption", kResumeKey);
  }
  *dataset_.mutable_resume() = resume.resume();
  dataset_.set_position(resume.position());
  for (const v1::Watermark& mark : resume.resume()) {
    first_epoch_ = std::max(first_epoch_, mark.epoch());
    batches_before_ += mark.done_below();
  }
  // Of the generations before the cut's.
  STARLING_ASSIGN_OR_RETURN(const hubs::DatasetPosition from, position_in(dataset_));
  batches_before_ += from.steps_before();
  samples_before_ = batches_before_ * dataset_.batch_size();
  return absl::OkStatus();
}

bool Training::try_lead() {
  if (leads_) return true;
  v1::PutOption option;
  option.set_key(kLeadKey);
  option.set_value(std::to_string(client_.registered().id()));
  option.set_ephemeral(true);
  option.set_if_revision(0);
  leads_ = client_.scheduler().put(option, soon()).ok();
  if (leads_) read_old_metrics();
  return leads_;
}

Status Training::wait_for_trainers(Deadline deadline) {
  v1::GetJobOption with_nodes;
  with_nodes.set_with_nodes(true);
  while (true) {
    STARLING_ASSIGN_OR_RETURN(const v1::GetJobReply reply,
                              client_.scheduler().get_job(with_nodes, deadline));
    const auto here =
        std::count_if(reply.nodes().begin(), reply.nodes().end(), [](const v1::Node& node) {
          return node.role() == v1::ROLE_TRAINER && node.state() == v1::NODE_STATE_ALIVE;
        });
    if (here >= job_.cluster.trainers) return absl::OkStatus();
    if (deadline.passed(clock_.now())) {
      return deadline_exceeded("{} of {} trainers have come", here, job_.cluster.trainers);
    }
    if (options_.wait() != Asked::kNothing) return cancelled("stopped");
  }
}

Status Training::start_job(Deadline deadline) {
  v1::JobState state = client_.registered().job().state();
  while (!is_running(state)) {
    if (state != v1::JOB_STATE_CREATED && state != v1::JOB_STATE_FROZEN) {
      return failed_precondition("the job is {}", v1::JobState_Name(state));
    }
    if (try_lead()) {
      STARLING_RETURN_IF_ERROR(wait_for_trainers(deadline));
      STARLING_RETURN_IF_ERROR(trainer_->start(state, deadline));
      tell_start();
      return absl::OkStatus();
    }
    if (deadline.passed(clock_.now())) {
      return deadline_exceeded("the trainer that leads has not started the job");
    }
    if (options_.wait() != Asked::kNothing) return cancelled("stopped");
    STARLING_ASSIGN_OR_RETURN(const v1::GetJobReply reply,
                              client_.scheduler().get_job({}, deadline));
    state = reply.job().state();
  }
  return trainer_->join();
}

void Training::tell_start() {
  const StatusOr<std::vector<v1::StatReply>> stats = client_.ps().stat({}, soon());
  options_.say(start_text(job_, trainer_->shape(),
                          stats.ok() ? *stats : std::vector<v1::StatReply>(),
                          dataset_.resume_size() > 0));
}

Status Training::on_epoch(uint32_t epoch) {
  if (epoch < first_epoch_ || !leads_) return absl::OkStatus();
  return evaluate(fmt::format("epoch {} of {}", epoch + 1, job_.data.epochs));
}

// Numbers are never used twice: shards remember the batches of each.
StatusOr<uint32_t> Training::take_evaluation() {
  while (true) {
    v1::GetOption ask;
    ask.set_key(kEvaluationsKey);
    STARLING_ASSIGN_OR_RETURN(const v1::GetReply found, client_.scheduler().get(ask, soon()));
    const bool is_there = found.values_size() > 0;
    const uint32_t number =
        is_there ? static_cast<uint32_t>(std::atoll(found.values(0).value().c_str())) : 0;
    v1::PutOption put;
    put.set_key(kEvaluationsKey);
    put.set_value(std::to_string(number + 1));
    put.set_if_revision(is_there ? found.values(0).revision() : 0);
    const Status taken = client_.scheduler().put(put, soon()).status();
    if (taken.ok()) return number;
    if (taken.code() != StatusCode::kAborted) return taken;
  }
}

Status Training::evaluate(const std::string& what) {
  if (job_.data.test.empty() && job_.data.split.empty()) return absl::OkStatus();
  const MutexLock one(evaluate_mutex_);
  STARLING_ASSIGN_OR_RETURN(const uint32_t number, take_evaluation());
  STARLING_ASSIGN_OR_RETURN(const v1::StartSampleOption test, test_dataset(job_, number));
  STARLING_RETURN_IF_ERROR(client_.hubs().start(test, soon()).status());
  STARLING_ASSIGN_OR_RETURN(const Evaluation scored, trainer_->evaluate(test, Deadline::never()));
  const std::string score = score_text(scored);
  options_.say(fmt::format("{}: {}", what, score));
  write_metrics(
      evaluation_json(scored, seconds_of(clock_.now() - since_), trainer_->progress().batches));
  const MutexLock lock(mutex_);
  last_score_ = score;
  if (std::isnan(scored.auc) || scored.auc <= best_.auc) return absl::OkStatus();
  best_ = {.auc = scored.auc, .is_new = true};
  return absl::OkStatus();
}

StatusOr<Training::End> Training::loop() {
  while (!is_trained_) {
    const Asked asked = options_.wait();
    if (asked == Asked::kSaveAndStop) return stop_with_cut();
    if (asked == Asked::kLeave) return leave();
    if (client_.state() == v1::JOB_STATE_DONE) return End::kStopped;
    STARLING_RETURN_IF_ERROR(client_.failure());
    const RunProgress now = progress();
    client_.set_rates({{"samples", static_cast<double>(trainer_->progress().samples)},
                       {"samples_per_s", now.samples_per_s}});
    options_.show(now);
    if (clock_.now() >= next_lead_) {
      next_lead_ = clock_.now() + kLeadEvery;
      try_lead();
    }
    if (leads_) lead_turn(now);
    if (lacks_seat()) ask_for_seat();
  }
  if (!trained_.ok()) {
    // What the scheduler knows says more than a call that was cut.
    STARLING_RETURN_IF_ERROR(client_.failure());
    return trained_;
  }
  while (!try_lead()) {
    if (client_.state() == v1::JOB_STATE_DONE) return End::kDone;
    STARLING_RETURN_IF_ERROR(client_.failure());
    if (options_.wait() != Asked::kNothing) return End::kStopped;
  }
  // The place may be free because the one who led has finished.
  STARLING_ASSIGN_OR_RETURN(const v1::GetJobReply now, client_.scheduler().get_job({}, soon()));
  if (now.job().state() == v1::JOB_STATE_DONE) return End::kDone;
  STARLING_RETURN_IF_ERROR(finish());
  return End::kDone;
}

RunProgress Training::progress() {
  const TrainProgress now = trainer_->progress();
  RunProgress out;
  out.time_s = seconds_of(clock_.now() - since_);
  out.samples = samples_before_ + now.hub.samples_done();
  update_window();
  if (const Evaluation window = window_.scores.result(); window.samples > 0) {
    out.loss = window_.mean_loss();
    out.auc = window.auc;
  }
  const TimePoint at = clock_.now();
  if (at >= rate_since_ + kRateEvery || rate_ == 0) {
    const double passed = seconds_of(at - rate_since_);
    rate_ = passed > 0 ? static_cast<double>(out.samples - rate_samples_) / passed : 0;
    rate_since_ = at;
    rate_samples_ = out.samples;
  }
  out.samples_per_s = rate_;
  if (lines_total_ < 0 && now.hub.bytes_total() > 0) {
    lines_total_ = static_cast<double>(now.hub.bytes_total()) / line_bytes(job_.data.train);
  }
  if (lines_total_ > 0) {
    const auto done = static_cast<double>(out.samples + now.hub.samples_skipped());
    out.part = std::min(1.0, done / lines_total_);
    if (part_first_ < 0) part_first_ = static_cast<double>(samples_before_) / lines_total_;
    if (out.part > part_first_) {
      out.left_s = out.time_s * (1 - out.part) / (out.part - part_first_);
    }
  }
  return out;
}

void Training::update_window() {
  if (clock_.now() < next_window_) return;
  next_window_ = clock_.now() + kMetricsEvery;
  window_ = trainer_->window();
  if (job_.cluster.trainers == 1) return;
  // A window that is not told is told next time; the run does not depend on it.
  put_window(client_.scheduler(), client_.registered().id(), window_, soon()).IgnoreError();
  if (!leads_) return;
  if (StatusOr<TrainWindow> all = merged_window(client_.scheduler(), soon()); all.ok()) {
    window_ = *std::move(all);
  }
}

void Training::lead_turn(const RunProgress& now) {
  const TimePoint at = clock_.now();
  if (at >= next_metrics_) {
    next_metrics_ = at + kMetricsEvery;
    write_metrics(now.json());
  }
  const uint64_t steps = trainer_->progress().batches;
  const bool is_late = job_.train.evaluate_minutes > 0 && at >= next_evaluation_;
  const bool is_far = job_.train.evaluate_steps > 0 &&
                      steps >= evaluated_steps_ + static_cast<uint64_t>(job_.train.evaluate_steps);
  if ((is_late || is_far) && !is_evaluating_) {
    next_evaluation_ = at + in_minutes(job_.train.evaluate_minutes);
    evaluated_steps_ = steps;
    begin_evaluation();
  }
  if (job_.checkpoint.path.empty() || is_saving_) return;
  bool is_best = false;
  if (job_.train.evaluate_minutes > 0 || job_.train.evaluate_steps > 0) {
    const MutexLock lock(mutex_);
    is_best = std::exchange(best_.is_new, false);
  }
  if (is_best || at >= next_save_) begin_save(is_best);
}

void Training::begin_evaluation() {
  is_evaluating_ = true;
  evaluating_ = Thread({.name = "evaluate"}, [this] {
    const Status status = evaluate(fmt::format("step {}", trainer_->progress().batches));
    if (!status.ok() && !is_ending_) {
      options_.say(fmt::format("the evaluation failed: {}", message_of(status)));
    }
    is_evaluating_ = false;
  });
}

void Training::begin_save(bool is_best) {
  if (!is_best) next_save_ = clock_.now() + std::chrono::minutes(job_.checkpoint.every_minutes);
  is_saving_ = true;
  saving_ = Thread({.name = "save"}, [this, is_best] {
    const StatusOr<std::string> path =
        save_cut(client_.scheduler(), is_best ? best_cuts_path(job_.checkpoint.path) : "",
                 is_best ? 1 : 0, [this] { return !is_ending_; });
    if (path.ok()) {
      options_.say(fmt::format("checkpoint {}{}", *path, is_best ? " (the best so far)" : ""));
      const MutexLock lock(mutex_);
      newest_cut_ = *path;
    } else if (!is_ending_) {
      // The next one may succeed, and what is trained is not lost by going on.
      options_.say(fmt::format("NO CHECKPOINT: {}", message_of(path.status())));
    }
    is_saving_ = false;
  });
}

bool Training::lacks_seat() const {
  const auto& ranks = client_.registered().ranks();
  if (staleness_of(job_) != 0U || ranks.empty()) return false;
  const int64_t first = job_.cluster.trainers * job_.train.threads;
  return *std::max_element(ranks.begin(), ranks.end()) >= std::max<int64_t>(first, client_.seats());
}

void Training::ask_for_seat() {
  if (clock_.now() < next_seat_ || is_saving_ || client_.state() != v1::JOB_STATE_TRAINING) return;
  if (job_.checkpoint.path.empty()) {
    options_.say(
        "joined without work: it comes with a checkpoint, and the job has no checkpoint.path");
    next_seat_ = TimePoint::max();
    return;
  }
  next_seat_ = clock_.now() + kSeatEvery;
  begin_save(false);
}

StatusOr<Training::End> Training::stop_with_cut() {
  StopOptions stop;
  stop.checkpoint_path = job_.checkpoint.path;
  stop.resume = options_.command.resume();
  stop.say = options_.say;
  stop.prepare = [this] { return client_.failure(); };
  stop.may_wait = [this] { return !is_trained_; };
  STARLING_ASSIGN_OR_RETURN(const bool is_stopped,
                            starling::stop_with_cut(client_.scheduler(), stop));
  if (is_stopped) return End::kStopped;
  STARLING_RETURN_IF_ERROR(trained_);
  STARLING_RETURN_IF_ERROR(finish());
  return End::kDone;
}

// Of one trainer among several: the step at hand is finished, the rest is dealt to others.
StatusOr<Training::End> Training::leave() {
  trainer_->stop();
  const Deadline deadline = Deadline::in(clock_, seconds(5));
  while (!is_trained_ && !deadline.passed(clock_.now())) options_.wait();
  client_.leave(Deadline::in(clock_, seconds(5)));
  return End::kStopped;
}

Status Training::finish() {
  // A cut whose clock lies behind the end of the data is never reached.
  v1::SaveJobOption cancel;
  cancel.set_action(v1::SAVE_ACTION_CANCEL);
  client_.scheduler().save(cancel, soon()).IgnoreError();
  is_ending_ = true;
  saving_.join();
  evaluating_.join();
  is_ending_ = false;
  next_window_ = clock_.now();
  write_metrics(progress().json());
  STARLING_RETURN_IF_ERROR(
      evaluate(fmt::format("epoch {} of {}", job_.data.epochs, job_.data.epochs)));
  STARLING_RETURN_IF_ERROR(set_job_state(client_.scheduler(), v1::JOB_STATE_DONE, "", soon()));
  STARLING_RETURN_IF_ERROR(final_cut());
  RunSummary summary;
  STARLING_RETURN_IF_ERROR(count_samples(summary));
  summarise(std::move(summary));
  return absl::OkStatus();
}

Status Training::final_cut() {
  if (job_.checkpoint.path.empty()) return absl::OkStatus();
  for (int i = 1;; ++i) {
    const StatusOr<std::string> path = save_cut(client_.scheduler(), "", 0, [] { return true; });
    if (path.ok()) {
      const MutexLock lock(mutex_);
      newest_cut_ = *path;
      return absl::OkStatus();
    }
    // Hubs leave now, and a cut that counted on one of them fails.
    if (i == kFinalTries) return with_context(path.status(), "the last checkpoint");
    options_.wait();
  }
}

Status Training::count_samples(RunSummary& summary) {
  v1::GetJobOption ask;
  ask.set_with_work(true);
  STARLING_ASSIGN_OR_RETURN(const v1::GetJobReply job, client_.scheduler().get_job(ask, soon()));
  for (const v1::WorkQueueInfo& queue : job.queues()) {
    if (queue.queue() != dataset_.dataset()) continue;
    if (!queue.complete() || queue.done() < queue.items()) {
      return internal_error(
          "the data are at their end, but {} of {} work items of epoch {} are done", queue.done(),
          queue.items(), queue.epoch());
    }
    summary.samples_trained += queue.samples_trained();
    summary.samples_skipped += queue.samples_skipped();
  }
  return absl::OkStatus();
}

void Training::summarise(RunSummary summary) {
  summary.command = options_.command;
  summary.batches_before = batches_before_;
  summary.time_s = seconds_of(clock_.now() - since_);
  {
    const MutexLock lock(mutex_);
    summary.score = last_score_;
    summary.cut = newest_cut_;
  }
  if (const auto stats = client_.ps().stat({}, soon()); stats.ok()) summary.stats = *stats;
  options_.say(summary_text(job_, trainer_->progress(), summary));
}

void Training::write_metrics(const std::string& line) {
  const MutexLock lock(mutex_);
  if (!metrics_.is_open()) return;
  metrics_ << line << '\n';
  metrics_.flush();
}

void Training::read_old_metrics() {
  if (options_.metrics_path.empty()) return;
  std::ifstream old(options_.metrics_path);
  const MutexLock lock(mutex_);
  for (std::string line; std::getline(old, line);) {
    if (line.find("\"evaluation\"") == std::string::npos) continue;
    best_.auc = std::max(best_.auc, json_number(line, "auc").value_or(0));
  }
  metrics_.open(options_.metrics_path, std::ios::app);
}

}  // namespace starling
