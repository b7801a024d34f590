// ps_bench: one shard behind every transport, against the same table alone on one core.
//
//   ps_bench [--quick] [--rows N] [--apart] [--protocol P]... [--work pull|push|batch|small]...
//                               measures and prints one JSON object a line
//   ps_bench --serve PROTOCOL   serves until standard input ends; prints its addresses
// --apart: the table alone first, then without it each protocol, so that one table is in memory at
// a time. --protocol and --work: these alone.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "base/rng.h"
#include "bench/ps/served.h"
#include "table/table.h"

namespace starling::bench {
namespace {

constexpr size_t kBatch = 8192;
constexpr size_t kBatches = 64;  // made before, used in turn
constexpr size_t kInFlight = 8;
constexpr size_t kSmallKeys = 64;  // rows of 64 bytes: 4 KB

struct Plan {
  uint64_t rows = 2'000'000;
  int rounds = 9;
  Duration burst = milliseconds(400);
  bool apart = false;
  std::vector<Protocol> protocols;  // none: all
  std::set<std::string> works;      // none: all
  bool wants(const char* work) const { return works.empty() || works.contains(work); }
};

struct Batch {
  Tensor keys;    // uint64[kBatch], each once
  Tensor layout;  // uint32[kBatch]: 0, 1, 2, ...
  Tensor grads;   // float[kBatch, kDim]
  std::span<const Key> span() const {
    return {reinterpret_cast<const Key*>(keys.buffer().data()), kBatch};
  }
};

uint64_t key_of(uint64_t i) { return mix64(i); }

Batch make_batch(uint64_t rows, uint64_t number) {
  Rng rng(1, 2, number);
  std::set<uint64_t> chosen;
  Batch batch{.keys = Tensor::allocate(DType::kUInt64, {kBatch}),
              .layout = Tensor::allocate(DType::kUInt32, {kBatch}),
              .grads = Tensor::allocate(DType::kFloat32, {kBatch, kDim})};
  for (size_t i = 0; i < kBatch;) {
    const uint64_t row = rng.below(rows);
    if (!chosen.insert(row).second) continue;
    batch.keys.mutable_values<uint64_t>()[i] = key_of(row);
    batch.layout.mutable_values<uint32_t>()[i] = static_cast<uint32_t>(i);
    ++i;
  }
  for (float& x : batch.grads.mutable_values<float>()) x = rng.uniform_float() - 0.5F;
  return batch;
}

// Times and counts of one kind of work over all rounds.
class Rates {
 public:
  void add(const std::string& what, double value) { values_[what].push_back(value); }
  double median(const std::string& what) {
    std::vector<double>& values = values_[what];
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }

 private:
  std::map<std::string, std::vector<double>> values_;
};

double seconds_of(Duration time) { return static_cast<double>(time.count()) / 1e9; }

// The limit: the table itself, on this thread.
class Alone {
 public:
  explicit Alone(uint64_t rows) {
    TableOptions options;
    options.name = "t";
    options.dim = kDim;
    options.optimizer.rule = "adagrad";
    table_ = *Table::make(options);
    std::vector<Key> keys;
    for (uint64_t i = 0; i < rows; ++i) {
      keys.push_back(static_cast<Key>(key_of(i)));
      if (keys.size() < kBatch && i + 1 < rows) continue;
      STARLING_CHECK(table_->resolve({.keys = keys}, nullptr).ok(), "rows were refused");
      keys.clear();
    }
    out_.resize(kBatch * kDim);
  }

  void measure(const Plan& plan, const std::vector<Batch>& batches, Rates& rates) {
    run(plan, batches, rates, "pull",
        [&](const Batch& batch) { return table_->gather(batch.span(), nullptr, out_); });
    run(plan, batches, rates, "push", [&](const Batch& batch) {
      return table_->push({.keys = batch.span(), .gradients = batch.grads.values<float>()})
          .status();
    });
    run(plan, batches, rates, "batch", [&](const Batch& batch) -> Status {
      RowHints hints;
      STARLING_RETURN_IF_ERROR(table_->locate(batch.span(), hints));
      STARLING_RETURN_IF_ERROR(table_->gather(batch.span(), &hints, out_));
      return table_
          ->push({.keys = batch.span(),
                  .gradients = batch.grads.values<float>(),
                  .key_set = KeySet::kUnique,
                  .hints = &hints})
          .status();
    });
  }

