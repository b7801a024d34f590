#include "hub/guess.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace starling {
namespace {

constexpr size_t kLinesMax = 2000;
constexpr size_t kCriteoColumns = 40;
constexpr size_t kNumberDistinctMin = 20;  // fewer distinct numbers are categories
constexpr double kIdMin = 1000;            // numbers of things, unlike counts, go that far
constexpr double kIdShareMax = 0.2;        // ... and no value of theirs is that common
// Seconds since 1970, from 1995 to 2100.
constexpr double kTimeMin = 788918400, kTimeMax = 4102444800;
constexpr auto kDelimiters = std::to_array<const char*>({"\t", "::", ";", "|", ","});
constexpr auto kLabelNames = std::to_array<const char*>(
    {"label", "click", "clicked", "target", "y", "is_click", "conversion", "class", "rating"});

// Parts of the names of columns whose numbers are ids.
constexpr auto kThings =
    std::to_array<const char*>({"id", "user", "item", "movie", "product", "code", "zip"});

using Row = std::vector<std::string>;

std::string lowered(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool is_number(std::string_view text, double* out = nullptr) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (out != nullptr) *out = number;
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(number);
}

bool is_whole(std::string_view text, uint64_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \r");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \r") - begin + 1));
}

Row split(std::string_view line, std::string_view delimiter) {
  Row out;
  while (true) {
    // A delimiter inside of quotes is none.
    size_t from = 0;
    if (line.starts_with('"')) {
      const size_t close = line.find('"', 1);
      if (close != std::string_view::npos) from = close;
    }
    const size_t at = line.find(delimiter, from);
    out.push_back(trimmed(line.substr(0, at)));
    if (at == std::string_view::npos) return out;
    line.remove_prefix(at + delimiter.size());
  }
}

Row words(std::string_view line) {
  Row out;
  for (const std::string& word : split(line, " ")) {
    if (!word.empty()) out.push_back(word);
  }
  return out;
}

std::vector<std::string> whole_lines(std::string_view head) {
  std::vector<std::string> out;
  while (!head.empty() && out.size() < kLinesMax) {
    const size_t end = head.find('\n');
    // The last may be cut off, unless it is all there is.
    if (end == std::string_view::npos && !out.empty()) break;
    const std::string_view line = head.substr(0, end);
    if (!trimmed(line).empty()) out.push_back(std::string(line));
    head.remove_prefix(end == std::string_view::npos ? head.size() : end + 1);
  }
  return out;
}

template <typename Test>
bool all_lines(const std::vector<std::string>& lines, Test test) {
  return std::all_of(lines.begin(), lines.end(), test);
}

bool is_criteo(const std::string& line) {
  const Row values = split(line, "\t");
  return values.size() == kCriteoColumns && (values[0] == "0" || values[0] == "1");
}

// `label i:v i:v`, of libffm `label f:i:v`.
bool is_pairs(const std::string& line, ptrdiff_t colons) {
  const Row values = words(line);
  if (values.size() < 2 || !is_number(values[0])) return false;
  return std::all_of(values.begin() + 1, values.end(), [&](const std::string& word) {
    return std::count(word.begin(), word.end(), ':') == colons;
  });
}

struct Slot {
  size_t values = 0;
  bool is_keys = true;
};

// The slots `n v1 .. vn` of a line; none when it is no such line.
std::vector<Slot> slots_of(const std::string& line) {
  const Row values = words(line);
  std::vector<Slot> slots;
  for (size_t at = 0; at < values.size();) {
    uint64_t n = 0, key = 0;
    if (!is_whole(values[at], &n) || n == 0 || at + n >= values.size()) return {};
    Slot& slot = slots.emplace_back(Slot{.values = n});
    for (uint64_t i = 1; i <= n; ++i) {
      if (!is_number(values[at + i])) return {};
      slot.is_keys &= is_whole(values[at + i], &key);
    }
    at += n + 1;
  }
  return slots;
}

// A slot has keys when all lines have.
std::vector<Slot> slots_of(const std::vector<std::string>& lines) {
  std::vector<Slot> slots = slots_of(lines.front());
  if (slots.size() < 2) return {};
  for (const std::string& line : lines) {
    const std::vector<Slot> mine = slots_of(line);
    if (mine.size() != slots.size()) return {};
    for (size_t i = 0; i < slots.size(); ++i) slots[i].is_keys &= mine[i].is_keys;
  }
  return slots;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\t') {
      out += "\\t";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// A name that tables and fields may have.
std::string name_of(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, 64)) {
    const bool is_fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '_' || c == '-';
    out += is_fine ? c : '_';
  }
  return out;
}

