// What counting costs on the hot path, beside the least that any counter of several threads costs:
// one relaxed atomic add.
#include <benchmark/benchmark.h>

#include "base/metrics.h"

namespace starling {
namespace {

void bare_add(benchmark::State& state) {
  static std::atomic<uint64_t> value{0};
  for (auto _ : state) value.fetch_add(1, std::memory_order_relaxed);
}
BENCHMARK(bare_add);

void count(benchmark::State& state) {
  static Metrics metrics;
  Counter& counter = metrics.counter("calls");
  for (auto _ : state) counter.add();
}
BENCHMARK(count);

// Latencies of 1 to 65 us, so that a record goes to another bucket than the one before.
void record(benchmark::State& state) {
  static Metrics metrics;
  Histogram& histogram = metrics.histogram("latency", "ns");
  uint64_t draw = 1;
  for (auto _ : state) {
    draw = draw * 6364136223846793005 + 1442695040888963407;
    histogram.record(1000 + (draw >> 48));
  }
}
BENCHMARK(record);

}  // namespace
}  // namespace starling

BENCHMARK_MAIN();
