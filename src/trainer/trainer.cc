#include "trainer/trainer.h"

#include <cmath>

#include "base/thread.h"
#include "trainer/blas.h"
#include "trainer/linear.h"
#include "trainer/schema.h"

namespace starling {
namespace {

// Of one pull of dense values, its repeats included.
constexpr Duration kPullPatience = seconds(60);

double seconds_of(Duration time) { return std::chrono::duration<double>(time).count(); }

std::span<const float> floats(const std::optional<Tensor>& tensor) {
  return tensor.has_value() ? tensor->values<float>() : std::span<const float>();
}

// One label of many: values i, i + labels, ...
std::vector<float> column_of(std::span<const float> values, size_t label, size_t labels) {
  std::vector<float> out;
  for (size_t i = label; i < values.size(); i += labels) out.push_back(values[i]);
  return out;
}

}  // namespace

Trainer::Trainer(const JobOptions& job, TrainerClients clients, Options options, ModelShape shape)
    : job_(job),
      clients_(std::move(clients)),
      options_(std::move(options)),
      shape_(std::move(shape)),
      clocks_(options_.ranks.size(), options_.start_clock) {}
Trainer::~Trainer() = default;

StatusOr<std::unique_ptr<Trainer>> Trainer::make(const JobOptions& job, TrainerClients clients,
                                                 Options options,
                                                 const v1::StartSampleReply& dataset) {
  STARLING_RETURN_IF_ERROR(check_blas(job.trainer.slow_blas));
  STARLING_ASSIGN_OR_RETURN(ModelShape shape, model_shape(job, dataset));
  if (shape.precision == Precision::kBFloat16) STARLING_RETURN_IF_ERROR(probe_bfloat16());
  std::unique_ptr<Trainer> trainer(
      new Trainer(job, std::move(clients), std::move(options), std::move(shape)));
  STARLING_RETURN_IF_ERROR(trainer->make_learners());
  return trainer;
}

std::string Trainer::blas() { return blas_text(blas_facts()); }

Status Trainer::make_learners() {
  STARLING_ASSIGN_OR_RETURN(evaluating_, Learner::make(job_.model, shape_));
  const std::vector<ModelVariable>& variables = evaluating_->model().variables();
  STARLING_ASSIGN_OR_RETURN(schema_, create_option(job_, variables));
  if (!job_.train.tensor_fuse) {
    std::vector<std::string> tables;
    for (const v1::TableOptions& table : schema_.tables()) tables.push_back(table.name());
    for (const TrainerClients::OfLane& one : clients_.lanes) {
      parts_.push_back(std::make_unique<PartByPart>(*one.ps, tables));
    }
  }
  STARLING_ASSIGN_OR_RETURN(variables_,
                            Variables::make(job_, ps(), schema_, options_.ranks.size()));
  std::vector<std::span<float>> evaluated;
  for (const ModelVariable& variable : variables) evaluated_.emplace_back(variable.elements());
  evaluated.assign(evaluated_.begin(), evaluated_.end());
  evaluating_->bind(std::move(evaluated));
  for (size_t i = 0; i < options_.ranks.size(); ++i) {
    STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Learner> learner, Learner::make(job_.model, shape_));
    learner->bind(variables_->memory(i));
    learners_.push_back(std::move(learner));
  }
  if (job_.train.dump.empty()) return absl::OkStatus();
  STARLING_ASSIGN_OR_RETURN(dump_,
                            Dump::open(job_.train.dump, job_.train.dump_fields, shape_, variables));
  return absl::OkStatus();
}

// Of models that come with values.
Status Trainer::push_initial(Deadline deadline) {
  std::vector<DenseValues> values;
  for (const ModelVariable& variable : evaluating_->model().variables()) {
    if (variable.initial.empty()) continue;
    Tensor tensor = Tensor::allocate(DType::kFloat32, {static_cast<int64_t>(variable.elements())});
    std::copy(variable.initial.begin(), variable.initial.end(),
              tensor.mutable_values<float>().begin());
    values.push_back({.variable = variable.name, .values = std::move(tensor)});
  }
  return values.empty() ? absl::OkStatus()
                        : clients_.lanes.front().ps->push({}, std::move(values), deadline);
}

