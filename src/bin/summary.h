// The words in which a run tells what it trains, how well, and what to do next.
//
// Uses: conf, trainer, wire. Threads: free functions.
#pragma once

#include <string>
#include <vector>

#include "conf/options.h"
#include "trainer/trainer.h"

namespace starling {

struct RunSummary {
  std::string job_file;
  std::string score;  // of the last evaluation; empty: none
  std::string cut;    // empty: none
  std::vector<v1::StatReply> stats;
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
std::string resume_command(const std::string& job_file);

// Bytes of a line of the first file that the patterns name, about.
double line_bytes(const std::vector<std::string>& patterns);

}  // namespace starling
