#include "data/format.h"

#include <algorithm>

#include "data/criteo.h"
#include "data/csv.h"
#include "data/features.h"
#include "data/slots.h"

namespace starling {
namespace {

using Maker = StatusOr<std::shared_ptr<const Format>> (*)(const FormatOptions&,
                                                          std::vector<FieldOptions>);

// Every format there is.
constexpr struct {
  std::string_view name;
  Maker make;
} kFormats[] = {
    {"criteo", make_criteo}, {"csv", make_csv},       {"features", make_features},
    {"libffm", make_libffm}, {"libsvm", make_libsvm}, {"multislot", make_multislot},
};

}  // namespace

std::string BadLine::describe(std::string_view file) const {
  std::string where =
      line != 0 ? fmt::format("{}:{}", file, line) : fmt::format("{} at byte {}", file, offset);
  if (field.empty()) return fmt::format("{}: the line {}", where, reason);
  return fmt::format("{}: field {}: {}", where, field, reason);
}

ParseCounts& ParseCounts::operator+=(const ParseCounts& other) {
  records += other.records;
  samples += other.samples;
  bad += other.bad;
  skipped_split += other.skipped_split;
  skipped_negatives += other.skipped_negatives;
  keys_dropped += other.keys_dropped;
  return *this;
}

StatusOr<ParseResult> Parser::parse(const Chunk& chunk, SampleBlock& out, size_t bad_kept_max) {
  if (chunk.bytes.size() > kChunkBytesMax) {
    return invalid_argument("a chunk has {} bytes, at most {} are parsed at once",
                            chunk.bytes.size(), kChunkBytesMax);
  }
  if (out.keys() > kBlockKeysMax)
    return resource_exhausted("the block has {} keys, at most {} fit", out.keys(), kBlockKeysMax);
  ParseResult result;
  parse_records(chunk, out, result, bad_kept_max);
  return result;
}

Format::Format(FormatOptions options, std::vector<FieldOptions> fields,
               std::shared_ptr<const SampleSchema> schema, RecordKind records)
    : options_(std::move(options)),
      fields_(std::move(fields)),
      schema_(std::move(schema)),
      records_(records) {}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const auto& format : kFormats) names.emplace_back(format.name);
  return names;
}

StatusOr<std::shared_ptr<const Format>> Format::make(const FormatOptions& options,
                                                     std::vector<FieldOptions> fields) {
  for (const auto& format : kFormats) {
    if (format.name == options.name) return format.make(options, std::move(fields));
  }
  return invalid_argument("no format named '{}'; there are {}", options.name,
                          fmt::join(format_names(), ", "));
}

}  // namespace starling