StatusOr<v1::CreateOption> Trainer::schema_of(const JobOptions& job,
                                              const v1::StartSampleReply& dataset) {
  STARLING_ASSIGN_OR_RETURN(const ModelShape shape, model_shape(job, dataset));
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, make_model(job.model, shape));
  return create_option(job, model->variables());
}

Status Trainer::save_network(const JobOptions& job, const v1::StartSampleReply& dataset,
                             DenseByName values, const std::string& path) {
  STARLING_ASSIGN_OR_RETURN(ModelShape shape, model_shape(job, dataset));
  // Values are float32 in any job, and so is what other programs compute with them.
  shape.precision = Precision::kFloat32;
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, make_model(job.model, shape));
  std::vector<std::span<float>> bound;
  for (const ModelVariable& variable : model->variables()) {
    const auto found = values.find(variable.name);
    if (found == values.end() || found->second.size() != variable.elements()) {
      return failed_precondition("model.{} has {} values in variable '{}', the cut has {}",
                                 job.model.name, variable.elements(), variable.name,
                                 found == values.end() ? 0 : found->second.size());
    }
    bound.emplace_back(found->second);
  }
  model->bind(bound);
  return model->save(path);
}

v1::FreezeOption Trainer::freeze_of(const JobOptions& job) {
  v1::FreezeOption freeze;
  if (job.train.staleness != kInfinite) {
    freeze.set_staleness(static_cast<uint32_t>(job.train.staleness));
  }
  freeze.set_ranks(static_cast<uint32_t>(job.train.threads * job.cluster.trainers));
  freeze.set_push_bytes_max(uint64_t{16} << 20);
  return freeze;
}

Status Trainer::start(v1::JobState state, Deadline deadline) {
  v1::SetJobOption option;
  if (state == v1::JOB_STATE_CREATED) {
    PsClient& ps = *clients_.lanes.front().ps;
    STARLING_RETURN_IF_ERROR(ps.create(schema_, deadline));
    STARLING_RETURN_IF_ERROR(push_initial(deadline));
    STARLING_ASSIGN_OR_RETURN(const uint64_t hash, ps.freeze(freeze_of(job_), deadline));
    option.set_state(v1::JOB_STATE_FROZEN);
    option.set_schema_hash(hash);
    STARLING_RETURN_IF_ERROR(clients_.scheduler->set_job(option, deadline).status());
  }
  STARLING_RETURN_IF_ERROR(join());
  option.set_state(v1::JOB_STATE_TRAINING);
  return clients_.scheduler->set_job(option, deadline).status();
}

Status Trainer::join() {
  for (const TrainerClients::OfLane& one : clients_.lanes) {
    STARLING_RETURN_IF_ERROR(one.ps->use_schema(schema_));
  }
  return absl::OkStatus();
}

// While it lives its worker can be cancelled.
class Trainer::Active {
 public:
  Active(Trainer& trainer, Worker& worker) : trainer_(trainer), worker_(worker) {
    const MutexLock lock(trainer_.mutex_);
    trainer_.active_.push_back(&worker_);
    if (trainer_.is_cancelled_) worker_.cancel();
  }
  ~Active() {
    const MutexLock lock(trainer_.mutex_);
    std::erase(trainer_.active_, &worker_);
  }
  Active(const Active&) = delete;
  Active& operator=(const Active&) = delete;

 private:
  Trainer& trainer_;
  Worker& worker_;
};

void Trainer::cancel() {
  stop();
  const MutexLock lock(mutex_);
  is_cancelled_ = true;
  for (Worker* worker : active_) worker->cancel();
}

