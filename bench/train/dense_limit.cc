// The dense network alone, which no trainer can outrun: forward, backward and adam on tensors that
// are ready in memory, a network per thread.
//
// usage: dense_limit THREADS SECONDS [float32|bfloat16]
// Prints {"samples_per_s": N} over all threads. The network is that of bench/scenarios/train.py.
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>

#include "base/clock.h"
#include "base/rng.h"
#include "base/thread.h"
#include "ps/client.h"
#include "trainer/model.h"

namespace starling {
namespace {

constexpr uint32_t kSamples = 512;

ModelShape bench_shape(Precision precision) {
  ModelShape shape{.dense = 13, .labels = 1, .precision = precision};
  for (int i = 1; i <= 26; ++i) shape.fields.push_back({fmt::format("C{}", i), 16});
  return shape;
}

struct Learner {
  std::unique_ptr<Model> model;
  std::vector<std::unique_ptr<DenseTable>> tables;
  std::vector<std::vector<float>> gradients;
  std::vector<float> pooled, dense, labels, predictions, pooled_gradient;

  Status prepare(const ModelShape& shape, uint64_t seed) {
    STARLING_ASSIGN_OR_RETURN(model, make_model({.name = "ctr_dnn"}, shape));
    std::vector<std::span<float>> bound;
    Rng rng(seed, 0, 0);
    for (const ModelVariable& variable : model->variables()) {
      v1::DenseOptions options;
      options.set_name(variable.name);
      for (const int64_t extent : variable.shape) options.add_shape(extent);
      options.mutable_optimizer()->set_name("adam");
      STARLING_ASSIGN_OR_RETURN(std::unique_ptr<DenseTable> table, make_dense_table(options, seed));
      std::vector<float> values(table->size());
      for (float& x : values) x = static_cast<float>(variable.bound * (2 * rng.uniform() - 1));
      STARLING_RETURN_IF_ERROR(table->set(values));
      bound.emplace_back(const_cast<float*>(table->weights().data()), table->size());
      gradients.emplace_back(table->size());
      tables.push_back(std::move(table));
    }
    model->bind(bound);
    for (size_t i = 0; i < kSamples * shape.width(); ++i) {
      pooled.push_back(static_cast<float>(0.1 * rng.normal()));
    }
    for (size_t i = 0; i < size_t{kSamples} * shape.dense; ++i) {
      dense.push_back(static_cast<float>(rng.normal()));
    }
    for (uint32_t i = 0; i < kSamples; ++i) labels.push_back(rng.uniform() < 0.3 ? 1.0F : 0.0F);
    predictions.resize(kSamples);
    pooled_gradient.resize(pooled.size());
    return absl::OkStatus();
  }

  Status step(uint64_t number) {
    ModelOutput out{.predictions = predictions, .pooled = pooled_gradient};
    for (std::vector<float>& one : gradients) out.variables.emplace_back(one);
    STARLING_RETURN_IF_ERROR(
        model->train({.samples = kSamples, .pooled = pooled, .dense = dense, .labels = labels}, out)
            .status());
    for (size_t i = 0; i < tables.size(); ++i) {
      STARLING_RETURN_IF_ERROR(tables[i]->push(gradients[i], number));
    }
    return absl::OkStatus();
  }
};

int run(int threads, double seconds, Precision precision) {
  std::vector<Learner> learners(static_cast<size_t>(threads));
  for (size_t i = 0; i < learners.size(); ++i) {
    if (const Status made = learners[i].prepare(bench_shape(precision), i); !made.ok()) {
      fmt::print(stderr, "{}\n", message_of(made));
      return 1;
    }
  }
  const RealClock clock{};
  const TimePoint since = clock.now();
  const auto passed = [&] { return std::chrono::duration<double>(clock.now() - since).count(); };
  std::atomic<uint64_t> steps{0};
  std::atomic<bool> has_failed{false};
  std::vector<Thread> workers;
  for (size_t i = 0; i < learners.size(); ++i) {
    workers.emplace_back(ThreadOptions{.name = fmt::format("dense-{}", i)}, [&, i] {
      for (uint64_t n = 0; passed() < seconds && !has_failed; ++n) {
        if (!learners[i].step(n).ok()) has_failed = true;
        steps.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  for (Thread& worker : workers) worker.join();
  fmt::print("{{\"samples_per_s\": {:.0f}}}\n",
             static_cast<double>(steps.load() * kSamples) / passed());
  return has_failed ? 1 : 0;
}

}  // namespace
}  // namespace starling

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: dense_limit THREADS SECONDS [float32|bfloat16]\n");
    return 2;
  }
  const bool is_half = argc > 3 && std::string(argv[3]) == "bfloat16";
  return starling::run(std::atoi(argv[1]), std::atof(argv[2]),
                       is_half ? starling::Precision::kBFloat16 : starling::Precision::kFloat32);
}
