#include "hub/options.h"

#include <algorithm>
#include <array>

#include "wire/enums.h"

namespace starling {
namespace {

constexpr auto kKinds = std::to_array<const char*>(
    {"keys", "dense", "label", "weight", "show", "click", "id", "group"});
constexpr auto kPoolings = std::to_array<const char*>({"sum", "mean", "none"});

// The number of a word that conf has checked.
template <size_t N>
int index_of(const std::array<const char*, N>& words, const std::string& word) {
  return static_cast<int>(std::find(words.begin(), words.end(), word) - words.begin());
}

Status at(const std::string& path, const Origin& origin, const Status& status) {
  return with_context(status, fmt::format("{}: {}", origin.text, path));
}

void add_value(v1::Rule* rule, const std::string& name, double number) {
  v1::NamedValue* value = rule->add_values();
  value->set_name(name);
  value->set_value(number);
}

// As the parsers take them.
const std::vector<RuleWords>& transforms() {
  static const std::vector<RuleWords> words = {
      {.name = "hash", .values = {"salt"}, .main = "salt"},
      {.name = "log"},
      {.name = "clip", .values = {"low", "high"}},
      {.name = "normalise", .values = {"mean", "std"}},
      {.name = "bucketise", .values = {"boundaries"}, .list = "boundaries"}};
  return words;
}

StatusOr<v1::Rule> rule_of(const std::string& path, const Choice& choice) {
  v1::Rule rule;
  rule.set_name(choice.name);
  STARLING_ASSIGN_OR_RETURN(const auto numbers, numbers_of(path, choice, transforms()));
  for (const auto& [name, number] : numbers) add_value(&rule, name, number);
  return rule;
}

Status set_field(const FieldSection& section, v1::FieldOptions* out) {
  out->set_name(section.name);
  out->set_kind(static_cast<v1::FieldKind>(index_of(kKinds, section.kind)));
  out->set_table(section.table);
  out->set_pooling(static_cast<v1::Pooling>(index_of(kPoolings, section.pooling)));
  if (section.keys_max != kInfinite) out->set_keys_max(static_cast<uint32_t>(section.keys_max));
  out->set_column(section.column);
  out->set_separator(section.separator);
  for (const Choice& choice : section.transforms) {
    STARLING_ASSIGN_OR_RETURN(*out->add_transforms(),
                              rule_of(fmt::format("fields.{}.transforms", section.name), choice));
  }
  for (const std::string& field : section.cross) out->add_cross(field);
  if (!section.fallback.empty()) out->set_fallback(section.fallback);
  out->set_salt(section.salt);
  if (section.size > 1) out->set_size(static_cast<uint32_t>(section.size));
  return absl::OkStatus();
}

// data.reader: {csv: {header: true}}; its name is that of the format.
Status set_format(const DataSection& data, v1::FormatOptions* out) {
  out->set_name(data.format);
  if (data.reader.empty()) return absl::OkStatus();
  const std::string path = fmt::format("data.reader.{}", data.reader.name);
  if (data.reader.name != data.format) {
    return at(path, data.reader.origin,
              invalid_argument("data.format is {}, so it takes data.reader.{}", data.format,
                               data.format));
  }
  std::string delimiter, label;
  bool header = false, trim = false, with_id = false, with_content = false;
  std::vector<std::string> columns;
  int64_t line_bytes_max = 0;
  Schema schema;
  schema.add("delimiter", &delimiter, TextRule{.doc = "between columns; one or more characters"});
  schema.add("header", &header, "the first line names the columns");
  schema.add("columns", &columns, "names of the columns, of files without a header");
  schema.add("label", &label, TextRule{.doc = "an expression such as rating >= 8"});
  schema.add("trim", &trim, "cut spaces around values");
  schema.add("with_id", &with_id, "lines start with an id");
  schema.add("with_content", &with_content, "then a content text");
  schema.add("line_bytes_max", &line_bytes_max,
             WholeRule{.least = 0,
                       .most = int64_t{1} << 30,
                       .unit = Unit::kBytes,
                       .doc = "longer records are bad ones; 0: 64 MiB"});
  STARLING_RETURN_IF_ERROR(schema.bind(data.reader.params, path));
  out->set_delimiter(delimiter);
  out->set_header(header);
  for (const std::string& column : columns) out->add_columns(column);
  out->set_label(label);
  out->set_trim(trim);
  out->set_with_id(with_id);
  out->set_with_content(with_content);
  out->set_line_bytes_max(static_cast<uint64_t>(line_bytes_max));
  return absl::OkStatus();
}

// data.split says what the test is; training has the rest.
Status set_split(const JobOptions& job, bool is_test, v1::SplitOptions* out) {
  const Choice& split = job.data.split;
  const std::string path = fmt::format("data.split.{}", split.name);
  double rate = 0;
  std::string column, value;
  std::vector<std::string> train, test;
  Schema schema;
  if (split.name == "rate") {
    schema.add("test", &rate,
               RealRule{.least = 0,
                        .most = 1,
                        .required = true,
                        .doc = "part of the records that is for the test"});
  } else if (split.name == "equals") {
    schema.add("column", &column, TextRule{.required = true, .doc = "whose value decides"});
    schema.add("train", &train, "values of records for training");
    schema.add("test", &test, "values of records for the test");
  } else if (split.name == "from") {
    schema.add("column", &column, TextRule{.required = true, .doc = "whose value decides"});
    schema.add("value", &value, TextRule{.required = true, .doc = "the test begins here"});
  } else {
    return at("data.split", split.origin,
              invalid_argument("\"{}\" is not known; allowed: rate, equals, from; nearest: {}",
                               split.name, nearest(split.name, {"rate", "equals", "from"})));
  }
  STARLING_RETURN_IF_ERROR(schema.bind(split.params, path));
  v1::Rule* rule = out->mutable_rule();
  out->set_column(column);
  if (split.name == "rate") {
    rule->set_name("rate");
    add_value(rule, "from", is_test ? 1 - rate : 0);
    add_value(rule, "to", is_test ? 1 : 1 - rate);
    add_value(rule, "seed", static_cast<double>(job.seed & 0xffffffff));
  } else if (split.name == "equals") {
    rule->set_name("equals");
    for (const std::string& text : is_test ? test : train) out->add_values(text);
  } else {
    rule->set_name(is_test ? "from" : "below");
    out->add_values(value);
  }
  return absl::OkStatus();
}

StatusOr<v1::StartSampleOption> dataset_of(const JobOptions& job, bool is_test) {
  const DataSection& data = job.data;
  v1::StartSampleOption out;
  for (const std::string& file : is_test ? data.test : data.train) out.add_files(file);
  // Split files hold both.
  if (is_test && data.test.empty() && !data.split.empty()) {
    for (const std::string& file : data.train) out.add_files(file);
  }
  if (out.files().empty()) {
    return invalid_argument("data.{} names no files", is_test ? "test" : "train");
  }
  out.set_pipe_command(data.pipe_command);
  STARLING_RETURN_IF_ERROR(set_format(data, out.mutable_format()));
  if (!data.split.empty()) {
    STARLING_RETURN_IF_ERROR(set_split(job, is_test, out.mutable_format()->mutable_split()));
  }
  for (const FieldSection& field : job.fields) {
    STARLING_RETURN_IF_ERROR(set_field(field, out.add_fields()));
  }
  out.set_batch_size(static_cast<uint32_t>(data.batch_size));
  out.set_seed(job.seed);
  out.set_threads(static_cast<uint32_t>(job.hub.readers));
  out.set_on_bad_line(data.on_bad_line == "skip" ? v1::ON_BAD_LINE_SKIP : v1::ON_BAD_LINE_FAIL);
  out.set_bad_lines_max(static_cast<uint64_t>(data.bad_lines_max));
  out.set_bad_lines_path(data.bad_lines_path);
  out.set_lease_ms(static_cast<uint32_t>(job.hub.lease_ms));
  out.set_window(static_cast<uint32_t>(job.hub.window));
  out.set_tensor_fuse_off(!job.train.tensor_fuse);
  return out;
}

std::vector<std::pair<std::string, double>> values_of(const v1::Rule& rule) {
  std::vector<std::pair<std::string, double>> out;
  for (const v1::NamedValue& value : rule.values()) out.emplace_back(value.name(), value.value());
  return out;
}

}  // namespace

Status check_fields(const JobOptions& job) {
  for (const FieldSection& section : job.fields) {
    v1::FieldOptions out;
    STARLING_RETURN_IF_ERROR(set_field(section, &out));
  }
  return absl::OkStatus();
}

StatusOr<v1::StartSampleOption> train_dataset(const JobOptions& job) {
  const DataSection& data = job.data;
  STARLING_ASSIGN_OR_RETURN(v1::StartSampleOption out, dataset_of(job, false));
  out.set_dataset("train");
  out.set_epochs(static_cast<uint32_t>(data.epochs));
  out.set_shuffle_samples(static_cast<uint64_t>(data.shuffle_samples));
  if (data.negatives_rate < 1) out.set_negatives_rate(data.negatives_rate);
  out.set_merge_by_id(data.merge_by_id);
  if (data.kind == "memory") {
    out.set_kind(v1::DATASET_KIND_MEMORY);
    out.mutable_memory()->set_local_shuffle(data.local_shuffle);
    out.mutable_memory()->set_global_shuffle(data.global_shuffle);
    for (const std::string& field : data.slots_shuffle) {
      out.mutable_memory()->add_slots_shuffle(field);
    }
  }
  out.set_group_batches(static_cast<uint32_t>(job.dense.merge_steps));
  if (job.train.staleness == 0) {
    out.set_staleness(0);
    out.set_ranks(static_cast<uint32_t>(job.cluster.trainers * job.train.threads));
  } else if (job.train.staleness != kInfinite) {
    out.set_staleness(static_cast<uint32_t>(job.train.staleness));
  }
  return out;
}

StatusOr<v1::StartSampleOption> test_dataset(const JobOptions& job, uint32_t number) {
  STARLING_ASSIGN_OR_RETURN(v1::StartSampleOption out, dataset_of(job, true));
  out.set_dataset(fmt::format("test-{}", number));
  out.set_purpose(v1::PURPOSE_EVAL);
  out.set_first_epoch(kEvalEpoch + number);
  out.set_epochs(1);
  return out;
}

std::vector<BatchTable> batch_tables(const JobOptions& job) {
  std::vector<BatchTable> out;
  for (const TableSection& table : job.tables) {
    out.push_back({.name = table.name, .dim = static_cast<uint32_t>(table.dim), .placement = {}});
  }
  return out;
}

StatusOr<FormatOptions> format_options(const v1::StartSampleOption& option) {
  const v1::FormatOptions& format = option.format();
  FormatOptions out;
  out.name = format.name();
  out.labels_optional = option.purpose() == v1::PURPOSE_PREDICT;
  out.delimiter = format.delimiter();
  out.header = format.header();
  out.columns = {format.columns().begin(), format.columns().end()};
  out.label = format.label();
  out.trim = format.trim();
  out.with_id = format.with_id();
  out.with_content = format.with_content();
  out.line_bytes_max = format.line_bytes_max();
  out.split.rule = {format.split().rule().name(), values_of(format.split().rule())};
  out.split.column = format.split().column();
  out.split.values = {format.split().values().begin(), format.split().values().end()};
  out.labels_optional = option.purpose() == v1::PURPOSE_PREDICT;
  out.negatives_rate = option.negatives_rate();
  out.seed = option.seed();
  return out;
}

StatusOr<std::vector<FieldOptions>> field_options(const v1::StartSampleOption& option) {
  std::vector<FieldOptions> out;
  for (const v1::FieldOptions& field : option.fields()) {
    const std::string what = "field " + field.name();
    STARLING_RETURN_IF_ERROR(check_enum(field.kind(), what + ": kind"));
    STARLING_RETURN_IF_ERROR(check_enum(field.pooling(), what + ": pooling"));
    FieldOptions& one = out.emplace_back();
    one.name = field.name();
    one.kind = static_cast<FieldKind>(field.kind());
    one.table = field.table();
    one.pooling = static_cast<FieldPooling>(field.pooling());
    one.keys_max = field.keys_max();
    one.column = field.column();
    one.separator = field.separator();
    for (const v1::Rule& rule : field.transforms()) {
      one.transforms.push_back({rule.name(), values_of(rule)});
    }
    one.cross = {field.cross().begin(), field.cross().end()};
    if (field.has_fallback()) one.fallback = field.fallback();
    one.salt = field.salt();
    one.size = field.size();
  }
  return out;
}

}  // namespace starling