std::string job_text(const std::string& path, const std::string& data, const std::string& fields,
                     const std::string& tables) {
  return fmt::format(
      R"(# Written by `starling init`. See what it does to your data: starling data show THIS_FILE
name: first
seed: 1

# Where the samples are and how they are cut into batches.
data:
  train: [{}]              # files, patterns such as data/day_*.gz, or hdfs:// URLs
{}  batch_size: 512
  shuffle_samples: 100000  # mixed before batches are cut
  epochs: 1

{}{}
# The dense network over the pooled embeddings.
model: {{deepfm: {{hidden: [64, 64]}}}}
dense: {{optimizer: {{adam: {{lr: 0.001}}}}}}

train: {{staleness: inf, threads: 1}}   # 0: synchronous, inf: asynchronous
cluster: {{protocol: inproc, ps: 1, shards: 1, hubs: 1, trainers: 1}}
)",
      quoted(path), data, fields, tables);
}

std::string one_table(const std::string& name) {
  return fmt::format(
      "# Embedding tables: a row per key.\ntables:\n"
      "  {}: {{dim: 8, optimizer: {{adagrad: {{lr: 0.05}}}}, initializer: {{normal: {{std: "
      "0.01}}}}}}\n\n",
      name);
}

struct Column {
  std::string name;
  bool is_numeric = true;
  bool has_zeros_before = false;  // 0114508: a name in digits
  std::map<std::string, size_t> values;
  std::vector<double> numbers;

  bool is_numbers() const { return is_numeric && !numbers.empty(); }
  double largest() const { return *std::max_element(numbers.begin(), numbers.end()); }
  bool is_time() const {
    return is_numbers() && values.size() >= kNumberDistinctMin && largest() <= kTimeMax &&
           *std::min_element(numbers.begin(), numbers.end()) >= kTimeMin;
  }
  // Numbers that name things. What a header says of them counts for more than this.
  bool looks_like_ids(bool has_header) const {
    if (!is_numbers() || values.size() < kNumberDistinctMin) return false;
    if (has_zeros_before) return true;
    const auto is_whole = [](double x) { return x >= 0 && x == std::floor(x); };
    if (!std::all_of(numbers.begin(), numbers.end(), is_whole)) return false;
    if (has_header) return names_things();
    // Lines that are grouped by it.
    if (values.size() < numbers.size() && std::is_sorted(numbers.begin(), numbers.end())) {
      return true;
    }
    size_t most = 0;
    for (const auto& [value, count] : values) most = std::max(most, count);
    return largest() >= kIdMin &&
           static_cast<double>(most) < kIdShareMax * static_cast<double>(numbers.size());
  }
  // A few grades, such as stars.
  bool looks_like_grades() const {
    return is_numbers() && values.size() > 2 && values.size() < kNumberDistinctMin &&
           largest() <= 100;
  }

 private:
  bool names_things() const {
    const std::string lower = lowered(name);
    return std::any_of(kThings.begin(), kThings.end(),
                       [&](const char* thing) { return lower.find(thing) != std::string::npos; });
  }
};

struct Csv {
  std::string delimiter;
  bool has_header = false;
  std::vector<Column> columns;
};

std::optional<Csv> csv_of(const std::vector<std::string>& lines) {
  Csv csv;
  size_t width = 1;
  for (const char* delimiter : kDelimiters) {
    const size_t columns = split(lines.front(), delimiter).size();
    const bool is_same = all_lines(
        lines, [&](const std::string& line) { return split(line, delimiter).size() == columns; });
    if (!is_same || columns <= width) continue;
    width = columns;
    csv.delimiter = delimiter;
  }
  if (width == 1) return std::nullopt;
  const Row first = split(lines.front(), csv.delimiter);
  // A header has only words, and no word twice.
  csv.has_header = std::set<std::string>(first.begin(), first.end()).size() == first.size() &&
                   std::none_of(first.begin(), first.end(), [](const std::string& value) {
                     return value.empty() || is_number(value);
                   });
  for (size_t i = 0; i < width; ++i) {
    csv.columns.push_back({.name = csv.has_header ? first[i] : std::to_string(i)});
  }
  for (size_t i = csv.has_header ? 1 : 0; i < lines.size(); ++i) {
    const Row row = split(lines[i], csv.delimiter);
    for (size_t c = 0; c < width; ++c) {
      Column& column = csv.columns[c];
      ++column.values[row[c]];
      double number = 0;
      if (row[c].empty() || row[c] == "?") continue;
      const bool has_zero = row[c].size() > 1 && row[c][0] == '0' &&
                            row[c].find_first_not_of("0123456789") == std::string::npos;
      column.has_zeros_before |= has_zero;
      if (is_number(row[c], &number)) {
        column.numbers.push_back(number);
      } else {
        column.is_numeric = false;
      }
    }
  }
  return csv;
}

