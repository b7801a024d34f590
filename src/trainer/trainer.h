// Trainer is one trainer of a job: a network per worker, and workers that train the batches of a
// dataset until its end or score those of another.
//
// Uses: worker, clients of scheduler, ps and hub, the Model door. Threads: train() and evaluate()
// run `threads` workers and wait for them; progress() from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "conf/options.h"
#include "hub/client.h"
#include "ps/client.h"
#include "trainer/evaluator.h"
#include "trainer/model.h"
#include "worker/worker.h"

namespace starling {

struct TrainerClients {
  SchedulerClient* scheduler = nullptr;
  PsClient* ps = nullptr;
  HubClient* hubs = nullptr;
};

// Seconds of all workers.
struct StepTimes {
  double computing = 0;  // forward and backward
  double gathering = 0;  // rows to the network's input
  double dense = 0;      // pulling the dense variables
  double pushing = 0;    // gradients to messages, and waiting for room
  void add(const StepTimes& other) {
    computing += other.computing;
    gathering += other.gathering;
    dense += other.dense;
    pushing += other.pushing;
  }
};

// What a person wants to see while it trains.
struct TrainProgress {
  uint64_t samples = 0;   // pushed
  uint64_t batches = 0;   // of these
  double loss = 0;        // mean of the last window
  Evaluation window;      // of the last window of samples
  v1::DatasetCounts hub;  // of all hubs, as each told last
  uint64_t staleness_max = 0;
  StepTimes times;
};

class Trainer {
 public:
  struct Options {
    std::vector<uint32_t> ranks;  // one worker each
    uint64_t start_clock = 0;
    std::optional<uint32_t> staleness;
    uint32_t ahead = 2;
    uint32_t dense_every = 1;          // steps between pulls of the dense variables
    uint64_t window_samples = 100000;  // of progress
  };

  // `dataset`: what the hubs answered of the samples. InvalidArgument: the model does not fit them.
  static StatusOr<std::unique_ptr<Trainer>> make(const JobOptions& job, TrainerClients clients,
                                                 Options options,
                                                 const v1::StartSampleReply& dataset);
  ~Trainer();

  const ModelShape& shape() const { return shape_; }
  // Creates tables and variables, freezes them and starts the job: the first trainer's to do.
  Status start(Deadline deadline);
  // Trains a dataset that the hubs have started to its end. Any error ends all workers. `on_epoch`
  // is called between epochs, with the one that is over, by a worker that waits meanwhile; in
  // synchronous jobs all others wait, too.
  using OnEpoch = std::function<Status(uint32_t epoch)>;
  Status train(const v1::StartSampleOption& dataset, const OnEpoch& on_epoch, Deadline deadline);
  // Scores every sample of a dataset.
  StatusOr<Evaluation> evaluate(const v1::StartSampleOption& dataset, Deadline deadline);
  TrainProgress progress() const;
  // The workers end after the step at hand; train() answers Cancelled.
  void stop() { stopping_.store(true, std::memory_order_relaxed); }

 private:
  struct Network;  // one worker's
  Trainer(const JobOptions& job, TrainerClients clients, Options options, ModelShape shape);

  Status train_rank(size_t worker, const v1::StartSampleOption& dataset, const OnEpoch& on_epoch,
                    Deadline deadline);
  StatusOr<std::unique_ptr<Network>> make_network() const;
  Status begin_epoch(uint32_t epoch, const OnEpoch& on_epoch);
  Status step(Network& network, Worker& worker, std::unique_ptr<StepBatch> batch,
              Deadline deadline);
  Status pull_dense(Network& network, Deadline deadline);
  void note(const Network& network, const StepBatch& batch, double loss);

  const JobOptions job_;
  const TrainerClients clients_;
  const Options options_;
  const ModelShape shape_;
  v1::CreateOption schema_;
  std::vector<std::unique_ptr<Network>> networks_;  // one per worker
  std::unique_ptr<Network> evaluating_;
  std::vector<uint64_t> clocks_;  // of each rank's next step
  std::atomic<bool> stopping_{false};

  Mutex epoch_mutex_;
  uint32_t epoch_ ABSL_GUARDED_BY(epoch_mutex_) = 0;

  mutable Mutex mutex_;
  TrainProgress progress_ ABSL_GUARDED_BY(mutex_);
  Evaluator window_ ABSL_GUARDED_BY(mutex_);
  double window_loss_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t window_batches_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t window_samples_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace starling
