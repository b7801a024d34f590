// `starling eval` and `starling predict`: the model of a cut on samples, in this process.
#include <fmt/format.h>

#include <map>

#include "bin/beside.h"
#include "bin/job_client.h"
#include "bin/local_job.h"
#include "bin/process.h"
#include "bin/summary.h"
#include "hub/options.h"
#include "trainer/trainer.h"

namespace starling {
namespace {

constexpr const char* kEvalHelp =
    R"(usage: starling eval JOB.yaml --checkpoint PATH [--set KEY=VALUE]...

Measures the model of a cut on data.test, in this process.
  --checkpoint PATH  a cut, or a directory of cuts: then the newest
)";
constexpr const char* kPredictHelp =
    R"(usage: starling predict JOB.yaml --checkpoint PATH --input FILE --output FILE [--set KEY=VALUE]...

Writes one score per line of the input, in its order; several labels have a space between. The label's column may be empty
or, as the last of formats with counted columns, missing. A line that cannot be read ends it.
  --checkpoint PATH  a cut, or a directory of cuts: then the newest
  --input FILE       in the format of the job's data
  --output FILE      is there when all is written
)";

constexpr Duration kPatience = seconds(60);
constexpr Duration kRestorePatience = seconds(3600);

// The servers of a job with what a cut holds, and a trainer that only scores.
struct Scorer {
  std::unique_ptr<LocalJob> local;
  std::unique_ptr<JobClient> client;
  std::unique_ptr<Trainer> trainer;
  v1::StartSampleOption dataset;
};

// `input` empty: the samples of data.test.
StatusOr<v1::StartSampleOption> scored_dataset(const JobOptions& job, uint32_t number,
                                               const std::string& input) {
  JobOptions from = job;
  if (!input.empty()) {
    from.data.test = {input};
    from.data.split = {};
    from.data.on_bad_line = "fail";
  }
  STARLING_ASSIGN_OR_RETURN(v1::StartSampleOption out, test_dataset(from, number));
  if (!input.empty()) out.set_purpose(v1::PURPOSE_PREDICT);
  return out;
}

Status restore(LocalJob& local, const JobOptions& job, const Cut& cut) {
  const Deadline deadline = Deadline::in(RealClock(), kRestorePatience);
  STARLING_ASSIGN_OR_RETURN(
      const std::unique_ptr<JobClient> tool,
      JobClient::join(local.network(), {.scheduler = local.scheduler(), .name = "restore"},
                      deadline));
  Status restored = resume_job(*tool, cut, job, false, deadline).status();
  tool->leave(Deadline::in(RealClock(), kPatience));
  return restored;
}

// A job that only reads: one worker, no cuts, nobody waits for anybody.
JobOptions reading(JobOptions job) {
  job.train.staleness = kInfinite;
  job.train.threads = 1;
  job.cluster.trainers = 1;
  job.cluster.hubs = 1;
  job.checkpoint.path = "";
  return job;
}

StatusOr<Scorer> make_scorer(const JobOptions& job, const std::string& checkpoint,
                             const std::string& input) {
  STARLING_ASSIGN_OR_RETURN(const Log log, open_log({.level = "warning"}, "score"));
  const RealClock clock;
  const std::unique_ptr<FileSystems> files =
      FileSystems::standard({.incarnation = Incarnation{make_incarnation()}}, clock);
  STARLING_ASSIGN_OR_RETURN(const Cut cut, find_cut(*files, checkpoint, 0));
  Scorer out;
  const Deadline soon = Deadline::in(clock, kPatience);
  STARLING_ASSIGN_OR_RETURN(out.local, LocalJob::start(job, log, soon));
  STARLING_RETURN_IF_ERROR(restore(*out.local, job, cut));
  JobClient::Options member;
  member.scheduler = out.local->scheduler();
  member.role = v1::ROLE_TRAINER;
  member.name = "trainer-0";
  member.workers = 1;
  STARLING_ASSIGN_OR_RETURN(out.client, JobClient::join(out.local->network(), member, soon));
  STARLING_RETURN_IF_ERROR(out.client->wait_for_servers(1, soon));
  STARLING_ASSIGN_OR_RETURN(out.dataset, scored_dataset(job, evaluations_of(cut.manifest), input));
  STARLING_ASSIGN_OR_RETURN(const v1::StartSampleReply told,
                            out.client->hubs().start(out.dataset, soon));
  STARLING_ASSIGN_OR_RETURN(
      out.trainer,
      Trainer::make(job, {&out.client->scheduler(), {{&out.client->ps(), &out.client->hubs()}}},
                    {.ranks = {0}, .ahead = static_cast<uint32_t>(job.trainer.prefetch)}, told));
  STARLING_RETURN_IF_ERROR(out.trainer->join());
  return out;
}

