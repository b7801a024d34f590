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

// Clang picks the width by itself and does not know the last word.
#if defined(__clang__)
#define STARLING_TARGET_512 [[gnu::target("avx512f,avx512vl")]]
#else
#define STARLING_TARGET_512 [[gnu::target("avx512f,avx512vl,prefer-vector-width=512")]]
#endif

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

// A vector of floats, compiled for the target of the function that uses it.
template <size_t kLanes>
struct FloatVector {
  using Type [[gnu::vector_size(sizeof(float) * kLanes)]] = float;
};
// The sum of the lanes, by halves.
template <size_t kLanes, class Vector>
[[gnu::always_inline]] inline float total_of(const Vector& v) {
  if constexpr (kLanes == 2) {
    return v[0] + v[1];
  } else {
    using Half = typename FloatVector<kLanes / 2>::Type;
    Half low;
    Half high;
    std::memcpy(&low, &v, sizeof low);
    std::memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof low, sizeof high);
    return total_of<kLanes / 2>(Half(low + high));
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
  // With kRule, the arithmetic of rowwise_adagrad; else one multiplication and subtraction per
  // float and an addition to the state: the least that reads and writes the same floats.
  template <size_t kDim, int kHint, bool kRule>
  void update(const Visit* visits, size_t distance, const float* gradients) {
    if (kWide512) return update_512<kDim, kHint, kRule>(visits, distance, gradients);
    if (kWide256) return update_256<kDim, kHint, kRule>(visits, distance, gradients);
    update_loop<kDim, kHint, kRule>(visits, distance, gradients);
  }

  uint64_t sum() const { return sum_; }

 private:
  // The same instructions as the table's own loops may use.
  static inline const bool kWide512 = __builtin_cpu_supports("avx512vl") != 0;
  static inline const bool kWide256 = __builtin_cpu_supports("avx2") != 0;

  template <size_t kBytes, int kHint>
  [[gnu::always_inline]] static void prefetch(const Visit& visit) {
    __builtin_prefetch(visit.line, 0, kHint);
    __builtin_prefetch(visit.row, 0, kHint);
    // A row of two lines at most is asked for by its ends.
    if constexpr (kBytes > 80) {
      for (size_t at = 64; at < kBytes; at += 64) __builtin_prefetch(visit.row + at, 0, kHint);
    }
    __builtin_prefetch(visit.row + kBytes - 1, 0, kHint);
  }

  template <size_t kDim, int kHint>
  [[gnu::always_inline]] void gather_loop(const Visit* visits, size_t distance, bool touches,
                                          float* __restrict out) {
    uint64_t sum = 0;
    for (size_t i = 0; i < kBatch; ++i) {
      prefetch<kWeightsOffset + sizeof(float) * kDim, kHint>(visits[i + distance]);
      sum += static_cast<uint64_t>(*visits[i].line);
      if (touches) set_stamp(visits[i].row, 1);
      std::memcpy(out + i * kDim, visits[i].row + kWeightsOffset, sizeof(float) * kDim);
    }
    sum_ += sum;
  }

  template <size_t kDim, int kHint, bool kRule>
  [[gnu::always_inline]] void update_loop(const Visit* visits, size_t distance,
                                          const float* gradients) {
    constexpr size_t kLanes = kDim < 16 ? kDim : 16;
    constexpr size_t kVectors = kDim / kLanes;
    using Floats = typename FloatVector<kLanes>::Type;
    uint64_t sum = 0;
    for (size_t i = 0; i < kBatch; ++i) {
      prefetch<kWeightsOffset + sizeof(float) * (kDim + 1), kHint>(visits[i + distance]);
      sum += static_cast<uint64_t>(*visits[i].line);
      set_stamp(visits[i].row, 1);
      std::byte* weights = visits[i].row + kWeightsOffset;
      float state;
      std::memcpy(&state, weights + sizeof(float) * kDim, sizeof state);
      Floats gradient[kVectors];
      for (size_t v = 0; v < kVectors; ++v) {
        std::memcpy(&gradient[v], gradients + i * kDim + v * kLanes, sizeof(Floats));
      }
      if constexpr (kRule) {
        Floats squares = gradient[0] * gradient[0];
        for (size_t v = 1; v < kVectors; ++v) squares += gradient[v] * gradient[v];
        state += total_of<kLanes>(squares) * (1.0f / static_cast<float>(kDim));
        const float divisor = std::sqrt(state) + 1e-10f;
        for (size_t v = 0; v < kVectors; ++v) gradient[v] = 0.05f * gradient[v] / divisor;
      } else {
        state += gradient[0][0];
        for (size_t v = 0; v < kVectors; ++v) gradient[v] *= 0.001f;
      }
      for (size_t v = 0; v < kVectors; ++v) {
        Floats stepped;
        std::memcpy(&stepped, weights + v * sizeof stepped, sizeof stepped);
        stepped -= gradient[v];
        std::memcpy(weights + v * sizeof stepped, &stepped, sizeof stepped);
      }
      std::memcpy(weights + sizeof(float) * kDim, &state, sizeof state);
    }
    sum_ += sum;
  }

  template <size_t kDim, int kHint>
  STARLING_TARGET_512 void gather_512(const Visit* visits, size_t distance, bool touches,
                                      float* out) {
    gather_loop<kDim, kHint>(visits, distance, touches, out);
  }
  template <size_t kDim, int kHint>
  [[gnu::target("avx2")]] void gather_256(const Visit* visits, size_t distance, bool touches,
                                          float* out) {
    gather_loop<kDim, kHint>(visits, distance, touches, out);
  }
  template <size_t kDim, int kHint, bool kRule>
  STARLING_TARGET_512 void update_512(const Visit* visits, size_t distance,
                                      const float* gradients) {
    update_loop<kDim, kHint, kRule>(visits, distance, gradients);
  }
  template <size_t kDim, int kHint, bool kRule>
  [[gnu::target("avx2")]] void update_256(const Visit* visits, size_t distance,
                                          const float* gradients) {
    update_loop<kDim, kHint, kRule>(visits, distance, gradients);
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

// What to measure: all, or what the command names.
struct Wanted {
  uint64_t only_rows = 0;
  size_t only_dim = 0;
  std::string only_work;  // a part of its name

  bool table(uint64_t rows, size_t dim) const {
    return (only_rows == 0 || only_rows == rows) && (only_dim == 0 || only_dim == dim);
  }
  bool work(std::string_view name) const { return name.find(only_work) != std::string_view::npos; }
};

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

// What the bare loop does with the rows of a batch, from its first key, with a prefetch distance,
// into the first cache level or the second.
using BareWork = std::function<void(size_t first, size_t distance, bool near)>;

struct Pair {
  const char* work;
  BatchWork ours;
  const char* rival;
  BareWork limit;
};

void compare_limit(const Case& c, size_t dim, const Pair& pair) {
  // Each distance alone: in turns they would find each other's lines in the cache.
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
  print_pair(pair.work, c, dim, pair.rival, rates[0], rates[1]);
}

// The batches of one case, for the table and for the bare loop.
template <size_t kDim>
struct Batches {
  Batches(Table& measured, const Case& c)
      : table(measured), bare(c.rows, measured.layout(), measured.index_bytes()) {
    const std::vector<uint32_t> drawn =
        draw_rows(c.distribution, c.rows, c.batches * kBatch + kDistanceMax);
    for (const uint32_t row : drawn) keys.push_back(key_at(row));
    visits = bare.visits(drawn);
    hints.resize(c.batches);
    for (size_t b = 0; b < c.batches; ++b) {
      if (!table.locate(keys_at(b * kBatch), hints[b]).ok()) std::abort();
    }
  }

  std::span<const Key> keys_at(size_t first) const {
    return std::span(keys).subspan(first, kBatch);
  }
  PushBatch at(size_t first, bool hinted) const {
    PushBatch batch;
    batch.keys = keys_at(first);
    batch.gradients = gradients;
    batch.key_set = KeySet::kUnique;
    if (hinted) batch.hints = &hints[first / kBatch];
    return batch;
  }

  void gather(size_t first, bool hinted) {
    if (!table.gather(keys_at(first), hinted ? &hints[first / kBatch] : nullptr, out).ok()) {
      std::abort();
    }
  }
  void resolve(size_t first) {
    if (!table.resolve(at(first, false), nullptr, out).ok()) std::abort();
  }
  void push(size_t first, bool hinted) {
    if (!table.push(at(first, hinted)).ok()) std::abort();
  }
  void bare_gather(size_t first, size_t d, bool near, bool touches) {
    const auto* visit = visits.data() + first;
    near ? bare.template gather<kDim, 3>(visit, d, touches, out.data())
         : bare.template gather<kDim, 2>(visit, d, touches, out.data());
  }
  template <bool kRule>
  void bare_update(size_t first, size_t d, bool near) {
    const auto* visit = visits.data() + first;
    near ? bare.template update<kDim, 3, kRule>(visit, d, gradients.data())
         : bare.template update<kDim, 2, kRule>(visit, d, gradients.data());
  }

  Table& table;
  BareLoop bare;
  std::vector<Key> keys;
  std::vector<BareLoop::Visit> visits;
  std::vector<RowHints> hints;
  std::vector<float> out = std::vector<float>(kBatch * kDim);
  std::vector<float> gradients = std::vector<float>(kBatch * kDim, 0.01f);
};

template <size_t kDim>
void measure_limit(Table& table, const Case& c, const Wanted& wanted) {
  Batches<kDim> b(table, c);
  const auto gather = [&](bool touches) {
    return [&b, touches](size_t first, size_t d, bool near) {
      b.bare_gather(first, d, near, touches);
    };
  };
  const auto rule = [&](size_t first, size_t d, bool near) {
    b.template bare_update<true>(first, d, near);
  };
  const auto least = [&](size_t first, size_t d, bool near) {
    b.template bare_update<false>(first, d, near);
  };
  const Pair pairs[] = {
      {"locate+gather", [&](size_t first) { b.gather(first, false); }, "bare loop", gather(false)},
      {"resolve+gather", [&](size_t first) { b.resolve(first); }, "bare loop", gather(true)},
      {"resolve+apply", [&](size_t first) { b.push(first, false); }, "bare loop", rule},
      {"resolve+apply", [&](size_t first) { b.push(first, false); },
       "bare loop without root and division", least},
      {"gather by hints", [&](size_t first) { b.gather(first, true); },
       "bare loop with an index line", gather(false)},
      {"apply by hints", [&](size_t first) { b.push(first, true); }, "bare loop with an index line",
       rule},
  };
  for (const Pair& pair : pairs) {
    if (wanted.work(pair.work)) compare_limit(c, kDim, pair);
  }
  if (b.bare.sum() == 1) fmt::print("\n");
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

// From 0 to `rows` in operations of 512 keys: how long the longest took. With `idle`, the owner
// prepares memory between operations, as a shard does that waits for its next request.
void measure_growth(uint64_t rows, bool idle) {
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
    while (idle && table->prepare()) {
    }
  }
  const double total = seconds_now() - start;
  const std::string_view how = idle ? ", prepared when idle" : "";
  print_number(fmt::format("insert new rows{}", how), rows, 16, "M rows/s",
               static_cast<double>(rows) / total / 1e6, "", 0);
  const auto print = [&](std::string_view clock, std::vector<double>& times) {
    std::sort(times.begin(), times.end());
    const std::string work = fmt::format("growth{}: 512 keys", how);
    print_number(fmt::format("{}, p99.9 {}", work, clock), rows, 16, "ms",
                 times[times.size() * 999 / 1000] * 1e3, "", 0);
    print_number(fmt::format("{}, max {}", work, clock), rows, 16, "ms", times.back() * 1e3,
                 "limit", 5);
  };
  print("wall", wall);
  print("cpu", cpu);
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
  void bucket(BucketRows rows) override {
    rows.make_image(image_);
    bytes += image_.size();
  }
  size_t bytes = 0;

 private:
  std::vector<std::byte> image_;
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
void measure_lookups(const Wanted& wanted, const Case& c, bool rivals) {
  if (!wanted.table(c.rows, kDim)) return;
  auto table = make_table(options_of(kDim, "rowwise_adagrad"));
  fill_table(*table, c.rows);
  for (const char* distribution : {"uniform", "zipf(1.05)"}) {
    measure_limit<kDim>(*table, {c.rows, distribution, c.batches, c.rounds}, wanted);
    if (rivals && wanted.work("lookup")) {
      measure_rivals<kDim>(*table, {c.rows, distribution, c.batches / 2, c.rounds});
    }
  }
  if (wanted.work("bytes per row")) measure_bytes(*table, c.rows, "rowwise_adagrad");
  if (kDim == 16 && wanted.work("scan")) measure_scans(*table, c.rows);
}

bool has_memory(uint64_t bytes) {
  return static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) *
             static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) >
         bytes;
}

void run(bool quick, const Wanted& wanted) {
  const size_t rounds = quick ? 3 : 5;
  const size_t batches = quick ? 96 : 128;
  const auto rows = [&](uint64_t count) { return Case{count, "", batches, rounds}; };
  measure_lookups<16>(wanted, rows(10'000'000), true);
  if (quick) {
    if (wanted.work("growth")) measure_growth(5'000'000, true);
    return;
  }
  measure_lookups<8>(wanted, rows(10'000'000), false);
  measure_lookups<64>(wanted, rows(10'000'000), false);
  measure_lookups<16>(wanted, rows(1'000'000), false);
  // The table and the bare loop's copy of it.
  if (has_memory(uint64_t{12} << 30)) measure_lookups<16>(wanted, rows(50'000'000), false);
  if (wanted.work("bytes per row, adagrad") && wanted.table(10'000'000, 16)) {
    auto table = make_table(options_of(16, "adagrad"));
    fill_table(*table, 10'000'000);
    measure_bytes(*table, 10'000'000, "adagrad");
  }
  if (wanted.work("growth")) {
    for (const bool idle : {false, true}) measure_growth(20'000'000, idle);
  }
}

}  // namespace
}  // namespace starling

// table_bench [--quick] [--rows N] [--dim N] [--work NAME]
int main(int argc, char** argv) {
  starling::Wanted wanted;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--quick") {
      quick = true;
      continue;
    }
    if (flag == "--rows") {
      wanted.only_rows = std::strtoull(value, nullptr, 10);
    } else if (flag == "--dim") {
      wanted.only_dim = std::strtoull(value, nullptr, 10);
    } else if (flag == "--work") {
      wanted.only_work = value;
    } else {
      fmt::print(stderr, "table_bench [--quick] [--rows N] [--dim N] [--work NAME]\n");
      return 2;
    }
    ++i;
  }
  starling::run(quick, wanted);
  return 0;
}
