// What holds for every format: the samples, counts and bad lines of a file do not depend on how it
// is cut; and they are those of a slow and obvious parser.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "base/rng.h"
#include "data/data_testing.h"
#include "data/features.h"
#include "data/hash.h"

namespace starling {
namespace {

using data_testing::keys_of;
using data_testing::parse_all;
using data_testing::Parsed;

std::string pick(Rng& rng, std::initializer_list<const char*> of) {
  return *(of.begin() + rng.below(of.size()));
}

// One record of each format, mostly good.
std::string criteo_line(Rng& rng) {
  std::string line = pick(rng, {"0", "1", "0", "1", "0", "1", "", "2", "x"});
  for (int i = 0; i < 13; ++i)
    line +=
        "\t" + (rng.below(60) == 0 ? pick(rng, {"-", "+3", "1.5", "a", "99999999999", "1e3", "--1"})
                                   : pick(rng, {"", "0", "7", "-1", "12345678", "-1234567",
                                                "-12345678", "123456789", "40"}));
  for (int i = 0; i < 26; ++i)
    line += "\t" + pick(rng, {"", "68fd1e64", "ab", "0123456789abcdef0", "4"});
  const uint64_t odd = rng.below(30);
  if (odd == 0) line += "\tmore";
  if (odd == 1) line.resize(line.size() / 2);
  return line + (odd == 2 ? "\r\n" : "\n");
}

std::string multislot_line(Rng& rng) {
  std::string line = "1 " + pick(rng, {"0", "1"});
  const uint64_t n = rng.below(4);
  line += " " + std::to_string(n);
  for (uint64_t i = 0; i < n; ++i)
    line += pick(rng, {" 5", " 18446744073709551615", " 0", "  77", " 1"});
  line += " 2 0.5 " + pick(rng, {"-1", "2e3", "3", "x"});
  if (rng.below(20) == 0) line += pick(rng, {" 1", " 0", " y"});
  return line + "\n";
}

std::string csv_line(Rng& rng) {
  return pick(rng, {"a", "\"b,c\"", "\"say \"\"x\"\"\"", "", "\"open", "é"}) + "," +
         pick(rng, {"1", "0", "1", "0", "", "no"}) + "," +
         pick(rng, {"3.5", "", "-2", "1e400", "7"}) + (rng.below(30) == 0 ? ",9" : "") +
         pick(rng, {"\n", "\n", "\r\n", "\n\n"});
}

std::string libsvm_line(Rng& rng) {
  std::string line = pick(rng, {"1", "-1", "0", "+1", "?"});
  for (uint64_t n = rng.below(5); n > 0; --n)
    line += pick(rng, {" 3:1", " 4:0", " 99:1", " 5:0.25", " 1:1", " 2:1.0"});
  return line + pick(rng, {"\n", " # note 7:1\n", "\n"});
}

std::string libffm_line(Rng& rng) {
  std::string line = pick(rng, {"1", "0"});
  for (uint64_t n = rng.below(5); n > 0; --n)
    line += pick(rng, {" 0:3:1", " 1:4:1", " 9:9:1", " 1:5:1", " 0:7", " 1:8:1"});
  return line + "\n";
}

std::string features_record(Rng& rng) {
  std::string keys(8 * rng.below(4), '\0');
  for (char& c : keys) c = static_cast<char>(rng.below(256));
  std::string entry = "\x1a" + std::string(1, static_cast<char>(keys.size())) + keys;
  std::string record = "\x0a" + std::string(1, static_cast<char>(entry.size())) + entry;
  const float label = static_cast<float>(rng.below(2));
  record +=
      std::string("\x12\x06\x1a\x04", 4) + std::string(reinterpret_cast<const char*>(&label), 4);
  if (rng.below(15) == 0) record.resize(record.size() - 3);
  std::string out;
  append_prefix(record.size(), out);
  return out + record;
}

struct Case {
  const char* name;
  FormatOptions options;
  std::vector<FieldOptions> fields;
  std::string (*record)(Rng&);
  std::string header = {};
};

std::vector<Case> cases() {
  const FieldOptions label{.name = "label", .kind = FieldKind::kLabel};
  const SplitOptions split{{"rate", {{"from", 0.1}, {"to", 0.9}, {"seed", 4}}}, "", {}};
  const FieldOptions cross{.name = "x", .cross = {"C1", "C2"}};
  const FieldOptions c1{.name = "C1"}, c2{.name = "C2"};
  return {
      {"criteo", {.name = "criteo", .split = split, .negatives_rate = 0.5}, {}, criteo_line},
      {"criteo crossed", {.name = "criteo"}, {label, c1, c2, cross}, criteo_line},
      {"multislot",
       {.name = "multislot", .split = split},
       {label, {.name = "k"}, {.name = "d", .kind = FieldKind::kDense, .size = 2}},
       multislot_line},
      {"csv",
       {.name = "csv", .header = true, .negatives_rate = 0.3, .seed = 8},
       {{.name = "a"},
        {.name = "y", .kind = FieldKind::kLabel},
        {.name = "d", .kind = FieldKind::kDense}},
       csv_line,
       "a,y,d\n"},
      {"libsvm", {.name = "libsvm", .split = split}, {}, libsvm_line},
      {"libffm", {.name = "libffm"}, {label, {.name = "u"}, {.name = "v"}}, libffm_line},
      {"features", {.name = "features", .split = split}, {label, {.name = "k"}}, features_record},
  };
}

std::string file_of(const Case& c, Rng& rng, int records) {
  std::string bytes = c.header;
  for (int i = 0; i < records; ++i) bytes += c.record(rng);
  // A last line may lack its end.
  if (rng.below(2) == 0 && bytes.back() == '\n') bytes.pop_back();
  return bytes;
}

// Samples and bad lines as text, in order.
std::vector<std::string> told(const SampleBlock& block, const ParseResult& result) {
  std::vector<std::string> out;
  for (uint32_t i = 0; i < block.samples(); ++i) encode_sample(block, i, out.emplace_back());
  for (const BadLine& bad : result.bad)
    out.push_back(fmt::format("{} @{} [{}]", bad.describe("f"), bad.offset, bad.text));
  const ParseCounts& n = result.counts;
  EXPECT_EQ(n.records, n.samples + n.bad + n.skipped_split + n.skipped_negatives);
  out.push_back(fmt::format("{} {} {} {} {} {}", n.records, n.samples, n.bad, n.skipped_split,
                            n.skipped_negatives, n.keys_dropped));
  return out;
}

TEST(StreamsTest, AFileGivesTheSameSamplesHoweverItIsCut) {
  Rng rng(11, 1, 1);
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const auto format = Format::make(c.options, c.fields).value();
    uint64_t samples = 0, bad = 0;
    for (int round = 0; round < 40; ++round) {
      const std::string bytes = file_of(c, rng, 1 + static_cast<int>(rng.below(60)));
      const auto whole_parser = format->parser(bytes).value();
      SampleBlock whole(format->schema());
      const ParseResult expected =
          whole_parser->parse({.bytes = bytes, .offset = 0, .line = 1}, whole, 1000).value();
      samples += expected.counts.samples;
      bad += expected.counts.bad;
      SampleBlock parts(format->schema());
      ParseResult result;
      Chunk chunk{.bytes = {}, .offset = 0, .line = 1};
      size_t at = 0, end = 0;
      while (at < bytes.size()) {
        end = std::min<size_t>(bytes.size(), std::max(end, at) + rng.below(600));
        const std::string_view seen = std::string_view(bytes).substr(at, end - at);
        const size_t cut =
            whole_records(format->records(), seen, end == bytes.size(), 1 << 20).value();
        chunk.bytes = seen.substr(0, cut);
        const auto parser = format->parser(bytes).value();
        ParseResult part = parser->parse(chunk, parts, 1000).value();
        result.counts += part.counts;
        result.bad.insert(result.bad.end(), part.bad.begin(), part.bad.end());
        chunk.offset += cut;
        chunk.line += count_records(format->records(), chunk.bytes);
        at += cut;
      }
      ASSERT_EQ(told(parts, result), told(whole, expected)) << bytes;
    }
    EXPECT_GT(samples, 100u);
    EXPECT_GT(bad, 5u);
  }
}

// Column by column, with what the standard library has. Empty: the line is bad.
struct Slow {
  bool good = false;
  std::vector<float> numbers;
  std::vector<std::vector<uint64_t>> keys;
};

bool slow_number(const std::string& text, double& out) {
  if (text.empty() || text.find_first_not_of("+-0123456789.eE") != std::string::npos) return false;
  char* end = nullptr;
  out = std::strtod(text.c_str(), &end);
  return *end == '\0' && std::isfinite(out);
}

Slow slow_criteo(std::string line) {
  Slow out;
  line.pop_back();
  if (!line.empty() && line.back() == '\r') line.pop_back();
  std::vector<std::string> columns(1);
  for (const char c : line) {
    if (c == '\t') {
      columns.emplace_back();
    } else {
      columns.back() += c;
    }
  }
  if (columns.size() != 40 || columns[0].empty()) return out;
  for (int i = 1; i <= 14; ++i) {
    const std::string& text = columns[i % 14];
    double x = 0;
    if (!text.empty() && !slow_number(text, x)) return out;
    const bool logged = i != 14;
    out.numbers.push_back(
        static_cast<float>(logged ? std::copysign(std::log1p(std::fabs(x)), x) : x));
  }
  for (int i = 1; i <= 26; ++i) {
    out.keys.emplace_back();
    if (!columns[13 + i].empty())
      out.keys.back().push_back(hash_text(columns[13 + i], hash_text(fmt::format("C{}", i), 0)));
  }
  out.good = true;
  return out;
}

TEST(StreamsTest, CriteoLinesAreReadAsTheSlowParserDoes) {
  const auto format = Format::make({.name = "criteo"}, {}).value();
  Rng rng(21, 1, 1);
  uint32_t good = 0;
  std::string bytes;
  std::vector<Slow> expected;
  for (int i = 0; i < 5000; ++i) {
    const std::string line = criteo_line(rng);
    bytes += line;
    Slow slow = slow_criteo(line);
    if (slow.good) expected.push_back(std::move(slow));
  }
  const Parsed parsed = parse_all(*format, bytes);
  ASSERT_EQ(parsed.block.samples(), expected.size());
  for (uint32_t i = 0; i < parsed.block.samples(); ++i) {
    for (size_t n = 0; n < 14; ++n)
      ASSERT_FLOAT_EQ(parsed.block.numbers(i)[n], expected[i].numbers[n]) << i << " " << n;
    for (uint32_t field = 0; field < 26; ++field)
      ASSERT_EQ(keys_of(parsed.block, i, field), expected[i].keys[field]);
    ++good;
  }
  EXPECT_GT(good, 1000u);
}

Slow slow_multislot(const std::string& line) {
  Slow out;
  std::istringstream in(line);
  const size_t sizes[] = {1, 0, 2};
  out.keys.resize(1);
  for (const size_t size : sizes) {
    size_t n = 0;
    if (!(in >> n) || (size != 0 && n != size)) return out;
    for (size_t i = 0; i < n; ++i) {
      std::string word;
      if (!(in >> word)) return out;
      double x = 0;
      if (!slow_number(word, x)) return out;
      if (size == 0) {
        out.keys[0].push_back(std::strtoull(word.c_str(), nullptr, 10));
      } else {
        out.numbers.push_back(static_cast<float>(x));
      }
    }
  }
  std::string more;
  out.good = !(in >> more);
  // The label's slot is the first, but labels stand behind dense values.
  if (out.good) std::rotate(out.numbers.begin(), out.numbers.begin() + 1, out.numbers.end());
  return out;
}

TEST(StreamsTest, MultislotLinesAreReadAsTheSlowParserDoes) {
  const auto format =
      Format::make({.name = "multislot"}, {{.name = "label", .kind = FieldKind::kLabel},
                                           {.name = "k"},
                                           {.name = "d", .kind = FieldKind::kDense, .size = 2}})
          .value();
  Rng rng(31, 1, 1);
  for (int i = 0; i < 3000; ++i) {
    const std::string line = multislot_line(rng);
    const Slow slow = slow_multislot(line);
    const Parsed parsed = parse_all(*format, line);
    ASSERT_EQ(parsed.block.samples(), slow.good ? 1u : 0u) << line;
    if (!slow.good) continue;
    EXPECT_EQ(keys_of(parsed.block, 0, 0), slow.keys[0]) << line;
    EXPECT_THAT(parsed.block.numbers(0), testing::ElementsAreArray(slow.numbers)) << line;
  }
}

TEST(StreamsTest, EmptyFilesAndSingleLinesAreFine) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const auto format = Format::make(c.options, c.fields).value();
    EXPECT_EQ(parse_all(*format, c.header).result.counts.records, 0u);
    if (format->records() != RecordKind::kLines) continue;
    EXPECT_EQ(parse_all(*format, c.header + "\n\n\r\n").result.counts.records, 0u);
  }
}

TEST(StreamsTest, LongLinesAreBadLines) {
  FormatOptions options{.name = "criteo", .line_bytes_max = 100};
  const auto format = Format::make(options, {}).value();
  const Parsed parsed = parse_all(*format, std::string(200, 'x') + "\n");
  EXPECT_EQ(parsed.result.bad.at(0).describe("f"),
            "f:1: the line has 200 bytes, line_bytes_max is 100");
}

}  // namespace
}  // namespace starling
