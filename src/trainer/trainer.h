// Trainer is one trainer of a job: a network per worker, and workers that train the batches of a
// dataset until its end or score those of another.
//
// Uses: worker, clients of scheduler, ps and hub, the Model door. Threads: train() and evaluate()
// run `threads` workers and wait for them; progress() from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "conf/options.h"
#include "hub/client.h"
#include "ps/client.h"
#include "trainer/dump.h"
#include "trainer/evaluator.h"
#include "trainer/learner.h"
#include "trainer/model.h"
#include "trainer/window.h"
#include "worker/part_by_part.h"
#include "worker/variables.h"
#include "worker/worker.h"

namespace starling {

struct TrainerClients {
  struct OfLane {
    PsClient* ps = nullptr;
    HubClient* hubs = nullptr;
  };
  SchedulerClient* scheduler = nullptr;
  std::vector<OfLane> lanes;  // workers take them in turn; the first serves all else
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
  v1::DatasetCounts hub;  // of all hubs, as each told last
  // Of all lookups: clocks by which the slowest rank was behind.
  uint64_t staleness_max = 0;
  double staleness_mean = 0;
  uint64_t skipped = 0;  // batches with a loss or gradient that is not a number
  StepTimes times;
};

class Trainer {
 public:
  struct Options {
    std::vector<uint32_t> ranks;  // one worker each
    uint64_t start_clock = 0;
    std::optional<uint32_t> staleness;
    uint32_t ahead = 2;
  };

  // `dataset`: what the hubs answered of the samples. InvalidArgument: the model does not fit them.
  // FailedPrecondition: this machine multiplies matrices slowly, or not in bfloat16.
  static StatusOr<std::unique_ptr<Trainer>> make(const JobOptions& job, TrainerClients clients,
                                                 Options options,
                                                 const v1::StartSampleReply& dataset);
  ~Trainer();

  // The tables and variables of a job, and how they are frozen. Codes as make().
  static StatusOr<v1::CreateOption> schema_of(const JobOptions& job,
                                              const v1::StartSampleReply& dataset);
  static v1::FreezeOption freeze_of(const JobOptions& job);
  // Writes the network of a job with these values, by variable, as Model::save() does.
  // FailedPrecondition: they are not the values of this job's network.
  using DenseByName = std::map<std::string, std::vector<float>>;
  static Status save_network(const JobOptions& job, const v1::StartSampleReply& dataset,
                             DenseByName values, const std::string& path);

  // What multiplies the matrices of this process, for a person.
  static std::string blas();

  const ModelShape& shape() const { return shape_; }
  // Brings the job from the state it is in to training: creates tables and variables, freezes them
  // and starts it. The first trainer's to do.
  Status start(v1::JobState state, Deadline deadline);
  // The same tables and variables, of a job that somebody else has started.
  Status join();
  // Trains a dataset that the hubs have started to its end. Any error ends all workers. `on_epoch`
  // is called between epochs, with the one that is over, by a worker that waits meanwhile; in
  // synchronous jobs all others wait, too.
  using OnEpoch = std::function<Status(uint32_t epoch)>;
  Status train(const v1::StartSampleOption& dataset, const OnEpoch& on_epoch, Deadline deadline);
  // Values of dense variables that this process keeps go to the ps: before each cut; train() does
  // it at its end.
  Status store_dense(Deadline deadline) { return variables_->store(deadline); }
  // Scores every sample of a dataset.
  StatusOr<Evaluation> evaluate(const v1::StartSampleOption& dataset, Deadline deadline);
  // The same, batch by batch; `predictions` (samples, labels).
  using OnScored = std::function<void(const StepBatch& batch, std::span<const float> predictions)>;
  Status score(const v1::StartSampleOption& dataset, const OnScored& on_scored, Deadline deadline);
  TrainProgress progress() const;
  // Of the last train.window_samples of this trainer; empty before.
  TrainWindow window() const;
  // The workers end after the step at hand; train() answers Cancelled.
  void stop() { stopping_.store(true, std::memory_order_relaxed); }
  // They end at once, and what they have is lost to this process: train() and evaluate() answer
  // Cancelled.
  void cancel();

 private:
  class Active;  // a worker while it runs
  Trainer(const JobOptions& job, TrainerClients clients, Options options, ModelShape shape);

  Status make_learners();
  // What the workers of a lane speak to.
  Communicator& ps(size_t lane = 0) {
    return parts_.empty() ? static_cast<Communicator&>(*clients_.lanes[lane].ps) : *parts_[lane];
  }
  Status push_initial(Deadline deadline);
  Status train_rank(size_t worker, const v1::StartSampleOption& dataset, const OnEpoch& on_epoch,
                    Deadline deadline);
  Status begin_epoch(uint32_t epoch, const OnEpoch& on_epoch);
  Status step(size_t index, Worker& worker, std::unique_ptr<StepBatch> batch, Deadline deadline);
  Status push(Learner& learner, Worker& worker, std::unique_ptr<StepBatch> batch,
              Deadline deadline);
  Status skip(Worker& worker, std::unique_ptr<StepBatch> batch, const std::string& bad);
  void note(const Learner& learner, const StepBatch& batch, double loss);
  void note(const StepTimes& times, const Worker& worker);
  void begin_window() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const JobOptions job_;
  const TrainerClients clients_;
  const Options options_;
  const ModelShape shape_;
  v1::CreateOption schema_;
  std::vector<std::unique_ptr<PartByPart>> parts_;  // empty: all of a step in one message
  std::unique_ptr<Variables> variables_;
  std::vector<std::unique_ptr<Learner>> learners_;  // one per worker
  std::unique_ptr<Learner> evaluating_;
  std::vector<std::vector<float>> evaluated_;  // the variables of that one
  std::unique_ptr<Dump> dump_;                 // null: none is asked for
  std::vector<uint64_t> clocks_;               // of each rank's next step
  std::atomic<bool> stopping_{false};

  Mutex epoch_mutex_;
  uint32_t epoch_ ABSL_GUARDED_BY(epoch_mutex_) = 0;

  mutable Mutex mutex_;
  bool is_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Worker*> active_ ABSL_GUARDED_BY(mutex_);
  TrainProgress progress_ ABSL_GUARDED_BY(mutex_);
  TrainWindow window_ ABSL_GUARDED_BY(mutex_);  // that fills now
  TrainWindow last_ ABSL_GUARDED_BY(mutex_);    // that is full
  uint64_t window_samples_ ABSL_GUARDED_BY(mutex_) = 0;
  double staleness_sum_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace starling
