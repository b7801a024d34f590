#include "hub/inspect.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>

#include "base/rng.h"
#include "data/format.h"
#include "hub/options.h"
#include "hub/source.h"

namespace starling {
namespace {

constexpr size_t kKeysShown = 3;  // of a field in a sample
constexpr size_t kFrequentKept = 256;
constexpr size_t kFrequentShown = 5;
constexpr size_t kWidthMax = 24;

// Calls `take` with each block of samples until it says false. Answers what was parsed.
StatusOr<ParseCounts> read_samples(FileSystem& files, const Clock& clock,
                                   const v1::StartSampleOption& option,
                                   const std::shared_ptr<const Format>& format,
                                   const std::function<bool(const SampleBlock&)>& take) {
  SourceOptions source;
  source.pipe_command = option.pipe_command();
  source.has_header = format->has_header();
  source.records = format->records();
  if (option.format().line_bytes_max() > 0) {
    source.record_bytes_max = option.format().line_bytes_max();
  }
  const std::vector<std::string> patterns(option.files().begin(), option.files().end());
  STARLING_ASSIGN_OR_RETURN(const auto items, list_items(files, patterns, source));
  const bool skips = option.on_bad_line() == v1::ON_BAD_LINE_SKIP;
  source.skips_long = skips;
  ParseCounts counts;
  for (const v1::WorkItem& item : items) {
    STARLING_ASSIGN_OR_RETURN(const auto input, ItemSource::open(files, item, source, clock));
    STARLING_ASSIGN_OR_RETURN(const auto parser, format->parser(input->head()));
    while (true) {
      STARLING_ASSIGN_OR_RETURN(const OwnedChunk chunk, input->next());
      if (chunk.is_end()) break;
      if (chunk.too_long.has_value()) {
        counts += {.records = 1, .bad = 1};
        continue;
      }
      SampleBlock samples(format->schema());
      STARLING_ASSIGN_OR_RETURN(const ParseResult parsed, parser->parse(chunk.chunk, samples, 1));
      if (!skips && !parsed.bad.empty()) {
        return invalid_argument("{}", parsed.bad.front().describe(item.path()));
      }
      counts += parsed.counts;
      if (!take(samples)) return counts;
    }
  }
  return counts;
}

StatusOr<std::shared_ptr<const Format>> format_of(const v1::StartSampleOption& option) {
  STARLING_ASSIGN_OR_RETURN(const FormatOptions format, format_options(option));
  STARLING_ASSIGN_OR_RETURN(std::vector<FieldOptions> fields, field_options(option));
  return Format::make(format, std::move(fields));
}

std::string keys_text(const std::vector<uint64_t>& keys) {
  std::string out;
  for (size_t i = 0; i < std::min(keys.size(), kKeysShown); ++i) {
    out += fmt::format("{}{:x}", i == 0 ? "" : " ", keys[i]);
  }
  if (keys.size() > kKeysShown) out += fmt::format(" +{}", keys.size() - kKeysShown);
  return out.size() > kWidthMax ? out.substr(0, kWidthMax - 2) + ".." : out;
}

using Lines = std::vector<std::vector<std::string>>;

Lines lines_of(const SampleSchema& schema) {
  Lines lines;
  const auto add = [&](const std::string& name, const std::string& kind) {
    lines.push_back({name, kind});
  };
  if (schema.has_id) add("id", "id");
  for (const std::string& name : schema.labels) add(name, "label");
  for (const std::string& name : schema.dense) add(name, "dense");
  for (const KeyField& field : schema.keys) add(field.name, "keys of " + field.table);
  return lines;
}

void add_sample(const SampleBlock& samples, uint32_t sample, Lines& lines) {
  const SampleSchema& schema = samples.schema();
  size_t at = 0;
  if (schema.has_id) lines[at++].emplace_back(samples.id(sample).substr(0, kWidthMax));
  for (const float x : samples.labels(sample)) lines[at++].push_back(fmt::format("{:g}", x));
  for (const float x : samples.dense(sample)) lines[at++].push_back(fmt::format("{:g}", x));
  std::vector<std::vector<uint64_t>> keys(schema.keys.size());
  samples.for_each_key(sample, [&](uint32_t field, Key key) { keys[field].push_back(value(key)); });
  for (const auto& of_field : keys) lines[at++].push_back(keys_text(of_field));
}

std::string aligned(const Lines& lines) {
  std::vector<size_t> widths;
  for (const auto& line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string out;
  for (const auto& line : lines) {
    std::string text;
    for (size_t i = 0; i < line.size(); ++i) text += fmt::format("{:<{}}  ", line[i], widths[i]);
    out += text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

struct NumberStats {
  double sum = 0, squares = 0;
  double least = INFINITY, most = -INFINITY;
  void add(double x) {
    sum += x;
    squares += x * x;
    least = std::min(least, x);
    most = std::max(most, x);
  }
  double mean(uint64_t n) const { return n == 0 ? 0 : sum / static_cast<double>(n); }
  double deviation(uint64_t n) const {
    const double variance = n == 0 ? 0 : squares / static_cast<double>(n) - mean(n) * mean(n);
    return std::sqrt(std::max(0.0, variance));
  }
  std::string text(uint64_t n) const {
    return fmt::format("mean {:.6g}, std {:.6g}, {:g} .. {:g}", mean(n), deviation(n),
                       n == 0 ? 0 : least, n == 0 ? 0 : most);
  }
};

struct KeyStats {
  uint64_t samples = 0;  // that have a key of the field
  uint64_t keys = 0;
  DistinctEstimate distinct;
  FrequentNumbers frequent{kFrequentKept};
};

std::string stats_text(const SampleSchema& schema, const ParseCounts& counts, uint64_t n,
                       const std::vector<NumberStats>& numbers, const std::vector<KeyStats>& keys) {
  Lines lines;
  lines.push_back({"records", fmt::format("{}", counts.records)});
  lines.push_back({"samples", fmt::format("{}", n)});
  lines.push_back({"bad", fmt::format("{}", counts.bad)});
  size_t at = schema.label_at();
  for (const std::string& name : schema.labels) {
    lines.push_back({name, "label", numbers[at++].text(n)});
  }
  for (size_t i = 0; i < schema.dense.size(); ++i) {
    lines.push_back({schema.dense[i], "dense", numbers[i].text(n)});
  }
  const auto share = [n](uint64_t count) {
    return n == 0 ? 0 : 100.0 * static_cast<double>(count) / static_cast<double>(n);
  };
  for (size_t i = 0; i < keys.size(); ++i) {
    std::string top;
    for (const auto& [key, count] : keys[i].frequent.top(kFrequentShown)) {
      top += fmt::format(" {:x} {:.1f}%", key, share(count));
    }
    lines.push_back({schema.keys[i].name, "keys of " + schema.keys[i].table,
                     fmt::format("in {:.1f}% of samples", share(keys[i].samples)),
                     fmt::format("{:.2f} per sample", share(keys[i].keys) / 100),
                     fmt::format("~{:.0f} distinct", keys[i].distinct.value()), "top" + top});
  }
  return aligned(lines);
}

}  // namespace

void DistinctEstimate::add(uint64_t number) {
  const uint64_t hash = mix64(number);
  uint8_t& most = most_[hash >> (64 - kBits)];
  const auto zeros = static_cast<uint8_t>(std::countl_zero((hash << kBits) | 1) + 1);
  most = std::max(most, zeros);
}

double DistinctEstimate::value() const {
  const auto m = static_cast<double>(most_.size());
  double sum = 0;
  double empty = 0;
  for (const uint8_t zeros : most_) {
    sum += std::ldexp(1.0, -zeros);
    empty += zeros == 0 ? 1 : 0;
  }
  const double estimate = 0.7213 / (1 + 1.079 / m) * m * m / sum;
  return estimate < 2.5 * m && empty > 0 ? m * std::log(m / empty) : estimate;
}

void FrequentNumbers::add(uint64_t number) {
  if (const auto it = counts_.find(number); it != counts_.end()) {
    ++it->second;
    return;
  }
  if (counts_.size() < kept_max_) {
    counts_.emplace(number, 1);
    return;
  }
  const auto least =
      std::min_element(counts_.begin(), counts_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const uint64_t count = least->second + 1;
  counts_.erase(least);
  counts_.emplace(number, count);
}

std::vector<std::pair<uint64_t, uint64_t>> FrequentNumbers::top(size_t count) const {
  std::vector<std::pair<uint64_t, uint64_t>> all(counts_.begin(), counts_.end());
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  all.resize(std::min(all.size(), count));
  return all;
}

StatusOr<std::string> show_samples(FileSystem& files, const Clock& clock,
                                   const v1::StartSampleOption& option, uint32_t samples) {
  STARLING_ASSIGN_OR_RETURN(const std::shared_ptr<const Format> format, format_of(option));
  Lines lines = lines_of(*format->schema());
  uint32_t left = samples;
  const auto take = [&](const SampleBlock& block) {
    for (uint32_t i = 0; i < block.samples() && left > 0; ++i, --left) add_sample(block, i, lines);
    return left > 0;
  };
  STARLING_RETURN_IF_ERROR(read_samples(files, clock, option, format, take).status());
  return aligned(lines);
}

StatusOr<std::string> sample_constants(FileSystem& files, const Clock& clock,
                                       const v1::StartSampleOption& option, uint64_t samples_max) {
  STARLING_ASSIGN_OR_RETURN(const std::shared_ptr<const Format> format, format_of(option));
  const std::vector<std::string>& dense = format->schema()->dense;
  std::map<std::string, NumberStats> stats;
  std::map<std::string, uint64_t> counts;
  uint64_t n = 0;
  const auto take = [&](const SampleBlock& block) {
    for (uint32_t i = 0; i < block.samples() && n < samples_max; ++i, ++n) {
      for (size_t at = 0; at < dense.size(); ++at) {
        stats[dense[at]].add(block.dense(i)[at]);
        ++counts[dense[at]];
      }
    }
    return n < samples_max;
  };
  STARLING_RETURN_IF_ERROR(read_samples(files, clock, option, format, take).status());
  std::string out = fmt::format(
      "# Mean and deviation of {} samples, by `starling data stats --write`. A job file names this "
      "file\n# as data.stats; then `normalise` without constants takes them from here.\n",
      n);
  for (const auto& [field, one] : stats) {
    const double deviation = one.deviation(counts[field]);
    // A field that never changes stays what it is, less its mean.
    out += fmt::format("{}: {{mean: {:.9g}, std: {:.9g}}}\n", field, one.mean(counts[field]),
                       deviation > 0 ? deviation : 1);
  }
  return out;
}

StatusOr<std::string> sample_stats(FileSystem& files, const Clock& clock,
                                   const v1::StartSampleOption& option, uint64_t samples_max) {
  STARLING_ASSIGN_OR_RETURN(const std::shared_ptr<const Format> format, format_of(option));
  const SampleSchema& schema = *format->schema();
  std::vector<NumberStats> numbers(schema.numbers());
  std::vector<KeyStats> keys(schema.keys.size());
  uint64_t n = 0;
  const auto take = [&](const SampleBlock& block) {
    for (uint32_t i = 0; i < block.samples() && n < samples_max; ++i, ++n) {
      const auto row = block.numbers(i);
      for (size_t at = 0; at < row.size(); ++at) numbers[at].add(row[at]);
      uint32_t last = UINT32_MAX;
      block.for_each_key(i, [&](uint32_t field, Key key) {
        KeyStats& stats = keys[field];
        stats.samples += field != last ? 1 : 0;
        last = field;
        ++stats.keys;
        stats.distinct.add(value(key));
        stats.frequent.add(value(key));
      });
    }
    return n < samples_max;
  };
  STARLING_ASSIGN_OR_RETURN(const ParseCounts counts,
                            read_samples(files, clock, option, format, take));
  return stats_text(schema, counts, n, numbers, keys);
}

}  // namespace starling