StatusOr<int> predict(const JobOptions& job, const std::string& checkpoint,
                      const std::string& input, const std::string& output) {
  STARLING_ASSIGN_OR_RETURN(const Scorer scorer, make_scorer(job, checkpoint, input));
  // Batches of one item come in order; items are put in order here.
  std::map<std::pair<uint32_t, uint64_t>, std::vector<float>> scores;
  STARLING_RETURN_IF_ERROR(scorer.trainer->score(
      scorer.dataset,
      [&](const StepBatch& batch, std::span<const float> predictions) {
        scores[{batch.id.item(), batch.id.number()}] = {predictions.begin(), predictions.end()};
      },
      Deadline::never()));
  const uint32_t labels = scorer.trainer->shape().labels;
  std::string text;
  uint64_t lines = 0;
  for (const auto& [id, predictions] : scores) {
    for (size_t i = 0; i < predictions.size(); ++i) {
      text += fmt::format("{:.9g}{}", predictions[i], (i + 1) % labels == 0 ? '\n' : ' ');
    }
    lines += predictions.size() / labels;
  }
  const RealClock clock;
  const std::unique_ptr<FileSystems> files =
      FileSystems::standard({.incarnation = Incarnation{make_incarnation()}}, clock);
  STARLING_RETURN_IF_ERROR(write_file(*files, output, text));
  fmt::print("{} lines scored in {}\n", lines, output);
  return 0;
}

struct ScoreFlags {
  JobOptions job;
  std::string checkpoint;
};

StatusOr<ScoreFlags> take_score_flags(std::vector<std::string>& arguments,
                                      const std::string& command) {
  STARLING_ASSIGN_OR_RETURN(Flags flags, take_flags(arguments));
  ScoreFlags out;
  STARLING_ASSIGN_OR_RETURN(out.checkpoint, take_value(arguments, "--checkpoint"));
  if (flags.job.empty() && !arguments.empty()) {
    flags.job = arguments.front();
    arguments.erase(arguments.begin());
  }
  STARLING_RETURN_IF_ERROR(no_more(arguments, command));
  if (flags.job.empty()) return invalid_argument("a job file is needed");
  if (out.checkpoint.empty()) return invalid_argument("--checkpoint PATH is needed");
  STARLING_ASSIGN_OR_RETURN(const Job job, load_job(flags));
  out.job = reading(job.options);
  return out;
}

}  // namespace

StatusOr<int> eval_main(std::vector<std::string> arguments) {
  if (take_switch(arguments, "--help") || take_switch(arguments, "-h")) {
    fmt::print("{}", kEvalHelp);
    return 0;
  }
  STARLING_ASSIGN_OR_RETURN(const ScoreFlags flags, take_score_flags(arguments, "eval"));
  STARLING_ASSIGN_OR_RETURN(const Scorer scorer, make_scorer(flags.job, flags.checkpoint, ""));
  STARLING_ASSIGN_OR_RETURN(const Evaluation scored,
                            scorer.trainer->evaluate(scorer.dataset, Deadline::never()));
  fmt::print("{}\n", score_text(scored));
  return 0;
}

StatusOr<int> predict_main(std::vector<std::string> arguments) {
  if (take_switch(arguments, "--help") || take_switch(arguments, "-h")) {
    fmt::print("{}", kPredictHelp);
    return 0;
  }
  STARLING_ASSIGN_OR_RETURN(const std::string input, take_value(arguments, "--input"));
  STARLING_ASSIGN_OR_RETURN(const std::string output, take_value(arguments, "--output"));
  STARLING_ASSIGN_OR_RETURN(const ScoreFlags flags, take_score_flags(arguments, "predict"));
  if (input.empty()) return invalid_argument("--input FILE is needed");
  if (output.empty()) return invalid_argument("--output FILE is needed");
  return predict(flags.job, flags.checkpoint, input, output);
}

}  // namespace starling
