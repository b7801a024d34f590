// Measures a table against the limit (a bare loop over the same memory) and against hash maps, in
// one run.
//
// Prints one JSON object per line; bench/scenarios/table.py turns them into rows. Every pair of
// numbers is measured in turn, round by round, and the medians are compared.
#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/rng.h"
#include "table/pages.h"
#include "table/table.h"

namespace starling {
namespace {

constexpr size_t kBatch = 8192;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_seconds_now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Key of the i-th row: any 64-bit number, the same for every contestant.
Key key_at(uint64_t i) { return Key{mix64(i ^ 0x5eed)}; }

// Numbers of rows to visit, by distribution.
std::vector<uint32_t> draw_rows(std::string_view distribution, uint64_t rows, size_t count) {
  Rng rng(7, name_hash(distribution), 1);
  std::vector<uint32_t> drawn(count);
  if (distribution == "uniform") {
    for (uint32_t& row : drawn) row = static_cast<uint32_t>(rng.below(rows));
    return drawn;
  }
  // Zipf(1.05) by inverting the continuous approximation of its distribution function; ranks are
  // spread over rows.
  constexpr double kExponent = 1.05;
  const double top = 1 - std::pow(static_cast<double>(rows), 1 - kExponent);
  for (uint32_t& row : drawn) {
    const double rank = std::pow(1 - rng.uniform() * top, 1 / (1 - kExponent));
    const auto index = std::min<uint64_t>(rows - 1, static_cast<uint64_t>(rank) - 1);
    row = static_cast<uint32_t>(mix64(index) % rows);
  }
  return drawn;
}

TableOptions options_of(size_t dim, std::string_view rule) {
  TableOptions options;
  options.name = "bench";
  options.dim = static_cast<uint32_t>(dim);
  options.optimizer.rule = rule;
  options.initializer.kind = "uniform";
  return options;
}

std::unique_ptr<Table> make_table(const TableOptions& options) {
  auto table = Table::make(options);
  if (!table.ok()) {
    fmt::print(stderr, "{}\n", message_of(table.status()));
    std::exit(1);
  }
  return *std::move(table);
}

void fill_table(Table& table, uint64_t rows) {
  std::vector<Key> keys;
  for (uint64_t i = 0; i < rows;) {
    keys.clear();
    for (; keys.size() < kBatch && i < rows; ++i) keys.push_back(key_at(i));
    PushBatch batch;
    batch.keys = keys;
    batch.key_set = KeySet::kUnique;
    if (!table.resolve(batch, nullptr).ok()) std::exit(1);
  }
}

// The limit: lines of an index at known places and rows at known addresses, of the same sizes and
// in the same kind of memory as the table's, visited with a prefetch distance that the caller
// chooses.
class BareLoop {
 public:
  BareLoop(uint64_t rows, const RowLayout& layout, size_t index_bytes)
      : layout_(layout),
        lines_(index_bytes / 64),
        index_(Pages::map(lines_ * 64)),
        rows_(Pages::map(rows * layout.stride)) {
    index_.ensure(lines_ * 64);
    rows_.ensure(rows * layout.stride);
    auto* values = reinterpret_cast<float*>(rows_.data());
    for (size_t i = 0; i < rows * layout.stride / sizeof(float); ++i) values[i] = 0.01f;
  }

  struct Visit {
    const std::byte* line;
    std::byte* row;
  };
  std::vector<Visit> visits(const std::vector<uint32_t>& rows) const {
    std::vector<Visit> visits;
    visits.reserve(rows.size());
    for (const uint32_t row : rows) {
      visits.push_back({index_.data() + mix64(row) % lines_ * 64,
                        rows_.data() + uint64_t{row} * layout_.stride});
    }
    return visits;
  }