// By name, else the last column with two values, else the last with grades, else the last one that
// is neither a time nor an id.
size_t label_of(const Csv& csv) {
  for (const char* name : kLabelNames) {
    for (size_t i = 0; i < csv.columns.size(); ++i) {
      if (lowered(csv.columns[i].name) == name) return i;
    }
  }
  const auto last_that = [&](auto test) {
    size_t at = csv.columns.size();
    while (at > 0 && !test(csv.columns[at - 1])) --at;
    return at;  // one more than the column's number; 0: none
  };
  size_t found = last_that([](const Column& column) { return column.values.size() == 2; });
  if (found == 0)
    found = last_that([](const Column& column) { return column.looks_like_grades(); });
  if (found == 0) {
    found = last_that([&](const Column& column) {
      return !column.is_time() && !column.looks_like_ids(csv.has_header);
    });
  }
  return found == 0 ? csv.columns.size() - 1 : found - 1;
}

// An expression that is true for clicked samples; empty: the column has 0 and 1.
std::string label_expression(const Column& column) {
  if (column.is_numeric && column.values.size() <= 2 && column.values.contains("0") &&
      (column.values.contains("1") || column.values.size() == 1)) {
    return "";
  }
  if (column.is_numeric && !column.numbers.empty()) {
    std::vector<double> sorted = column.numbers;
    std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
    return fmt::format("{} >= {:g}", column.name, sorted[sorted.size() / 2]);
  }
  const auto rare =
      std::min_element(column.values.begin(), column.values.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return fmt::format("{} in (\"{}\")", column.name, rare->first);
}

std::string csv_job(const std::string& path, const Csv& csv) {
  const size_t label = label_of(csv);
  const std::string expression = label_expression(csv.columns[label]);
  std::string reader = fmt::format("delimiter: {}, header: {}, trim: true", quoted(csv.delimiter),
                                   csv.has_header ? "true" : "false");
  if (!expression.empty()) reader += ", label: " + quoted(expression);
  const std::string data = fmt::format(
      "  format: csv\n  reader: {{csv: {{{}}}}}\n"
      "  split: {{rate: {{test: 0.1}}}}  # a tenth of the lines is for the test\n"
      "  on_bad_line: skip        # bad lines are counted; fail: the first one stops the job\n",
      reader);
  std::string fields =
      "# Input features. kind: keys (embedded), dense (a number for the network) or "
      "label.\nfields:\n";
  std::string tables = "# Embedding tables: a row per key.\ntables:\n";
  if (expression.empty()) {
    fields += fmt::format("  - {{name: label, kind: label, column: {}}}\n",
                          quoted(csv.columns[label].name));
  }
  for (size_t i = 0; i < csv.columns.size(); ++i) {
    const Column& column = csv.columns[i];
    if (i == label) continue;
    const std::string name = csv.has_header ? name_of(column.name) : fmt::format("c{}", i);
    const std::string source =
        name == column.name ? "" : fmt::format(", column: {}", quoted(column.name));
    if (column.is_time()) {
      fields += fmt::format("  # {} looks like a time: no feature, but data.split may go by it\n",
                            column.name);
    } else if (column.is_numbers() && column.values.size() >= kNumberDistinctMin &&
               !column.looks_like_ids(csv.has_header)) {
      double sum = 0, squares = 0;
      for (const double x : column.numbers) {
        sum += x;
        squares += x * x;
      }
      const double n = static_cast<double>(column.numbers.size());
      const double mean = sum / n;
      const double deviation = std::sqrt(std::max(1e-12, squares / n - mean * mean));
      fields += fmt::format(
          "  - {{name: {}, kind: dense{}, transforms: {{normalise: {{mean: {:.6g}, std: "
          "{:.6g}}}}}}}\n",
          name, source, mean, deviation);
    } else {
      fields += fmt::format("  - {{name: {}, table: {}{}}}\n", name, name, source);
      tables += fmt::format(
          "  {}: {{dim: 8, optimizer: {{adagrad: {{lr: 0.05}}}}, initializer: {{normal: {{std: "
          "0.01}}}}}}\n",
          name);
    }
  }
  return job_text(path, data, fields + "\n", tables + "\n");
}

std::string criteo_job(const std::string& path) {
  std::string fields =
      "# Input features: 13 numbers and 26 categories, whose keys share one table.\nfields:\n"
      "  - {name: label, kind: label}\n";
  for (int i = 1; i <= 13; ++i) {
    fields += fmt::format("  - {{name: I{}, kind: dense, transforms: log}}\n", i);
  }
  for (int i = 1; i <= 26; ++i) fields += fmt::format("  - {{name: C{}, table: all}}\n", i);
  return job_text(path, "  format: criteo\n", fields + "\n", one_table("all"));
}

std::string slots_job(const std::string& path, const std::vector<Slot>& slots) {
  std::string fields =
      "# Input features, one per slot of a line, in order. The first slot is the label.\nfields:\n"
      "  - {name: label, kind: label}\n";
  for (size_t i = 1; i < slots.size(); ++i) {
    if (slots[i].is_keys) {
      fields += fmt::format("  - {{name: slot{}, table: all, pooling: sum}}\n", i);
    } else {
      fields += fmt::format("  - {{name: slot{}, kind: dense, size: {}}}\n", i, slots[i].values);
    }
  }
  return job_text(path, "  format: multislot\n", fields + "\n", one_table("all"));
}

// Values of pairs by the number of their field; of libsvm all are field 0's.
std::map<uint64_t, std::vector<double>> pair_values(const std::vector<std::string>& lines,
                                                    bool with_field) {
  std::map<uint64_t, std::vector<double>> out;
  for (const std::string& line : lines) {
    const Row values = words(line);
    for (size_t i = 1; i < values.size(); ++i) {
      uint64_t field = 0;
      double number = 0;
      if (with_field && !is_whole(values[i].substr(0, values[i].find(':')), &field)) continue;
      if (is_number(values[i].substr(values[i].rfind(':') + 1), &number)) {
        out[field].push_back(number);
      }
    }
  }
  return out;
}

// A key has no value: where there are others than 0 and 1, the tenth that one lies in is part of
// it.
std::string tenths_of(std::vector<double> values) {
  if (std::all_of(values.begin(), values.end(), [](double x) { return x == 0 || x == 1; })) {
    return "";
  }
  std::sort(values.begin(), values.end());
  std::set<double> boundaries;
  for (size_t tenth = 1; tenth < 10; ++tenth) boundaries.insert(values[values.size() * tenth / 10]);
  return fmt::format(", transforms: {{bucketise: {{boundaries: [{:.6g}]}}}}",
                     fmt::join(boundaries, ", "));
}

std::string svm_job(const std::string& path, const std::vector<std::string>& lines) {
  const std::string fields = fmt::format(
      "# Every index is a key of one field.\nfields:\n  - {{name: label, kind: label}}\n"
      "  - {{name: features, table: all, pooling: sum{}}}\n\n",
      tenths_of(pair_values(lines, false)[0]));
  return job_text(path, "  format: libsvm\n", fields, one_table("all"));
}

// libffm: a field per field number of the first lines.
std::string ffm_job(const std::string& path, const std::vector<std::string>& lines) {
  std::string fields =
      "# Input features, by the number before the first colon.\nfields:\n"
      "  - {name: label, kind: label}\n";
  for (const auto& [number, values] : pair_values(lines, true)) {
    fields += fmt::format("  - {{name: f{}, table: all, column: \"{}\"{}}}\n", number, number,
                          tenths_of(values));
  }
  return job_text(path, "  format: libffm\n", fields + "\n", one_table("all"));
}

}  // namespace

StatusOr<std::string> guess_job(const std::string& path, std::string_view head) {
  const std::vector<std::string> lines = whole_lines(head);
  if (lines.empty()) return invalid_argument("{} has no lines", path);
  if (all_lines(lines, is_criteo)) return criteo_job(path);
  if (all_lines(lines, [](const std::string& line) { return is_pairs(line, 1); })) {
    return svm_job(path, lines);
  }
  if (all_lines(lines, [](const std::string& line) { return is_pairs(line, 2); })) {
    return ffm_job(path, lines);
  }
  if (const auto slots = slots_of(lines); !slots.empty()) return slots_job(path, slots);
  if (const auto csv = csv_of(lines); csv.has_value()) return csv_job(path, *csv);
  return invalid_argument(
      "{} is neither csv, criteo, libsvm, libffm nor multislot; its first line is '{}'", path,
      lines.front().substr(0, 80));
}

}  // namespace starling
