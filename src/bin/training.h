// Training is one trainer's part of a job, from the start of its dataset to the end of the job. One
// of the trainers leads: it starts the job, makes cuts, evaluates, writes metrics and ends it; when
// it dies another one does.
//
// Uses: JobClient, trainer, hub's options. Threads: run() is called by one thread and waits there;
// workers, evaluations and cuts have threads of their own.
#pragma once

#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "base/thread.h"
#include "bin/dense_keeper.h"
#include "bin/job_client.h"
#include "bin/progress.h"
#include "bin/summary.h"
#include "trainer/trainer.h"

namespace starling {

class Training {
 public:
  enum class Asked { kNothing, kSaveAndStop, kLeave };
  enum class End { kDone, kStopped };
  struct Options {
    RunCommand command;        // for the commands of the summary
    std::string metrics_path;  // empty: none are written
    std::function<void(const RunProgress&)> show;
    std::function<void(const std::string&)> say;  // from any thread
    // Waits a moment; answers what the process was asked to do meanwhile.
    std::function<Asked()> wait;
    // Of jobs with dense.home trainer: somebody who has the variables stored at each cut.
    std::function<StatusOr<std::unique_ptr<DenseKeeper>>(DenseKeeper::Store)> keep_dense;
  };

  // Both outlive it.
  Training(const JobOptions& job, JobClient& client, Options options);
  ~Training();

  // To the end of the job. kStopped: it was asked to, or the job was ended by somebody else.
  // Errors: as the hubs, the ps and the trainer say; the job has failed, or this process left it.
  StatusOr<End> run();

 private:
  struct Best {
    double auc = 0;
    bool is_new = false;
  };

  Status prepare();
  Status start_dataset();
  Status start_job(Deadline deadline);
  Status wait_for_trainers(Deadline deadline);
  // True once this trainer is the one.
  bool try_lead();
  void tell_start();

  Status on_epoch(uint32_t epoch);
  Status evaluate(const std::string& what);
  StatusOr<uint32_t> take_evaluation();

  StatusOr<End> loop();
  void lead_turn(const RunProgress& now);
  // Takes this trainer's last window and, of several trainers, all.
  void update_window();
  RunProgress progress();
  void begin_save(bool is_best);
  // In synchronous jobs whoever joins has its share of batches from the next cut on: it asks for
  // one.
  bool lacks_seat() const;
  void ask_for_seat();
  void begin_evaluation();
  StatusOr<End> stop_with_cut();
  StatusOr<End> leave();
  Status finish();
  Status final_cut();
  // Fills in what was trained and skipped. Internal: not everything was.
  Status count_samples(RunSummary& summary);
  void summarise(RunSummary summary);
  void write_metrics(const std::string& line);
  void read_old_metrics();
  void end_threads();

  const JobOptions& job_;
  JobClient& client_;
  const Options options_;
  const RealClock clock_;
  const TimePoint since_;

  v1::StartSampleOption dataset_;
  uint32_t first_epoch_ = 0;
  uint64_t batches_before_ = 0;  // that the cut had trained
  uint64_t samples_before_ = 0;  // of these, about
  double lines_total_ = -1;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<DenseKeeper> keeper_;  // ends before the trainer
  bool leads_ = false;
  TimePoint next_lead_, next_metrics_, next_save_, next_evaluation_, next_window_, next_seat_;
  TrainWindow window_;
  uint64_t evaluated_steps_ = 0;
  uint64_t rate_samples_ = 0;
  TimePoint rate_since_;
  double rate_ = 0;
  double part_first_ = -1;

  std::atomic<bool> is_saving_{false};
  std::atomic<bool> is_evaluating_{false};
  std::atomic<bool> is_ending_{false};
  Thread training_, saving_, evaluating_;
  std::atomic<bool> is_trained_{false};
  Status trained_;  // of the thread `train`, when is_trained_

  Mutex evaluate_mutex_;  // one at a time
  Mutex mutex_;
  Best best_ ABSL_GUARDED_BY(mutex_);
  std::string newest_cut_ ABSL_GUARDED_BY(mutex_);
  std::string last_score_ ABSL_GUARDED_BY(mutex_);
  std::ofstream metrics_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling
