// `starling generate`: data sets with a known truth.
#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "bin/command.h"
#include "bin/process.h"
#include "data/ctr_model.h"
#include "store/file_systems.h"
#include "trainer/evaluator.h"

namespace starling {
namespace {

constexpr const char* kGenerateHelp =
    R"(usage: starling generate ctr --out DIR [--samples N] [--test N] [--seed N] [--keys N] [--format criteo|multislot]

Writes click logs from a hidden model: 26 categorical fields with ids of Zipf frequency, 13 numbers, a label. The best AUC
that any model can reach on the test part is printed and written to DIR/best_auc.
  --out DIR      where train-0.tsv, train-1.tsv, ..., test.tsv and best_auc go; made when it is missing
  --samples N    lines to train on. Default: 1000000
  --test N       lines to test on. Default: a tenth of that
  --seed N       another data set. Default: 42
  --keys N       different ids of all fields together. Default: 2000000
  --format F     criteo (tabs and hexadecimal ids) or multislot (counted slots, some of several keys). Default: criteo
)";

constexpr uint64_t kLinesPerFile = 500'000;
constexpr size_t kWriteBytes = 1 << 20;

struct GenerateFlags {
  std::string out;
  uint64_t samples = 1'000'000;
  uint64_t test = 0;
  bool is_multislot = false;
  CtrOptions model;
};

StatusOr<std::optional<uint64_t>> take_number(std::vector<std::string>& arguments,
                                              std::string_view flag) {
  STARLING_ASSIGN_OR_RETURN(const std::string text, take_value(arguments, flag));
  if (text.empty()) return std::optional<uint64_t>();
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || at != end) {
    return invalid_argument("{} is '{}', a whole number is needed", flag, text);
  }
  return std::optional<uint64_t>(number);
}

// Writes samples [first, first + count) to one file; adds their true rates to `truth`.
Status write_file(FileSystem& files, const std::string& path, const CtrModel& model,
                  const GenerateFlags& flags, std::pair<uint64_t, uint64_t> range,
                  Evaluator* truth) {
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Writer> writer, files.open_write(path));
  std::string text;
  const auto flush = [&]() -> Status {
    STARLING_RETURN_IF_ERROR(writer->write(std::as_bytes(std::span(text))));
    text.clear();
    return absl::OkStatus();
  };
  for (uint64_t i = range.first; i < range.first + range.second; ++i) {
    const CtrSample sample = model.sample(i);
    flags.is_multislot ? model.append_multislot(sample, text) : model.append_criteo(sample, text);
    if (truth != nullptr) {
      const float rate = static_cast<float>(sample.rate);
      const float label = sample.clicked ? 1.0F : 0.0F;
      truth->add({&rate, 1}, {&label, 1});
    }
    if (text.size() >= kWriteBytes) STARLING_RETURN_IF_ERROR(flush());
  }
  STARLING_RETURN_IF_ERROR(flush());
  return writer->publish();
}

StatusOr<int> generate(const GenerateFlags& flags) {
  const RealClock clock;
  const std::unique_ptr<FileSystems> files =
      FileSystems::standard({.incarnation = Incarnation{make_incarnation()}}, clock);
  STARLING_RETURN_IF_ERROR(files->make_directories(flags.out));
  const CtrModel model(flags.model);
  uint64_t number = 0;
  for (uint64_t first = 0; first < flags.samples; first += kLinesPerFile) {
    const uint64_t count = std::min(kLinesPerFile, flags.samples - first);
    const std::string path = fmt::format("{}/train-{}.tsv", flags.out, number++);
    STARLING_RETURN_IF_ERROR(write_file(*files, path, model, flags, {first, count}, nullptr));
    fmt::print("{}: {} lines\n", path, count);
  }
  Evaluator truth({.buckets = 0});
  const std::string path = fmt::format("{}/test.tsv", flags.out);
  STARLING_RETURN_IF_ERROR(
      write_file(*files, path, model, flags, {flags.samples, flags.test}, &truth));
  const double best = truth.result().auc;
  fmt::print("{}: {} lines, best possible AUC {:.4f}\n", path, flags.test, best);
  STARLING_ASSIGN_OR_RETURN(
      const std::unique_ptr<Writer> writer,
      files->open_write(fmt::format("{}/best_auc", flags.out), Existing::kReplace));
  const std::string text = fmt::format("{:.6f}\n", best);
  STARLING_RETURN_IF_ERROR(writer->write(std::as_bytes(std::span(text))));
  STARLING_RETURN_IF_ERROR(writer->publish());
  return 0;
}

}  // namespace

StatusOr<int> run_generate(std::vector<std::string> arguments) {
  if (take_switch(arguments, "--help") || take_switch(arguments, "-h")) {
    fmt::print("{}", kGenerateHelp);
    return 0;
  }
  if (arguments.empty() || arguments.front() != "ctr") {
    return invalid_argument("what to generate is needed: ctr");
  }
  arguments.erase(arguments.begin());
  GenerateFlags flags;
  STARLING_ASSIGN_OR_RETURN(flags.out, take_value(arguments, "--out"));
  if (flags.out.empty()) return invalid_argument("--out DIR is needed");
  STARLING_ASSIGN_OR_RETURN(const auto samples, take_number(arguments, "--samples"));
  STARLING_ASSIGN_OR_RETURN(const auto test, take_number(arguments, "--test"));
  STARLING_ASSIGN_OR_RETURN(const auto seed, take_number(arguments, "--seed"));
  STARLING_ASSIGN_OR_RETURN(const auto keys, take_number(arguments, "--keys"));
  STARLING_ASSIGN_OR_RETURN(const std::string format, take_value(arguments, "--format"));
  STARLING_RETURN_IF_ERROR(no_more(arguments, "generate ctr"));
  if (!format.empty() && format != "criteo" && format != "multislot") {
    return invalid_argument("--format is '{}'; allowed: criteo, multislot", format);
  }
  flags.is_multislot = format == "multislot";
  flags.samples = samples.value_or(flags.samples);
  flags.test = test.value_or(std::max<uint64_t>(1, flags.samples / 10));
  flags.model.seed = seed.value_or(flags.model.seed);
  flags.model.keys = keys.value_or(flags.model.keys);
  if (flags.samples < 1 || flags.samples > 1'000'000'000) {
    return invalid_argument("--samples is {}; allowed: 1 to 1000000000", flags.samples);
  }
  if (flags.model.keys < 1000 || flags.model.keys > 10'000'000'000) {
    return invalid_argument("--keys is {}; allowed: 1000 to 10000000000", flags.model.keys);
  }
  return generate(flags);
}

}  // namespace starling
