#include "trainer/trainer.h"

#include <cmath>

#include "base/thread.h"
#include "trainer/schema.h"

namespace starling {
namespace {

double seconds_of(Duration time) { return std::chrono::duration<double>(time).count(); }

std::span<const float> floats(const std::optional<Tensor>& tensor) {
  return tensor.has_value() ? tensor->values<float>() : std::span<const float>();
}

}  // namespace

// One worker's network and its memory.
struct Trainer::Network {
  std::unique_ptr<Model> model;
  std::vector<DenseCopy> copies;           // as they were pulled
  std::vector<std::vector<float>> values;  // what the model is bound to
  std::vector<Tensor> gradients;           // one per variable
  std::vector<float> pooled, pooled_gradient, predictions;
  uint64_t steps = 0;
  StepTimes times;  // of the step at hand

  ModelInput input(const StepBatch& batch) {
    pooled.resize(size_t{batch.layout.samples()} * batch.layout.width());
    batch.layout.gather(pooled);
    return {.samples = batch.layout.samples(),
            .pooled = pooled,
            .dense = floats(batch.dense),
            .labels = floats(batch.labels),
            .weights = floats(batch.weights)};
  }
};

Trainer::Trainer(const JobOptions& job, TrainerClients clients, Options options, ModelShape shape)
    : job_(job),
      clients_(clients),
      options_(std::move(options)),
      shape_(std::move(shape)),
      clocks_(options_.ranks.size(), options_.start_clock) {}
Trainer::~Trainer() = default;

StatusOr<std::unique_ptr<Trainer>> Trainer::make(const JobOptions& job, TrainerClients clients,
                                                 Options options,
                                                 const v1::StartSampleReply& dataset) {
  STARLING_ASSIGN_OR_RETURN(ModelShape shape, model_shape(job, dataset));
  std::unique_ptr<Trainer> trainer(new Trainer(job, clients, std::move(options), std::move(shape)));
  for (size_t i = 0; i < trainer->options_.ranks.size(); ++i) {
    STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Network> network, trainer->make_network());
    trainer->networks_.push_back(std::move(network));
  }
  STARLING_ASSIGN_OR_RETURN(trainer->evaluating_, trainer->make_network());
  STARLING_ASSIGN_OR_RETURN(trainer->schema_,
                            create_option(job, trainer->networks_.front()->model->variables()));
  return trainer;
}

StatusOr<std::unique_ptr<Trainer::Network>> Trainer::make_network() const {
  auto network = std::make_unique<Network>();
  STARLING_ASSIGN_OR_RETURN(network->model, make_model(job_.model, shape_));
  std::vector<std::span<float>> bound;
  for (const ModelVariable& variable : network->model->variables()) {
    bound.emplace_back(network->values.emplace_back(variable.elements()));
    network->copies.push_back({.variable = variable.name});
    network->gradients.push_back(
        Tensor::allocate(DType::kFloat32, {static_cast<int64_t>(variable.elements())}));
  }
  network->model->bind(bound);
  return network;
}

Status Trainer::start(Deadline deadline) {
  STARLING_RETURN_IF_ERROR(clients_.ps->create(schema_, deadline));
  v1::FreezeOption freeze;
  if (options_.staleness.has_value()) freeze.set_staleness(*options_.staleness);
  freeze.set_ranks(static_cast<uint32_t>(job_.train.threads * job_.cluster.trainers));
  freeze.set_push_bytes_max(uint64_t{16} << 20);
  STARLING_ASSIGN_OR_RETURN(const uint64_t hash, clients_.ps->freeze(freeze, deadline));
  for (const v1::JobState state : {v1::JOB_STATE_FROZEN, v1::JOB_STATE_TRAINING}) {
    v1::SetJobOption option;
    option.set_state(state);
    option.set_schema_hash(hash);
    STARLING_RETURN_IF_ERROR(clients_.scheduler->set_job(option, deadline).status());
  }
  return absl::OkStatus();
}

Status Trainer::pull_dense(Network& network, Deadline deadline) {
  const RealClock clock;
  const TimePoint since = clock.now();
  STARLING_ASSIGN_OR_RETURN(network.copies,
                            clients_.ps->pull_dense(std::move(network.copies), deadline));
  for (size_t i = 0; i < network.copies.size(); ++i) {
    const std::span<const float> values = network.copies[i].values.values<float>();
    std::copy(values.begin(), values.end(), network.values[i].begin());
  }
  network.times.dense += seconds_of(clock.now() - since);
  return absl::OkStatus();
}

