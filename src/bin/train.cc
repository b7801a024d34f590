// The program behind `starling train`: a whole job in this process, with libtorch.
#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/mutex.h"
#include "base/thread.h"
#include "bin/local_job.h"
#include "bin/process.h"
#include "hub/options.h"

namespace starling {
namespace {

constexpr const char* kHelp =
    R"(usage: starling train JOB.yaml [--set KEY=VALUE]...

Runs a whole job in this process: scheduler, parameter servers, hubs and a trainer with train.threads workers. Shows the
progress, evaluates on data.test after each epoch, and ends with status 0 when every sample has been trained.
  --print-config  print every value and where it came from, and end
)";

constexpr Duration kStartPatience = seconds(60);
constexpr Duration kShow = milliseconds(500);

// One line that is written over on a terminal, plain lines elsewhere, not more often than wanted.
class ProgressLine {
 public:
  void show(const std::string& text, bool is_due) {
    if (is_terminal_) {
      fmt::print("\r{:<100}", text);
      std::fflush(stdout);
      is_open_ = true;
    } else if (is_due) {
      fmt::print("{}\n", text);
      std::fflush(stdout);
    }
  }
  void end() {
    if (is_open_) fmt::print("\n");
    is_open_ = false;
  }

 private:
  const bool is_terminal_ = ::isatty(STDOUT_FILENO) == 1;
  bool is_open_ = false;
};

std::string progress_text(const TrainProgress& now, double seconds) {
  const double rate = seconds > 0 ? static_cast<double>(now.samples) / seconds : 0;
  std::string text = fmt::format("{:>10} samples  {:>8.0f}/s", now.samples, rate);
  if (now.window.samples > 0) {
    text += fmt::format("  loss {:.4f}  AUC {:.4f}", now.loss, now.window.auc);
  }
  if (now.hub.bytes_total() > 0) {
    const double part =
        static_cast<double>(now.hub.bytes_read()) / static_cast<double>(now.hub.bytes_total());
    // Bytes are those of whole chunks, which may reach behind the end of a range.
    text += fmt::format("  read {:.0f} %", std::min(100.0, 100 * part));
  }
  return text;
}

// Trains to the end of the data and shows how far it is.
Status train_all(Trainer& trainer, const v1::StartSampleOption& dataset,
                 const Trainer::OnEpoch& on_epoch) {
  const RealClock clock;
  const TimePoint since = clock.now();
  Status ended;
  std::atomic<bool> is_over{false};
  ProgressLine line;
  Mutex mutex;  // of the line: an evaluation prints between two of its states
  Thread thread({.name = "train"}, [&] {
    const auto tell = [&](uint32_t epoch) {
      const MutexLock lock(mutex);
      line.end();
      return on_epoch(epoch);
    };
    ended = trainer.train(dataset, tell, Deadline::never());
    is_over.store(true, std::memory_order_release);
  });
  for (uint64_t turn = 0; !is_over.load(std::memory_order_acquire); ++turn) {
    std::this_thread::sleep_for(kShow);
    const double passed = std::chrono::duration<double>(clock.now() - since).count();
    const MutexLock lock(mutex);
    line.show(progress_text(trainer.progress(), passed), turn % 20 == 19);
  }
  thread.join();
  line.end();
  return ended;
}

Status evaluate(const JobOptions& job, LocalJob& local, Trainer& trainer, uint32_t epoch) {
  if (job.data.test.empty()) return absl::OkStatus();
  STARLING_ASSIGN_OR_RETURN(const v1::StartSampleOption test, test_dataset(job, epoch));
  const Deadline soon = Deadline::in(RealClock(), kStartPatience);
  STARLING_RETURN_IF_ERROR(local.clients().hubs->start(test, soon).status());
  STARLING_ASSIGN_OR_RETURN(const Evaluation scored, trainer.evaluate(test, Deadline::never()));
  fmt::print("epoch {} of {}: AUC {:.4f}  log loss {:.4f}  on {} samples held out\n", epoch + 1,
             job.data.epochs, scored.auc, scored.log_loss, scored.samples);
  std::fflush(stdout);
  return absl::OkStatus();
}

StatusOr<int> train(const JobOptions& job) {
  STARLING_ASSIGN_OR_RETURN(const Log log, open_log(job.log, "train"));
  const Deadline soon = Deadline::in(RealClock(), kStartPatience);
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<LocalJob> local, LocalJob::start(job, log, soon));
  STARLING_ASSIGN_OR_RETURN(const v1::StartSampleOption dataset, train_dataset(job));
  STARLING_ASSIGN_OR_RETURN(const v1::StartSampleReply told,
                            local->clients().hubs->start(dataset, soon));
  Trainer::Options options;
  options.ranks = {local->trainer().ranks().begin(), local->trainer().ranks().end()};
  options.start_clock = local->trainer().start_clock();
  options.ahead = static_cast<uint32_t>(job.trainer.prefetch);
  options.staleness = staleness_of(job);
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                            Trainer::make(job, local->clients(), std::move(options), told));
  STARLING_RETURN_IF_ERROR(trainer->start(soon));
  STARLING_RETURN_IF_ERROR(train_all(
      *trainer, dataset, [&](uint32_t epoch) { return evaluate(job, *local, *trainer, epoch); }));
  STARLING_RETURN_IF_ERROR(
      evaluate(job, *local, *trainer, static_cast<uint32_t>(job.data.epochs) - 1));
  const TrainProgress end = trainer->progress();
  fmt::print("{} samples read, {} trained, {} skipped by rule\n", end.hub.samples_read(),
             end.samples, end.hub.samples_skipped());
  return 0;
}

StatusOr<int> run(std::vector<std::string> arguments) {
  if (take_switch(arguments, "--help") || take_switch(arguments, "-h")) {
    fmt::print("{}", kHelp);
    return 0;
  }
  STARLING_ASSIGN_OR_RETURN(Flags flags, take_flags(arguments));
  if (flags.job.empty() && !arguments.empty()) {
    flags.job = arguments.front();
    arguments.erase(arguments.begin());
  }
  STARLING_RETURN_IF_ERROR(no_more(arguments, "train"));
  STARLING_ASSIGN_OR_RETURN(const Job job, load_job(flags));
  if (flags.print_config) {
    fmt::print("{}", print_settings(job));
    return 0;
  }
  return train(job.options);
}

}  // namespace
}  // namespace starling

int main(int argc, char** argv) {
  google::protobuf::SetLogHandler(nullptr);
  const starling::StatusOr<int> result = starling::run({argv + 1, argv + argc});
  if (result.ok()) return *result;
  fmt::print(stderr, "starling train: {}\n", starling::message_of(result.status()));
  return 1;
}