Status Trainer::step(size_t index, Worker& worker, std::unique_ptr<StepBatch> batch,
                     Deadline deadline) {
  const RealClock clock{};
  Learner& learner = *learners_[index];
  StepTimes times;
  TimePoint since = clock.now();
  const auto lap = [&] {
    const TimePoint now = clock.now();
    return seconds_of(now - std::exchange(since, now));
  };
  STARLING_RETURN_IF_ERROR(
      variables_->refresh(index, std::min(deadline, Deadline::in(clock, kPullPatience))));
  times.dense = lap();
  const ModelInput& input = learner.gather(*batch);
  if (dump_ != nullptr) dump_->variables(learner.model().variables(), learner.values());
  times.gathering = lap();
  STARLING_ASSIGN_OR_RETURN(const double loss, learner.train());
  times.computing = lap();
  if (const std::optional<std::string> bad = learner.first_bad(loss); bad.has_value()) {
    return skip(worker, std::move(batch), *bad);
  }
  if (dump_ != nullptr) dump_->batch(*batch, input, learner.predictions(), loss);
  learner.clip(job_.train.clip_norm);
  note(learner, *batch, loss);
  STARLING_RETURN_IF_ERROR(push(learner, worker, std::move(batch), deadline));
  times.pushing = lap();
  note(times, worker);
  return absl::OkStatus();
}

Status Trainer::push(Learner& learner, Worker& worker, std::unique_ptr<StepBatch> batch,
                     Deadline deadline) {
  std::vector<std::span<const float>> gradients;
  for (const Tensor& gradient : learner.variable_gradients()) {
    gradients.push_back(gradient.values<float>());
  }
  STARLING_ASSIGN_OR_RETURN(const bool is_applied, variables_->apply(gradients, batch->step));
  std::vector<WorkerVariable> dense;
  for (size_t i = 0; i < gradients.size() && !is_applied; ++i) {
    dense.push_back({.options = &schema_.variables(static_cast<int>(i)),
                     .gradient = learner.variable_gradients()[i]});
  }
  return worker.push(std::move(batch), learner.gradients(), dense, deadline);
}

Status Trainer::skip(Worker& worker, std::unique_ptr<StepBatch> batch, const std::string& bad) {
  if (job_.train.on_nan == "stop") {
    return invalid_argument(
        "batch {}/{}/{} gives what is not a number: {}; train.on_nan: skip leaves such batches out",
        batch->id.epoch(), batch->id.item(), batch->id.number(), bad);
  }
  worker.refuse(std::move(batch));
  const MutexLock lock(mutex_);
  ++progress_.skipped;
  return absl::OkStatus();
}

void Trainer::note(const StepTimes& times, const Worker& worker) {
  const v1::DatasetCounts counts = worker.dataset_counts();
  const uint64_t staleness = worker.counts().staleness_max;
  const MutexLock lock(mutex_);
  progress_.hub = counts;
  progress_.staleness_max = std::max(progress_.staleness_max, staleness);
  progress_.times.add(times);
}

void Trainer::note(const Learner& learner, const StepBatch& batch, double loss) {
  // Labels behind the first are measured by evaluations alone.
  const std::vector<float> predictions = column_of(learner.predictions(), 0, shape_.labels);
  const std::vector<float> labels = column_of(floats(batch.labels), 0, shape_.labels);
  const MutexLock lock(mutex_);
  window_.scores.add(predictions, labels, floats(batch.weights));
  window_.loss += loss;
  ++window_.batches;
  progress_.samples += batch.layout.samples();
  ++progress_.batches;
  staleness_sum_ += static_cast<double>(batch.staleness);
  progress_.staleness_mean = staleness_sum_ / static_cast<double>(progress_.batches);
  window_samples_ += batch.layout.samples();
  if (window_samples_ >= static_cast<uint64_t>(job_.train.window_samples)) begin_window();
}

void Trainer::begin_window() {
  last_ = std::exchange(window_, TrainWindow());
  window_samples_ = 0;
}

Status Trainer::begin_epoch(uint32_t epoch, const OnEpoch& on_epoch) {
  // Whoever comes first evaluates; the others of this process train on behind it.
  const MutexLock lock(epoch_mutex_);
  if (epoch <= epoch_) return absl::OkStatus();
  const uint32_t over = epoch_;
  epoch_ = epoch;
  return on_epoch(over);
}

Status Trainer::train_rank(size_t index, const v1::StartSampleOption& dataset,
                           const OnEpoch& on_epoch, Deadline deadline) {
  const size_t lane = index % clients_.lanes.size();
  Worker worker(*clients_.lanes[lane].hubs, ps(lane),
                {.dataset = dataset,
                 .rank = options_.ranks[index],
                 .start_clock = clocks_[index],
                 .staleness = options_.staleness,
                 .ahead = options_.ahead});
  const Active active(*this, worker);
  while (!stopping_.load(std::memory_order_relaxed)) {
    STARLING_ASSIGN_OR_RETURN(std::unique_ptr<StepBatch> batch, worker.next(deadline));
    if (batch == nullptr) break;
    STARLING_RETURN_IF_ERROR(begin_epoch(batch->id.epoch(), on_epoch));
    STARLING_RETURN_IF_ERROR(step(index, worker, std::move(batch), deadline));
  }
  STARLING_RETURN_IF_ERROR(worker.flush(deadline));
  clocks_[index] = worker.clock();
  {
    const MutexLock lock(mutex_);
    progress_.hub = worker.dataset_counts();
  }
  return stopping_.load(std::memory_order_relaxed) ? cancelled("stopped") : absl::OkStatus();
}

Status Trainer::train(const v1::StartSampleOption& dataset, const OnEpoch& on_epoch,
                      Deadline deadline) {
  {
    const MutexLock lock(epoch_mutex_);
    epoch_ = dataset.first_epoch();
  }
  std::vector<Status> ends(learners_.size());
  std::vector<Thread> threads;
  for (size_t i = 0; i < learners_.size(); ++i) {
    threads.emplace_back(ThreadOptions{.name = fmt::format("worker-{}", i)}, [&, i] {
      ends[i] = train_rank(i, dataset, on_epoch, deadline);
      if (!ends[i].ok()) stop();
    });
  }
  for (Thread& thread : threads) thread.join();
  stopping_.store(false, std::memory_order_relaxed);
  for (const Status& end : ends) {
    if (!end.ok() && end.code() != StatusCode::kCancelled) return end;
  }
  STARLING_RETURN_IF_ERROR(variables_->store(deadline));
  for (const Status& end : ends) STARLING_RETURN_IF_ERROR(end);
  return dump_ != nullptr ? dump_->close() : absl::OkStatus();
}

Status Trainer::score(const v1::StartSampleOption& dataset, const OnScored& on_scored,
                      Deadline deadline) {
  Learner& learner = *evaluating_;
  STARLING_RETURN_IF_ERROR(variables_->snapshot(learner.values(), deadline));
  Worker worker(*clients_.lanes.front().hubs, ps(),
                {.dataset = dataset, .trains = false, .ahead = options_.ahead});
  const Active active(*this, worker);
  while (true) {
    STARLING_ASSIGN_OR_RETURN(std::unique_ptr<StepBatch> batch, worker.next(deadline));
    if (batch == nullptr) break;
    learner.gather(*batch);
    STARLING_RETURN_IF_ERROR(learner.predict());
    on_scored(*batch, learner.predictions());
    worker.done(std::move(batch));
  }
  return worker.flush(deadline);
}

StatusOr<Evaluation> Trainer::evaluate(const v1::StartSampleOption& dataset, Deadline deadline) {
  EvaluatorOptions how;
  if (job_.train.exact_auc) how.buckets = 0;
  std::vector<Evaluator> evaluators(shape_.labels, Evaluator(how));
  const auto add = [&](const StepBatch& batch, std::span<const float> predictions) {
    for (size_t label = 0; label < shape_.labels; ++label) {
      evaluators[label].add(column_of(predictions, label, shape_.labels),
                            column_of(floats(batch.labels), label, shape_.labels),
                            floats(batch.weights),
                            batch.groups.has_value() ? batch.groups->values<uint64_t>()
                                                     : std::span<const uint64_t>());
    }
  };
  STARLING_RETURN_IF_ERROR(score(dataset, add, deadline));
  Evaluation out = evaluators.front().result();
  for (size_t label = 1; label < shape_.labels; ++label) {
    out.more.push_back(evaluators[label].result());
  }
  return out;
}

TrainProgress Trainer::progress() const {
  const MutexLock lock(mutex_);
  return progress_;
}

TrainWindow Trainer::window() const {
  const MutexLock lock(mutex_);
  return last_;
}

}  // namespace starling