 private:
  template <typename Work>
  void run(const Plan& plan, const std::vector<Batch>& batches, Rates& rates, const char* what,
           Work work) {
    if (!plan.wants(what)) return;
    const RealClock clock;
    const TimePoint start = clock.now();
    size_t done = 0;
    for (; clock.now() - start < plan.burst / 2; ++done) {
      STARLING_CHECK(work(batches[done % batches.size()]).ok(), "the table refused a batch");
    }
    rates.add(fmt::format("{} alone", what),
              static_cast<double>(done * kBatch) / seconds_of(clock.now() - start));
  }

  std::unique_ptr<Table> table_;
  std::vector<float> out_;
};

// The same work through a client, kInFlight at a time.
class Through {
 public:
  Through(std::string name, std::unique_ptr<Served> served)
      : name_(std::move(name)), served_(std::move(served)) {}

  Status fill(uint64_t rows) {
    std::vector<uint64_t> keys;
    for (uint64_t i = 0; i < rows; ++i) {
      keys.push_back(key_of(i));
      if (keys.size() < kBatch && i + 1 < rows) continue;
      const Tensor tensor = Tensor::of<uint64_t>({static_cast<int64_t>(keys.size())}, keys);
      STARLING_RETURN_IF_ERROR(
          served_->ps().pull({{.table = "t", .keys = tensor, .create = true}}, soon()).status());
      keys.clear();
    }
    return absl::OkStatus();
  }

  Status measure(const Plan& plan, const std::vector<Batch>& batches, Rates& rates) {
    STARLING_RETURN_IF_ERROR(run(plan, batches, rates, "pull", [this](const Batch& batch) {
      served_->ps().pull({{.table = "t", .keys = batch.keys}}, soon(),
                         [this](const auto& pulled) { end(pulled.status()); });
    }));
    STARLING_RETURN_IF_ERROR(run(plan, batches, rates, "push", [this](const Batch& batch) {
      served_->ps().push_grad({{.table = "t", .keys = batch.keys, .grads = batch.grads}}, {},
                              soon(), [this](const Status& status) { end(status); });
    }));
    STARLING_RETURN_IF_ERROR(
        run(plan, batches, rates, "batch", [this](const Batch& batch) { train(batch); }));
    return plan.wants("small") ? measure_small(batches, plan.burst, rates) : absl::OkStatus();
  }

 private:
  static Deadline soon() { return Deadline::in(RealClock(), seconds(60)); }

  template <typename Work>
  Status run(const Plan& plan, const std::vector<Batch>& batches, Rates& rates, const char* what,
             Work work) {
    if (!plan.wants(what)) return absl::OkStatus();
    const RealClock clock;
    const TimePoint start = clock.now();
    const TimePoint until = start + plan.burst;
    done_ = 0;
    open_ = 0;
    next_ = [&, work] {
      ++open_;
      work(batches[used_++ % batches.size()]);
    };
    is_over_ = [&] { return clock.now() >= until; };
    for (size_t i = 0; i < kInFlight; ++i) next_();
    const bool ended =
        served_->lane().run_until([this] { return open_ == 0; }, Deadline::in(clock, seconds(60)));
    if (!ended) return deadline_exceeded("{} over {}: {} calls are open", what, name_, open_);
    STARLING_RETURN_IF_ERROR(failed_);
    rates.add(fmt::format("{} {}", what, name_),
              static_cast<double>(done_ * kBatch) / seconds_of(clock.now() - start));
    return absl::OkStatus();
  }

  void end(const Status& status) {
    if (!status.ok() && failed_.ok()) failed_ = status;
    ++done_;
    --open_;
    if (!is_over_() && failed_.ok()) next_();
  }

  Message of_batch(uint64_t number) const {
    Message message;
    message.meta.mutable_header()->mutable_batch()->set_number(number);
    return message;
  }