  // kHint: 3 asks for lines in the first cache level, 2 in the second.
  template <size_t kDim, int kHint>
  void gather(const Visit* visits, size_t distance, bool touches, float* out) {
    if (kWide512) return gather_512<kDim, kHint>(visits, distance, touches, out);
    if (kWide256) return gather_256<kDim, kHint>(visits, distance, touches, out);
    gather_loop<kDim, kHint>(visits, distance, touches, out);
  }
  template <size_t kDim, int kHint>
  void update(const Visit* visits, size_t distance, const float* gradients) {
    if (kWide512) return update_512<kDim, kHint>(visits, distance, gradients);
    if (kWide256) return update_256<kDim, kHint>(visits, distance, gradients);
    update_loop<kDim, kHint>(visits, distance, gradients);
  }

  uint64_t sum() const { return sum_; }

 private:
  // The same instructions as the table's own loops may use.
  static inline const bool kWide512 = __builtin_cpu_supports("avx512vl") != 0;
  static inline const bool kWide256 = __builtin_cpu_supports("avx2") != 0;

  template <int kHint>
  [[gnu::always_inline]] static void prefetch(const Visit& visit, size_t bytes) {
    __builtin_prefetch(visit.line, 0, kHint);
    for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(visit.row + at, 0, kHint);
    __builtin_prefetch(visit.row + bytes - 1, 0, kHint);
  }

  template <size_t kDim, int kHint>
  [[gnu::always_inline]] void gather_loop(const Visit* visits, size_t distance, bool touches,
                                          float* __restrict out) {
    for (size_t i = 0; i < kBatch; ++i) {
      prefetch<kHint>(visits[i + distance], kWeightsOffset + sizeof(float) * kDim);
      sum_ += static_cast<uint64_t>(*visits[i].line);
      if (touches) set_stamp(visits[i].row, 1);
      std::memcpy(out + i * kDim, visits[i].row + kWeightsOffset, sizeof(float) * kDim);
    }
  }

  // One multiplication and subtraction per float, and one of the state float: what must be read and
  // written.
  template <size_t kDim, int kHint>
  [[gnu::always_inline]] void update_loop(const Visit* visits, size_t distance,
                                          const float* gradients) {
    for (size_t i = 0; i < kBatch; ++i) {
      prefetch<kHint>(visits[i + distance], layout_.payload_end);
      sum_ += static_cast<uint64_t>(*visits[i].line);
      set_stamp(visits[i].row, 1);
      auto* __restrict weights = reinterpret_cast<float*>(visits[i].row + kWeightsOffset);
      const float* __restrict gradient = gradients + i * kDim;
      for (size_t j = 0; j < kDim; ++j) weights[j] -= 0.001f * gradient[j];
      weights[kDim] += gradient[0];
    }
  }

  template <size_t kDim, int kHint>
  [[gnu::target("avx512f,avx512vl")]] void gather_512(const Visit* visits, size_t distance,
                                                      bool touches, float* out) {
    gather_loop<kDim, kHint>(visits, distance, touches, out);
  }
  template <size_t kDim, int kHint>
  [[gnu::target("avx2")]] void gather_256(const Visit* visits, size_t distance, bool touches,
                                          float* out) {
    gather_loop<kDim, kHint>(visits, distance, touches, out);
  }
  template <size_t kDim, int kHint>
  [[gnu::target("avx512f,avx512vl")]] void update_512(const Visit* visits, size_t distance,
                                                      const float* gradients) {
    update_loop<kDim, kHint>(visits, distance, gradients);
  }
  template <size_t kDim, int kHint>
  [[gnu::target("avx2")]] void update_256(const Visit* visits, size_t distance,
                                          const float* gradients) {
    update_loop<kDim, kHint>(visits, distance, gradients);
  }

