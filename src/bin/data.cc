// `starling data`: what a job's files look like through its options.
#include <fmt/format.h>

#include <charconv>

#include "bin/command.h"
#include "bin/process.h"
#include "hub/inspect.h"
#include "hub/options.h"
#include "store/file_systems.h"

namespace starling {
namespace {

constexpr const char* kDataHelp =
    R"(usage: starling data show  JOB.yaml [-n SAMPLES] [--test] [--set KEY=VALUE]...
       starling data stats JOB.yaml [-n SAMPLES] [--test] [--write FILE] [--set KEY=VALUE]...

show prints the first samples as the job's options read them: a line per field, a column per sample.
stats prints of every field in how many samples it is, how many keys there are (estimated) and the most frequent of them;
of numbers mean, deviation and range; of labels their rate.
  -n SAMPLES  how many: 5 of show, all of stats
  --test      of data.test instead of data.train
  --write FILE  mean and std of every dense field go to FILE, for data.stats of the job file; a normalise that has no
              constants of its own then takes them from there
)";

constexpr uint64_t kShown = 5;
constexpr uint64_t kShownMax = 1000;

}  // namespace

StatusOr<int> run_data(std::vector<std::string> arguments) {
  if (arguments.empty() || take_switch(arguments, "--help") || take_switch(arguments, "-h")) {
    fmt::print("{}", kDataHelp);
    return 0;
  }
  const std::string action = arguments.front();
  arguments.erase(arguments.begin());
  if (action != "show" && action != "stats") {
    return invalid_argument("unknown action '{}'; there are show and stats", action);
  }
  STARLING_ASSIGN_OR_RETURN(const std::string count, take_value(arguments, "-n"));
  const bool is_test = take_switch(arguments, "--test");
  if (!arguments.empty() && !arguments.front().starts_with('-')) {
    arguments.front() = "--job=" + arguments.front();
  }
  STARLING_ASSIGN_OR_RETURN(const std::string write, take_value(arguments, "--write"));
  if (!write.empty() && action != "stats") return invalid_argument("--write is of stats");
  STARLING_ASSIGN_OR_RETURN(Flags flags, take_flags(arguments));
  // What is about to be written is not there yet.
  if (!write.empty()) flags.sets.emplace_back("data.stats=''");
  STARLING_RETURN_IF_ERROR(no_more(arguments, "data"));
  uint64_t samples = action == "show" ? kShown : UINT64_MAX;
  if (!count.empty()) {
    const char* end = count.data() + count.size();
    const auto [at, error] = std::from_chars(count.data(), end, samples);
    const bool is_bad = error != std::errc() || at != end || samples == 0;
    if (is_bad || (action == "show" && samples > kShownMax)) {
      return invalid_argument("-n is '{}', 1 or more are allowed, of show at most {}", count,
                              kShownMax);
    }
  }
  STARLING_ASSIGN_OR_RETURN(Job job, load_job(flags));
  for (FieldSection& field : job.options.fields) {
    std::erase_if(field.transforms, [&](const Choice& choice) {
      return !write.empty() && choice.name == "normalise" && choice.params.members.empty();
    });
  }
  STARLING_ASSIGN_OR_RETURN(const v1::StartSampleOption option,
                            is_test ? test_dataset(job.options, 0) : train_dataset(job.options));
  const RealClock clock;
  const std::unique_ptr<FileSystems> files =
      FileSystems::standard({.incarnation = Incarnation{make_incarnation()}}, clock);
  STARLING_ASSIGN_OR_RETURN(
      const std::string text,
      action == "show" ? show_samples(*files, clock, option, static_cast<uint32_t>(samples))
                       : sample_stats(*files, clock, option, samples));
  fmt::print("{}", text);
  if (write.empty()) return 0;
  STARLING_ASSIGN_OR_RETURN(const std::string constants,
                            sample_constants(*files, clock, option, samples));
  STARLING_RETURN_IF_ERROR(write_file(*files, write, constants));
  fmt::print("the constants of dense fields are in {}\n", write);
  return 0;
}

}  // namespace starling
