#include "tests/sim/plan.h"

#include <algorithm>
#include <set>

namespace starling::sim {
namespace {

uint64_t hash(uint64_t a, uint64_t b, uint64_t c = 0) { return mix64(mix64(mix64(a) ^ b) ^ c); }

Duration some_seconds(Rng& rng, double low, double high) {
  return Duration(static_cast<int64_t>((low + (high - low) * rng.uniform()) * 1e9));
}

void set_rule(v1::Rule* rule, const char* name, const char* value_name, double value) {
  rule->set_name(name);
  v1::NamedValue* named = rule->add_values();
  named->set_name(value_name);
  named->set_value(value);
}

void plan_faults(Plan& plan, Rng& rng) {
  constexpr double kDrops[] = {0, 0.01, 0.05, 0.15};
  plan.weather.drop = kDrops[rng.below(4)];
  plan.weather.twice = kDrops[rng.below(4)];
  plan.weather.late = kDrops[rng.below(4)] * 2;
  plan.weather.late_max = milliseconds(rng.below(2) == 0 ? 50 : 3000);
  plan.storm = some_seconds(rng, 5, 20);
  const uint64_t crashes = rng.below(5);
  for (uint64_t i = 0; i < crashes; ++i) {
    Crash crash;
    constexpr Victim kVictims[] = {Victim::kTrainer, Victim::kTrainer, Victim::kScheduler,
                                   Victim::kHub,     Victim::kClient,  Victim::kPs};
    crash.victim = kVictims[rng.below(6)];
    crash.which = static_cast<uint32_t>(rng.below(4));
    // Most of the work is done in the first second.
    crash.at = some_seconds(rng, 0.02, rng.below(3) == 0 ? 6 : 0.8);
    // Beyond the lease of 5 s a trainer's ranks leave and join again; a synchronous run has then
    // other steps than without faults.
    const bool long_down = !plan.is_synchronous() && rng.below(4) == 0;
    const double short_down = plan.is_synchronous() ? 0.5 : 2.5;
    crash.down = long_down ? some_seconds(rng, 5, 9) : some_seconds(rng, 0.01, short_down);
    plan.crashes.push_back(crash);
  }
}

}  // namespace

Plan Plan::of(uint64_t seed) {
  Rng rng(seed, 2, 0);
  Plan plan;
  plan.seed = seed;
  const uint64_t ps = 1 + rng.below(3);
  for (uint64_t i = 0; i < ps; ++i) plan.lanes.push_back(1);
  if (ps < 3 && rng.below(2) == 0) plan.lanes[0] = 2;
  if (ps == 1 && rng.below(4) == 0) plan.lanes[0] = 4;
  plan.ranks = 1 + static_cast<uint32_t>(rng.below(4));
  const uint64_t mode = rng.below(10);
  if (mode < 4) plan.staleness = 0;
  if (mode >= 4 && mode < 7) plan.staleness = 1 + static_cast<uint32_t>(rng.below(3));
  plan.items = 1 + static_cast<uint32_t>(rng.below(4));
  plan.batches_per_item = 2 + static_cast<uint32_t>(rng.below(6));
  plan.batch_keys = 1 + static_cast<uint32_t>(rng.below(6));
  plan.universe = 6 + static_cast<uint32_t>(rng.below(24));
  plan.dim = 1 + static_cast<uint32_t>(rng.below(3));
  plan.window = plan.ranks * 2 + static_cast<uint32_t>(rng.below(6));
  plan.optimizer = static_cast<uint32_t>(rng.below(3));
  plan.batch_lease = some_seconds(rng, 0.5, 5);
  plan.step_time = some_seconds(rng, 0, rng.below(2) == 0 ? 0.01 : 0.15);
  plan.lead_clocks = 1 + rng.below(6);
  plan.deals_before_fed = rng.below(2) == 0;
  plan.clients = static_cast<uint32_t>(rng.below(3));
  plan.client_operations = 4 + static_cast<uint32_t>(rng.below(20));
  const uint64_t cuts = rng.below(3);
  for (uint64_t i = 0; i < cuts; ++i) plan.cuts.push_back(some_seconds(rng, 0.01, 1.5));
  std::sort(plan.cuts.begin(), plan.cuts.end());
  for (uint64_t i = 0; i < cuts; ++i) {
    constexpr Upkeep kUpkeeps[] = {Upkeep::kNone, Upkeep::kNone, Upkeep::kShrink, Upkeep::kClear};
    plan.upkeeps.push_back(kUpkeeps[rng.below(4)]);
  }
  if (!plan.is_synchronous() && rng.below(2) == 0) {
    plan.new_staleness.emplace();
    if (rng.below(3) > 0) plan.new_staleness->staleness = 1 + static_cast<uint32_t>(rng.below(4));
    plan.new_staleness->at = some_seconds(rng, 0.02, 1);
  }
  if (!plan.is_synchronous()) plan.hubs = 1 + static_cast<uint32_t>(rng.below(2));
  plan_faults(plan, rng);
  return plan;
}

Plan Plan::without_faults() const {
  Plan plan = *this;
  plan.weather = {};
  plan.storm = Duration(0);
  plan.crashes.clear();
  return plan;
}

std::string Plan::describe() const {
  uint32_t shards = 0;
  for (const uint32_t n : lanes) shards += n;
  return fmt::format(
      "{} ps, {} shards, {} hubs, {} ranks, staleness {}, {} x {} batches of {} keys, window {}, "
      "{} "
      "clients, "
      "{} cuts, {} crashes, drop {} twice {} late {}",
      lanes.size(), shards, hubs, ranks, staleness ? fmt::format("{}", *staleness) : "inf", items,
      batches_per_item, batch_keys, window, clients, cuts.size(), crashes.size(), weather.drop,
      weather.twice, weather.late);
}

std::vector<uint64_t> Plan::keys_of(const BatchId& id) const {
  Rng rng(seed, 3, linear_of(id));
  std::vector<uint64_t> keys;
  std::set<uint64_t> seen;
  while (keys.size() < batch_keys) {
    const uint64_t key = hash(seed, rng.below(universe), 4);
    if (seen.insert(key).second) keys.push_back(key);
  }
  return keys;
}

std::vector<float> Plan::gradient(const BatchId& id, uint64_t key,
                                  std::span<const float> row) const {
  std::vector<float> out(dim);
  for (uint32_t i = 0; i < dim; ++i) {
    const auto drawn = static_cast<float>(1 + hash(seed ^ linear_of(id), key, i) % 5);
    out[i] = is_synchronous() ? row[i] * 0.3F + drawn * 0.1F : drawn;
  }
  return out;
}

std::vector<float> Plan::dense_gradient(const BatchId& id) const {
  std::vector<float> out(kVariableElements);
  for (uint32_t i = 0; i < kVariableElements; ++i) {
    out[i] = static_cast<float>(1 + hash(seed ^ linear_of(id), i, 7) % 5);
  }
  return out;
}

v1::CreateOption Plan::schema() const {
  v1::CreateOption option;
  option.set_seed(seed);
  v1::TableOptions* rows = option.add_tables();
  rows->set_name(kRowsTable);
  rows->set_dim(dim);
  if (is_synchronous()) {
    constexpr const char* kOptimizers[] = {"adagrad", "adam", "momentum"};
    set_rule(rows->mutable_optimizer(), kOptimizers[optimizer], "lr", 0.1);
    set_rule(rows->mutable_initializer(), "normal", "std", 0.5);
    if (seed % 3 == 0) set_rule(rows->mutable_admission(), "count", "count", 2);
  } else {
    set_rule(rows->mutable_optimizer(), "sgd", "lr", 1);
  }
  v1::TableOptions* kv = option.add_tables();
  kv->set_name(kClientTable);
  kv->set_dim(1);
  set_rule(kv->mutable_optimizer(), "sgd", "lr", 1);
  set_rule(kv->add_eviction(), "norm", "threshold", kShrinkBelow);
  v1::DenseOptions* dense = option.add_variables();
  dense->set_name(kVariable);
  dense->add_shape(kVariableElements);
  set_rule(dense->mutable_optimizer(), "sgd", "lr", 1);
  dense->set_split_elements(kVariableSplit);
  return option;
}

}  // namespace starling::sim
