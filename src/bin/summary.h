// The words in which a run tells what it trains, how well, and what to do next.
//
// Uses: conf, trainer, wire. Threads: free functions.
#pragma once

#include <string>
#include <vector>

#include "conf/flags.h"
#include "conf/options.h"
#include "trainer/trainer.h"

namespace starling {

// How a run was started, for the commands that go on with it.
struct RunCommand {
  Flags job;
  std::string run;  // its directory; empty: the default
  bool is_processes = false;

  std::string train() const { return train(is_processes); }
  std::string train(bool as_processes) const;
  std::string resume() const { return train() + " --resume"; }
  std::string evaluate(const std::string& cut) const;
};

struct RunSummary {
  RunCommand command;
  uint64_t batches_before = 0;  // trained by the runs that this one goes on with
  std::string score;            // of the last evaluation; empty: none
  std::string cut;              // empty: none
  std::vector<v1::StatReply> stats;
  uint64_t samples_trained = 0;  // as the scheduler's queues have it, whoever died
  uint64_t samples_skipped = 0;
  double time_s = 0;
};

// Model, tables, rows so far, memory.
std::string start_text(const JobOptions& job, const ModelShape& shape,
                       const std::vector<v1::StatReply>& stats, bool is_resumed);
std::string score_text(const Evaluation& scored);
// A line of metrics.jsonl.
std::string evaluation_json(const Evaluation& scored, double time_s, uint64_t steps);
std::string summary_text(const JobOptions& job, const TrainProgress& progress,
                         const RunSummary& summary);

// Bytes of a line of the first file that the patterns name, about.
double line_bytes(const std::vector<std::string>& patterns);

}  // namespace starling