  // Feed, look up, push: one step by batch id.
  void train(const Batch& batch) {
    const uint64_t number = numbers_++;
    Message message = of_batch(number);
    v1::FeedSampleOption* option = message.meta.mutable_feed_sample();
    option->set_samples(kBatch);
    if (number > 2 * kInFlight) {
      option->add_watermarks()->set_done_below(number - 2 * kInFlight);
    }
    v1::FeedPart* part = option->add_parts();
    part->set_table("t");
    part->set_row_keys(kBatch);
    part->set_keys_tensor(0);
    v1::FieldLayout* field = part->add_fields();
    field->set_field("f");
    field->set_samples_tensor(1);
    field->set_positions_tensor(1);
    message.tensors = {batch.keys, batch.layout};
    served_->ps().call(Method::kPsFeedSample, {{0, std::move(message)}}, soon(),
                       [this, number, &batch](const auto& fed) {
                         if (!fed.ok()) return end(fed.status());
                         look_up(number, batch);
                       });
  }
  void look_up(uint64_t number, const Batch& batch) {
    Message message = of_batch(number);
    message.meta.mutable_embedding_lookup();
    served_->ps().call(Method::kPsEmbeddingLookup, {{0, std::move(message)}}, soon(),
                       [this, number, &batch](const auto& looked) {
                         if (!looked.ok()) return end(looked.status());
                         push(number, batch);
                       });
  }
  void push(uint64_t number, const Batch& batch) {
    Message message = of_batch(number);
    v1::BatchGradPart* part = message.meta.mutable_push_grad()->add_batch();
    part->set_table("t");
    part->set_rows_tensor(0);
    message.tensors = {batch.grads};
    served_->ps().call(Method::kPsPushGrad, {{0, std::move(message)}}, soon(),
                       [this](const auto& pushed) { end(pushed.status()); });
  }

  // One at a time: rows of 4 KB, and nothing at all.
  Status measure_small(const std::vector<Batch>& batches, Duration burst, Rates& rates) {
    const RealClock clock;
    std::vector<double> pulls, nothings;
    const TimePoint until = clock.now() + burst;
    for (size_t i = 0; clock.now() < until; ++i) {
      const Batch& batch = batches[i % batches.size()];
      const size_t first = i * kSmallKeys % (kBatch - kSmallKeys);
      const Tensor keys =
          *Tensor::make(DType::kUInt64, {kSmallKeys},
                        batch.keys.buffer().slice(first * sizeof(Key), kSmallKeys * sizeof(Key)));
      const TimePoint start = clock.now();
      STARLING_RETURN_IF_ERROR(served_->ps().pull({{.table = "t", .keys = keys}}, soon()).status());
      const TimePoint middle = clock.now();
      STARLING_RETURN_IF_ERROR(served_->exchange_nothing());
      pulls.push_back(seconds_of(middle - start) * 1e6);
      nothings.push_back(seconds_of(clock.now() - middle) * 1e6);
    }
    std::sort(pulls.begin(), pulls.end());
    std::sort(nothings.begin(), nothings.end());
    rates.add(fmt::format("small {}", name_), pulls[pulls.size() / 2]);
    rates.add(fmt::format("nothing {}", name_), nothings[nothings.size() / 2]);
    return absl::OkStatus();
  }

  const std::string name_;
  const std::unique_ptr<Served> served_;
  std::function<void()> next_;
  std::function<bool()> is_over_;
  Status failed_;
  size_t done_ = 0;
  size_t open_ = 0;
  size_t used_ = 0;
  uint64_t numbers_ = 0;
};

StatusOr<std::unique_ptr<Through>> start(const Plan& plan, Protocol protocol) {
  STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Served> served, Served::start(protocol));
  auto through = std::make_unique<Through>(std::string(protocol_name(protocol)), std::move(served));
  STARLING_RETURN_IF_ERROR(through->fill(plan.rows));
  return through;
}

// Rounds in which the table alone and every protocol take turns.
Status measure_beside(const Plan& plan, const std::vector<Batch>& batches, Rates& rates) {
  Alone alone(plan.rows);
  std::vector<std::unique_ptr<Through>> through;
  for (const Protocol protocol : plan.protocols) {
    STARLING_ASSIGN_OR_RETURN(through.emplace_back(), start(plan, protocol));
  }
  for (int round = 0; round < plan.rounds; ++round) {
    alone.measure(plan, batches, rates);
    for (const auto& one : through) {
      STARLING_RETURN_IF_ERROR(one->measure(plan, batches, rates));
    }
  }
  return absl::OkStatus();
}

Status measure_apart(const Plan& plan, const std::vector<Batch>& batches, Rates& rates) {
  {
    Alone alone(plan.rows);
    for (int round = 0; round < plan.rounds; ++round) alone.measure(plan, batches, rates);
  }
  for (const Protocol protocol : plan.protocols) {
    STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Through> through, start(plan, protocol));
    for (int round = 0; round < plan.rounds; ++round) {
      STARLING_RETURN_IF_ERROR(through->measure(plan, batches, rates));
    }
  }
  return absl::OkStatus();
}

Status measure(const Plan& plan) {
  std::vector<Batch> batches;
  for (size_t i = 0; i < kBatches; ++i) batches.push_back(make_batch(plan.rows, i));
  Rates rates;
  STARLING_RETURN_IF_ERROR(plan.apart ? measure_apart(plan, batches, rates)
                                      : measure_beside(plan, batches, rates));
  for (const Protocol protocol : plan.protocols) {
    const std::string name(protocol_name(protocol));
    for (const char* what : {"pull", "push", "batch"}) {
      if (!plan.wants(what)) continue;
      fmt::print(R"({{"work":"{}","protocol":"{}","rows":{},"ours":{:.0f},"alone":{:.0f}}})"
                 "\n",
                 what, name, plan.rows, rates.median(fmt::format("{} {}", what, name)),
                 rates.median(fmt::format("{} alone", what)));
    }
    if (!plan.wants("small")) continue;
    fmt::print(R"({{"work":"small","protocol":"{}","rows":{},"ours":{:.3f},"alone":{:.3f}}})"
               "\n",
               name, plan.rows, rates.median("small " + name), rates.median("nothing " + name));
  }
  return absl::OkStatus();
}

Status serve(const std::string& name) {
  STARLING_ASSIGN_OR_RETURN(const Protocol protocol, parse_protocol(name));
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Servers> servers, Servers::start(protocol));
  std::cout << servers->scheduler().to_string() << "\n" << servers->echo().to_string() << std::endl;
  char byte;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return absl::OkStatus();
}

StatusOr<Plan> plan_of(const std::vector<std::string>& arguments) {
  Plan plan;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    if (name == "--quick") {
      plan.rounds = 3;
      plan.burst = milliseconds(250);
    } else if (name == "--apart") {
      plan.apart = true;
    } else if (i + 1 == arguments.size()) {
      return invalid_argument("unknown argument '{}', or one without its value", name);
    } else if (name == "--rows") {
      plan.rows = std::max<uint64_t>(2 * kBatch, std::stoull(arguments[++i]));
    } else if (name == "--protocol") {
      STARLING_ASSIGN_OR_RETURN(plan.protocols.emplace_back(), parse_protocol(arguments[++i]));
    } else if (name == "--work") {
      plan.works.insert(arguments[++i]);
    } else {
      return invalid_argument("unknown argument '{}'", name);
    }
  }
  if (plan.protocols.empty()) {
    plan.protocols = {Protocol::kInproc, Protocol::kGrpc, Protocol::kFast};
  }
  return plan;
}

int run(const std::vector<std::string>& arguments) {
  Status status;
  if (arguments.size() == 2 && arguments[0] == "--serve") {
    status = serve(arguments[1]);
  } else {
    const StatusOr<Plan> plan = plan_of(arguments);
    status = plan.ok() ? measure(*plan) : plan.status();
  }
  if (status.ok()) return 0;
  std::cerr << "ps_bench: " << message_of(status) << "\n";
  return 1;
}

}  // namespace
}  // namespace starling::bench

int main(int argc, char** argv) { return starling::bench::run({argv + 1, argv + argc}); }