Status Trainer::step(Network& network, Worker& worker, std::unique_ptr<StepBatch> batch,
                     Deadline deadline) {
  const RealClock clock;
  if (network.steps++ % options_.dense_every == 0) {
    STARLING_RETURN_IF_ERROR(pull_dense(network, deadline));
  }
  TimePoint since = clock.now();
  const ModelInput input = network.input(*batch);
  network.pooled_gradient.resize(network.pooled.size());
  network.predictions.resize(size_t{input.samples} * shape_.labels);
  ModelOutput out{.predictions = network.predictions, .pooled = network.pooled_gradient};
  for (Tensor& gradient : network.gradients) {
    // The push before may still be on its way with the memory of the last step.
    gradient = Tensor::allocate(DType::kFloat32, gradient.shape());
    out.variables.push_back(gradient.mutable_values<float>());
  }
  network.times.gathering += seconds_of(clock.now() - since);
  since = clock.now();
  STARLING_ASSIGN_OR_RETURN(const double loss, network.model->train(input, out));
  network.times.computing += seconds_of(clock.now() - since);
  if (!std::isfinite(loss)) {
    return invalid_argument("the loss of batch {}/{}/{} is not a number", batch->id.epoch(),
                            batch->id.item(), batch->id.number());
  }
  note(network, *batch, loss);
  since = clock.now();
  std::vector<WorkerVariable> dense;
  for (size_t i = 0; i < network.gradients.size(); ++i) {
    dense.push_back(
        {.options = &schema_.variables(static_cast<int>(i)), .gradient = network.gradients[i]});
  }
  const Status pushed =
      worker.push(std::move(batch), {.pooled = network.pooled_gradient}, dense, deadline);
  network.times.pushing += seconds_of(clock.now() - since);
  return pushed;
}

void Trainer::note(const Network& network, const StepBatch& batch, double loss) {
  const MutexLock lock(mutex_);
  if (shape_.labels == 1) {
    window_.add(network.predictions, floats(batch.labels), floats(batch.weights));
  }
  window_loss_ += loss;
  ++window_batches_;
  progress_.samples += batch.layout.samples();
  ++progress_.batches;
  window_samples_ += batch.layout.samples();
  if (window_samples_ < options_.window_samples) return;
  progress_.window = window_.result();
  progress_.loss = window_loss_ / static_cast<double>(window_batches_);
  window_.clear();
  window_loss_ = 0;
  window_batches_ = 0;
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
  Worker worker(*clients_.hubs, *clients_.ps,
                {.dataset = dataset,
                 .rank = options_.ranks[index],
                 .start_clock = clocks_[index],
                 .staleness = options_.staleness,
                 .ahead = options_.ahead});
  Network& network = *networks_[index];
  while (!stopping_.load(std::memory_order_relaxed)) {
    STARLING_ASSIGN_OR_RETURN(std::unique_ptr<StepBatch> batch, worker.next(deadline));
    if (batch == nullptr) break;
    STARLING_RETURN_IF_ERROR(begin_epoch(batch->id.epoch(), on_epoch));
    STARLING_RETURN_IF_ERROR(step(network, worker, std::move(batch), deadline));
    const MutexLock lock(mutex_);
    progress_.hub = worker.dataset_counts();
    progress_.staleness_max = std::max(progress_.staleness_max, worker.counts().staleness_max);
    progress_.times.add(std::exchange(network.times, {}));
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
  std::vector<Status> ends(networks_.size());
  std::vector<Thread> threads;
  for (size_t i = 0; i < networks_.size(); ++i) {
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
  for (const Status& end : ends) STARLING_RETURN_IF_ERROR(end);
  return absl::OkStatus();
}

StatusOr<Evaluation> Trainer::evaluate(const v1::StartSampleOption& dataset, Deadline deadline) {
  Network& network = *evaluating_;
  STARLING_RETURN_IF_ERROR(pull_dense(network, deadline));
  Worker worker(*clients_.hubs, *clients_.ps,
                {.dataset = dataset, .trains = false, .ahead = options_.ahead});
  Evaluator evaluator;
  while (true) {
    STARLING_ASSIGN_OR_RETURN(std::unique_ptr<StepBatch> batch, worker.next(deadline));
    if (batch == nullptr) break;
    const ModelInput input = network.input(*batch);
    network.predictions.resize(size_t{input.samples} * shape_.labels);
    STARLING_RETURN_IF_ERROR(network.model->predict(input, network.predictions));
    evaluator.add(network.predictions, floats(batch->labels), floats(batch->weights),
                  batch->groups.has_value() ? batch->groups->values<uint64_t>()
                                            : std::span<const uint64_t>());
    worker.done(std::move(batch));
  }
  STARLING_RETURN_IF_ERROR(worker.flush(deadline));
  return evaluator.result();
}

TrainProgress Trainer::progress() const {
  const MutexLock lock(mutex_);
  return progress_;
}

}  // namespace starling
