// `starling export`: a model as files that programs without Starling score with.
#include <fmt/ranges.h>

#include <filesystem>

#include "bin/beside.h"
#include "bin/export_score.h"
#include "bin/process.h"
#include "data/format.h"
#include "hub/options.h"
#include "ps/checkpoint_export.h"
#include "ps/manifest.h"
#include "store/file_systems.h"
#include "trainer/trainer.h"

namespace starling {
namespace {

constexpr const char* kExportHelp =
    R"(usage: starling export [JOB.yaml] --checkpoint PATH --to DIRECTORY [--set KEY=VALUE]...

Writes the model of a cut for programs that know nothing of Starling: network.pt (TorchScript), the keys and rows of each
table as NAME.keys.npy and NAME.weights.npy, recipe.json (how a line becomes keys and numbers), and score.py, which scores
lines with these: `/usr/bin/python3 DIRECTORY/score.py FILE`.
  JOB.yaml           the job of the cut. Default: the settings that its run left beside its cuts
  --checkpoint PATH  a cut, or a directory of cuts: then the newest
  --to DIRECTORY     of this machine; is made where it is missing
)";

// The formats whose lines score.py reads.
constexpr const char* kFormats[] = {"criteo", "csv", "multislot"};

struct ExportFlags {
  Flags job;
  std::string checkpoint;
  std::string to;
};

// A run leaves its settings in checkpoint.path; the best cuts lie one folder below.
StatusOr<Job> job_of(FileSystem& files, const ExportFlags& flags, const Cut& cut) {
  if (!flags.job.job.empty()) return load_job(flags.job);
  const std::string here = directory_of(cut.path);
  for (const std::string& folder : {here, directory_of(here)}) {
    const std::string path = folder + "/settings";
    const StatusOr<std::string> lines = read_file(files, path);
    if (lines.status().code() == StatusCode::kNotFound) continue;
    STARLING_RETURN_IF_ERROR(lines.status());
    return load_settings(*lines, {.file = path, .environment = {}, .sets = flags.job.sets});
  }
  return not_found("{} has no settings of the run that made the cut: name its job file", here);
}

// What the hubs would read, with the fields of formats that have their own.
StatusOr<v1::StartSampleOption> recipe_of(const JobOptions& job, const Format& format) {
  STARLING_ASSIGN_OR_RETURN(v1::StartSampleOption out, train_dataset(job));
  v1::StartSampleOption recipe;
  *recipe.mutable_format() = out.format();
  recipe.mutable_format()->clear_split();
  *recipe.mutable_fields() = out.fields();
  if (!recipe.fields().empty()) return recipe;
  for (const FieldOptions& field : format.fields()) {
    v1::FieldOptions* one = recipe.add_fields();
    one->set_name(field.name);
    one->set_kind(static_cast<v1::FieldKind>(field.kind));
    for (const DataRule& rule : field.transforms) one->add_transforms()->set_name(rule.name);
  }
  return recipe;
}

v1::StartSampleReply described(const SampleSchema& schema) {
  v1::StartSampleReply out;
  for (const std::string& field : schema.dense) out.add_dense_fields(field);
  for (const std::string& field : schema.labels) out.add_label_fields(field);
  for (const KeyField& field : schema.keys) out.add_key_fields(field.name);
  return out;
}

Status write_recipe(FileSystem& files, const JobOptions& job, const Format& format,
                    const v1::CreateOption& cut, const std::string& path) {
  STARLING_ASSIGN_OR_RETURN(const v1::StartSampleOption dataset, recipe_of(job, format));
  v1::CreateOption schema;
  schema.set_seed(cut.seed());
  *schema.mutable_tables() = cut.tables();
  STARLING_ASSIGN_OR_RETURN(const std::string dataset_json, json_of(dataset));
  STARLING_ASSIGN_OR_RETURN(const std::string schema_json, json_of(schema));
  return write_file(files, path,
                    fmt::format("{{\"loss\": \"{}\",\n\"dataset\": {},\n\"schema\": {}}}\n",
                                job.train.loss, dataset_json, schema_json));
}

StatusOr<int> write_model(FileSystem& files, const JobOptions& job, const Cut& cut,
                          const std::string& to) {
  STARLING_ASSIGN_OR_RETURN(const v1::StartSampleOption dataset, train_dataset(job));
  STARLING_ASSIGN_OR_RETURN(const FormatOptions how, format_options(dataset));
  if (std::find(std::begin(kFormats), std::end(kFormats), how.name) == std::end(kFormats)) {
    return unimplemented("data.format {}: the lines of {} can be exported", how.name,
                         fmt::join(kFormats, ", "));
  }
  STARLING_ASSIGN_OR_RETURN(std::vector<FieldOptions> fields, field_options(dataset));
  STARLING_ASSIGN_OR_RETURN(const auto format, Format::make(how, std::move(fields)));
  std::error_code error;
  std::filesystem::create_directories(to, error);
  if (error) return unavailable("{}: {}", to, error.message());
  STARLING_ASSIGN_OR_RETURN(auto values, dense_values(files, cut));
  STARLING_RETURN_IF_ERROR(Trainer::save_network(job, described(*format->schema()),
                                                 std::move(values), to + "/network.pt"));
  const v1::CreateOption& schema = cut.manifest.state().schema();
  std::vector<std::string> tables;
  for (const v1::TableOptions& table : schema.tables()) tables.push_back(table.name());
  STARLING_ASSIGN_OR_RETURN(const auto exported,
                            export_cut(files, cut, tables, ExportFormat::kNumpy, to));
  STARLING_RETURN_IF_ERROR(write_recipe(files, job, *format, schema, to + "/recipe.json"));
  STARLING_RETURN_IF_ERROR(write_file(files, to + "/score.py", kExportScore));
  fmt::print("{}: model {} of {}\n", to, job.model.name, cut.path);
  for (const Exported& one : exported) fmt::print("  table {}: {} rows\n", one.name, one.rows);
  fmt::print("Score lines: /usr/bin/python3 {}/score.py FILE\n", to);
  return 0;
}

}  // namespace

StatusOr<int> export_main(std::vector<std::string> arguments) {
  if (take_switch(arguments, "--help") || take_switch(arguments, "-h")) {
    fmt::print("{}", kExportHelp);
    return 0;
  }
  ExportFlags flags;
  STARLING_ASSIGN_OR_RETURN(flags.job, take_flags(arguments));
  STARLING_ASSIGN_OR_RETURN(flags.checkpoint, take_value(arguments, "--checkpoint"));
  STARLING_ASSIGN_OR_RETURN(flags.to, take_value(arguments, "--to"));
  if (flags.job.job.empty() && !arguments.empty()) {
    flags.job.job = arguments.front();
    arguments.erase(arguments.begin());
  }
  STARLING_RETURN_IF_ERROR(no_more(arguments, "export"));
  if (flags.checkpoint.empty()) return invalid_argument("--checkpoint PATH is needed");
  if (flags.to.empty()) return invalid_argument("--to DIRECTORY is needed");
  const RealClock clock;
  const std::unique_ptr<FileSystems> files =
      FileSystems::standard({.incarnation = Incarnation{make_incarnation()}}, clock);
  STARLING_ASSIGN_OR_RETURN(const Cut cut, find_cut(*files, flags.checkpoint, 0));
  STARLING_ASSIGN_OR_RETURN(const Job job, job_of(*files, flags, cut));
  return write_model(*files, job.options, cut, flags.to);
}

}  // namespace starling