  const RowLayout layout_;
  const size_t lines_;
  Pages index_;
  Pages rows_;
  uint64_t sum_ = 0;
};

constexpr size_t kDistances[] = {4, 8, 12, 16, 24, 32, 48};
constexpr size_t kDistanceMax = 64;

using BatchWork = std::function<void(size_t first)>;

// Batches that one contestant takes before it is the other's turn: enough to have its own lines in
// the caches again.
constexpr size_t kTurn = 32;

// Keys/s of each contestant. They take turns, and each one's median batch counts, so that neither
// noise nor a change of the clock favours one.
std::vector<double> rates_of(size_t batches, size_t rounds,
                             const std::vector<BatchWork>& contestants) {
  std::vector<std::vector<double>> times(contestants.size());
  for (size_t turn = 0; turn < rounds * batches; turn += kTurn) {
    for (size_t c = 0; c < contestants.size(); ++c) {
      for (size_t b = turn; b < turn + kTurn; ++b) {
        const double start = seconds_now();
        contestants[c](b % batches * kBatch);
        times[c].push_back(seconds_now() - start);
      }
    }
  }
  std::vector<double> rates;
  for (const auto& list : times) rates.push_back(static_cast<double>(kBatch) / median(list));
  return rates;
}

struct Case {
  uint64_t rows;
  std::string distribution;
  size_t batches;
  size_t rounds;
};

void print_pair(std::string_view work, const Case& c, size_t dim, std::string_view rival,
                double ours, double theirs) {
  fmt::print(
      "{{\"work\": \"{}\", \"rows\": {}, \"dim\": {}, \"keys\": \"{}\", \"unit\": \"M keys/s\", "
      "\"ours\": {:.3f}, "
      "\"rival\": \"{}\", \"theirs\": {:.3f}}}\n",
      work, c.rows, dim, c.distribution, ours / 1e6, rival, theirs / 1e6);
  std::fflush(stdout);
}

template <size_t kDim>
void measure_limit(Table& table, const Case& c) {
  const std::vector<uint32_t> drawn =
      draw_rows(c.distribution, c.rows, c.batches * kBatch + kDistanceMax);
  std::vector<Key> keys;
  for (const uint32_t row : drawn) keys.push_back(key_at(row));
  std::vector<float> out(kBatch * kDim);
  std::vector<float> gradients(kBatch * kDim, 0.01f);
  const size_t index_bytes = table.index_bytes();
  BareLoop bare(c.rows, table.layout(), index_bytes);
  const std::vector<BareLoop::Visit> visits = bare.visits(drawn);
  const auto batch_at = [&](size_t first) {
    PushBatch batch;
    batch.keys = std::span(keys).subspan(first, kBatch);
    batch.gradients = gradients;
    batch.key_set = KeySet::kUnique;
    return batch;
  };
  struct Pair {
    const char* work;
    BatchWork ours;
    std::function<void(size_t, size_t, bool)> limit;  // first, distance, into the first level
  };
  const Pair pairs[] = {
      {"locate+gather",
       [&](size_t first) {
         if (!table.gather(std::span(keys).subspan(first, kBatch), nullptr, out).ok()) std::abort();
       },
       [&](size_t first, size_t d, bool near) {
         const auto* at = visits.data() + first;
         near ? bare.gather<kDim, 3>(at, d, false, out.data())
              : bare.gather<kDim, 2>(at, d, false, out.data());
       }},
      {"resolve+gather",
       [&](size_t first) {
         if (!table.resolve(batch_at(first), nullptr, out).ok()) std::abort();
       },
       [&](size_t first, size_t d, bool near) {
         const auto* at = visits.data() + first;
         near ? bare.gather<kDim, 3>(at, d, true, out.data())
              : bare.gather<kDim, 2>(at, d, true, out.data());
       }},
      {"resolve+apply",
       [&](size_t first) {
         if (!table.push(batch_at(first)).ok()) std::abort();
       },
       [&](size_t first, size_t d, bool near) {
         const auto* at = visits.data() + first;
         near ? bare.update<kDim, 3>(at, d, gradients.data())
              : bare.update<kDim, 2>(at, d, gradients.data());
       }},
  };
  for (const Pair& pair : pairs) {
    // Each alone: in turns they would find each other's lines in the cache.
    BatchWork best;
    double best_rate = 0;
    for (const size_t d : kDistances) {
      for (const bool near : {false, true}) {
        const BatchWork work = [&pair, d, near](size_t first) { pair.limit(first, d, near); };
        const double rate = rates_of(c.batches, 1, {work})[0];
        if (rate > best_rate) best = work;
        best_rate = std::max(best_rate, rate);
      }
    }
    const std::vector<double> rates = rates_of(c.batches, c.rounds, {pair.ours, best});
    print_pair(pair.work, c, kDim, "bare loop", rates[0], rates[1]);
  }
  if (bare.sum() == 1) fmt::print("\n");
}

// std::unordered_map of vectors, absl::flat_hash_map to pooled rows: the same gather and the same
// update.
template <size_t kDim>
void measure_rivals(Table& table, const Case& c) {
  const std::vector<uint32_t> drawn = draw_rows(c.distribution, c.rows, c.batches * kBatch);
  std::vector<Key> keys;
  for (const uint32_t row : drawn) keys.push_back(key_at(row));
  std::vector<float> out(kBatch * kDim);
  const auto ours_work = [&](size_t first) {
    if (!table.gather(std::span(keys).subspan(first, kBatch), nullptr, out).ok()) std::abort();
  };
  const auto compare = [&](std::string_view name, const BatchWork& theirs_work) {
    const std::vector<double> rates = rates_of(c.batches, c.rounds, {ours_work, theirs_work});
    print_pair("lookup", c, kDim, name, rates[0], rates[1]);
  };
  {
    absl::flat_hash_map<uint64_t, float*> map;
    std::vector<float> pool(c.rows * (kDim + 1), 0.5f);
    map.reserve(c.rows);
    for (uint64_t i = 0; i < c.rows; ++i) map[value(key_at(i))] = pool.data() + i * (kDim + 1);
    compare("absl::flat_hash_map to pooled rows", [&](size_t first) {
      for (size_t i = 0; i < kBatch; ++i) {
        const auto found = map.find(value(keys[first + i]));
        if (found != map.end()) {
          std::memcpy(out.data() + i * kDim, found->second, kDim * sizeof(float));
        }
      }
    });
  }
  {
    std::unordered_map<uint64_t, std::vector<float>> map;
    map.reserve(c.rows);
    for (uint64_t i = 0; i < c.rows; ++i) map[value(key_at(i))] = std::vector<float>(kDim, 0.5f);
    compare("std::unordered_map to vectors", [&](size_t first) {
      for (size_t i = 0; i < kBatch; ++i) {
        const auto found = map.find(value(keys[first + i]));
        if (found != map.end()) {
          std::memcpy(out.data() + i * kDim, found->second.data(), kDim * sizeof(float));
        }
      }
    });
  }
}

void print_number(std::string_view work, uint64_t rows, size_t dim, std::string_view unit,
                  double ours, std::string_view rival, double theirs) {
  fmt::print(
      "{{\"work\": \"{}\", \"rows\": {}, \"dim\": {}, \"keys\": \"\", \"unit\": \"{}\", \"ours\": "
      "{:.4f}, "
      "\"rival\": \"{}\", \"theirs\": {:.4f}}}\n",
      work, rows, dim, unit, ours, rival, theirs);
  std::fflush(stdout);
}

// From 0 to `rows` in operations of 512 keys: how long the longest took.
void measure_growth(uint64_t rows) {
  constexpr size_t kKeys = 512;
  auto table = make_table(options_of(16, "rowwise_adagrad"));
  std::vector<Key> keys(kKeys);
  std::vector<double> wall;
  std::vector<double> cpu;
  const double start = seconds_now();
  for (uint64_t i = 0; i < rows; i += kKeys) {
    for (size_t k = 0; k < kKeys; ++k) keys[k] = key_at(i + k);
    PushBatch batch;
    batch.keys = keys;
    batch.key_set = KeySet::kUnique;
    const double cpu_start = cpu_seconds_now();
    const double wall_start = seconds_now();
    if (!table->resolve(batch, nullptr).ok()) std::abort();
    wall.push_back(seconds_now() - wall_start);
    cpu.push_back(cpu_seconds_now() - cpu_start);
  }
  const double total = seconds_now() - start;
  print_number("insert new rows", rows, 16, "M rows/s", static_cast<double>(rows) / total / 1e6, "",
               0);
  std::sort(wall.begin(), wall.end());
  std::sort(cpu.begin(), cpu.end());
  const size_t p999 = wall.size() * 999 / 1000;
  print_number("growth: 512 keys, p99.9 wall", rows, 16, "ms", wall[p999] * 1e3, "", 0);
  print_number("growth: 512 keys, max wall", rows, 16, "ms", wall.back() * 1e3, "limit", 5);
  print_number("growth: 512 keys, p99.9 cpu", rows, 16, "ms", cpu[p999] * 1e3, "", 0);
  print_number("growth: 512 keys, max cpu", rows, 16, "ms", cpu.back() * 1e3, "limit", 5);
}

void measure_bytes(const Table& table, uint64_t rows, std::string_view rule) {
  const size_t payload = table.layout().payload_end - kWeightsOffset;
  print_number(fmt::format("bytes per row, {}", rule), rows, table.dim(), "bytes",
               static_cast<double>(table.memory_bytes()) / static_cast<double>(rows),
               "1.25 x (payload + 16)", 1.25 * static_cast<double>(payload + 16));
}

double memcpy_rate() {
  const size_t bytes = size_t{256} << 20;
  std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  const double start = seconds_now();
  std::memcpy(to.data(), from.data(), bytes);
  return static_cast<double>(bytes) / (seconds_now() - start);
}

class CountingSink final : public SnapshotSink {
 public:
  void bucket(BucketRows rows) override { bytes += rows.image().size(); }
  size_t bytes = 0;
};

void measure_scans(Table& table, uint64_t rows) {
  const double copy = memcpy_rate();
  CountingSink sink;
  double start = seconds_now();
  if (!table.begin_snapshot({}, sink).ok()) std::abort();
  while (table.advance_snapshot(4096)) {
  }
  table.end_snapshot();
  print_number("snapshot scan", rows, table.dim(), "GB/s",
               static_cast<double>(sink.bytes) / (seconds_now() - start) / 1e9, "memcpy",
               copy / 1e9);
  start = seconds_now();
  table.shrink(1);
  const double scanned = static_cast<double>(rows * table.layout().stride);
  print_number("shrink scan", rows, table.dim(), "GB/s", scanned / (seconds_now() - start) / 1e9,
               "memcpy", copy / 1e9);
}

template <size_t kDim>
void measure_lookups(uint64_t rows, size_t batches, size_t rounds, bool rivals) {
  auto table = make_table(options_of(kDim, "rowwise_adagrad"));
  fill_table(*table, rows);
  for (const char* distribution : {"uniform", "zipf(1.05)"}) {
    measure_limit<kDim>(*table, {rows, distribution, batches, rounds});
    if (rivals) measure_rivals<kDim>(*table, {rows, distribution, batches / 2 + 1, rounds});
  }
  measure_bytes(*table, rows, "rowwise_adagrad");
  if (kDim == 16) measure_scans(*table, rows);
}

bool has_memory(uint64_t bytes) {
  return static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) *
             static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) >
         bytes;
}

void run(bool quick) {
  const size_t rounds = quick ? 3 : 5;
  const size_t batches = quick ? 96 : 128;
  measure_lookups<16>(10'000'000, batches, rounds, true);
  if (quick) return measure_growth(5'000'000);
  measure_lookups<8>(10'000'000, batches, rounds, false);
  measure_lookups<64>(10'000'000, batches / 2, rounds, false);
  measure_lookups<16>(1'000'000, batches, rounds, false);
  // The table and the bare loop's copy of it.
  if (has_memory(uint64_t{12} << 30)) measure_lookups<16>(50'000'000, batches, rounds, false);
  {
    auto table = make_table(options_of(16, "adagrad"));
    fill_table(*table, 10'000'000);
    measure_bytes(*table, 10'000'000, "adagrad");
  }
  measure_growth(20'000'000);
}

}  // namespace
}  // namespace starling

int main(int argc, char** argv) {
  starling::run(argc > 1 && std::string_view(argv[1]) == "--quick");
  return 0;
}
