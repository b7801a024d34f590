// Parsing, hashing and assembling generated Criteo lines on one core, against scans of the same
// bytes and parsers that only parse. Prints one JSON line per work; bench/scenarios/hub.py makes
// the table.
//
//   data_bench [--lines N] [--rounds N] [--write FILE]    with --write only the lines are made
//
// Every round runs each work once, one after the other; the rate of a work is that of its median
// round.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/criteo_testing.h"
#include "data/format.h"
#include "data/kernels.h"
#include "data/shuffle.h"

namespace starling {
namespace {

constexpr size_t kChunkBytes = 1 << 20;
constexpr uint32_t kBatch = 512;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The limit: every tab and newline found by memchr, nothing done with them.
void scan_memchr(const std::string& bytes) {
  uint64_t found = 0;
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  while (at < end) {
    const char* newline = static_cast<const char*>(std::memchr(at, '\n', end - at));
    while (const char* tab = static_cast<const char*>(std::memchr(at, '\t', newline - at))) {
      ++found;
      at = tab + 1;
    }
    ++found;
    at = newline + 1;
  }
  benchmark::DoNotOptimize(found);
}

void scan_vectors(const std::string& bytes) {
  Tail<uint32_t> tabs, lines;
  for (size_t at = 0; at < bytes.size(); at += kChunkBytes) {
    tabs.cut(0);
    lines.cut(0);
    find_both(std::string_view(bytes).substr(at, kChunkBytes), '\t', '\n', tabs, lines);
  }
  benchmark::DoNotOptimize(tabs.size());
}

// As it is often written: a line at a time, numbers by strtoull. Nothing is hashed or assembled.
void parse_getline(const std::string& bytes) {
  std::istringstream in(bytes);
  std::string line;
  std::vector<uint64_t> numbers;
  uint64_t sum = 0;
  while (std::getline(in, line)) {
    numbers.clear();
    const char* at = line.c_str();
    for (int column = 0; column < 40; ++column) {
      char* end = nullptr;
      numbers.push_back(std::strtoull(at, &end, column < 14 ? 10 : 16));
      at = end + (*end != '\0' ? 1 : 0);
    }
    sum += numbers[39];
  }
  benchmark::DoNotOptimize(sum);
}

class Pipeline {
 public:
  explicit Pipeline(uint32_t shards)
      : format_(Format::make({.name = "criteo"}, {}).value()), block_(format_->schema()) {
    std::vector<BatchTable> tables;
    for (const KeyField& field : format_->schema()->keys)
      tables.push_back({.name = field.table, .dim = 16, .placement = {}});
    assembler_.push_back(BatchAssembler::make(format_->schema(), std::move(tables)).value());
    for (uint32_t bucket = 0; bucket < kBuckets; ++bucket) owner_.push_back(bucket % shards);
    owners_ = {owner_, shards};
  }

  // Chunk by chunk: parse, and with `assemble` shuffle and make batches.
  void run(const std::string& bytes, bool assemble) {
    auto parser = format_->parser({}).value();
    std::string_view rest = bytes;
    Chunk chunk{.bytes = {}, .offset = 0, .line = 1};
    while (!rest.empty()) {
      const std::string_view piece = rest.substr(0, kChunkBytes);
      const size_t whole =
          whole_records(RecordKind::kLines, piece, piece.size() == rest.size(), 0).value();
      chunk.bytes = piece.substr(0, whole);
      block_.clear();
      const ParseResult result = parser->parse(chunk, block_, 1).value();
      samples_ += result.counts.samples;
      chunk.offset += whole;
      chunk.line += result.counts.records;
      rest.remove_prefix(whole);
      if (assemble) batches(chunk.offset);
    }
  }
  uint64_t samples() const { return samples_; }

 private:
  void batches(uint64_t number) {
    const auto order =
        permutation({.seed = 1, .epoch = 0, .item = 0, .block = number}, block_.samples());
    std::vector<SampleRef> refs;
    for (uint32_t i = 0; i < order.size(); ++i) {
      refs.push_back({&block_, order[i]});
      if (refs.size() < kBatch && i + 1 < order.size()) continue;
      const Batch batch = assembler_[0].assemble(refs, owners_).value();
      bytes_ += batch.feed_bytes();
      refs.clear();
    }
  }

  std::shared_ptr<const Format> format_;
  SampleBlock block_;
  std::vector<BatchAssembler> assembler_;
  std::vector<uint32_t> owner_;
  BucketOwners owners_;
  uint64_t samples_ = 0;
  uint64_t bytes_ = 0;
};

struct Work {
  std::string name;
  std::function<void()> run;
  std::vector<double> seconds = {};
};

void measure(uint64_t lines, int rounds) {
  std::string bytes;
  data_testing::append_criteo(1, lines, bytes);
  Pipeline parse(1), one(1), four(4);
  std::vector<Work> works = {
      {"memchr scan", [&] { scan_memchr(bytes); }},
      {"vector scan", [&] { scan_vectors(bytes); }},
      {"getline + strtoull", [&] { parse_getline(bytes); }},
      {"parse + hash", [&] { parse.run(bytes, false); }},
      {"parse + hash + assemble, 1 shard", [&] { one.run(bytes, true); }},
      {"parse + hash + assemble, 4 shards", [&] { four.run(bytes, true); }},
  };
  for (int round = 0; round < rounds; ++round) {
    for (Work& work : works) work.seconds.push_back(seconds_of(work.run));
  }
  if (one.samples() != lines * static_cast<uint64_t>(rounds))
    fmt::print(stderr, "{} samples of {} lines\n", one.samples(), lines);
  for (Work& work : works) {
    std::sort(work.seconds.begin(), work.seconds.end());
    const double seconds = work.seconds[work.seconds.size() / 2];
    fmt::print("{{\"work\": \"{}\", \"mb_per_s\": {:.1f}, \"samples_per_s\": {:.0f}}}\n", work.name,
               static_cast<double>(bytes.size()) / 1e6 / seconds,
               static_cast<double>(lines) / seconds);
  }
}

}  // namespace
}  // namespace starling

int main(int argc, char** argv) {
  uint64_t lines = 2'000'000;
  int rounds = 5;
  std::string path;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--lines") lines = std::strtoull(argv[i + 1], nullptr, 10);
    if (flag == "--rounds") rounds = std::atoi(argv[i + 1]);
    if (flag == "--write") path = argv[i + 1];
  }
  if (path.empty()) {
    starling::measure(lines, rounds);
    return 0;
  }
  std::string bytes;
  starling::data_testing::append_criteo(1, lines, bytes);
  std::ofstream(path, std::ios::binary) << bytes;
  return 0;
}
