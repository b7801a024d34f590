// Staleness 0: the same bits from run to run, for any number of ps and shards, over any transport.
#include <gmock/gmock.h>

#include <thread>

#include "base/rng.h"
#include "tests/cluster/batches.h"
#include "tests/cluster/world.h"

namespace starling::cluster {
namespace {

constexpr uint32_t kRanks = 2;
constexpr uint64_t kSteps = 10;
constexpr size_t kSamples = 24;
constexpr int64_t kElements = 500;

const std::vector<Field> kFields = {{"user", "users"},
                                    {"genres", "tags", true},
                                    {"recent", "tags"},
                                    {"item", "items"},
                                    {"page", "pages"}};
const std::map<std::string, uint32_t> kDims = {
    {"users", 4}, {"tags", 3}, {"items", 4}, {"pages", 2}};

// Multi-key fields, mean pooling, two fields on one table, count and Bloom admission, capacity
// eviction, variables in many parts.
v1::CreateOption job_tables() {
  v1::CreateOption option;
  option.set_seed(20);
  v1::TableOptions users = table("users", 4, rule("adagrad", {{"lr", 0.05}}));
  *users.mutable_initializer() = rule("normal", {{"std", 0.1}});
  *users.mutable_admission() = rule("count", {{"count", 2}});
  *option.add_tables() = users;
  v1::TableOptions tags = table("tags", 3, rule("adam", {{"lr", 0.01}}));
  *tags.mutable_initializer() = rule("uniform", {{"low", -0.1}, {"high", 0.1}});
  *option.add_tables() = tags;
  v1::TableOptions items = table("items", 4, rule("sgd", {{"lr", 0.1}}));
  *items.mutable_admission() = rule("bloom", {{"count", 2}, {"keys", 10000}, {"error_rate", 0.01}});
  *items.mutable_initializer() = rule("truncated_normal", {{"std", 0.1}});
  *option.add_tables() = items;
  v1::TableOptions pages = table("pages", 2, rule("adagrad", {{"lr", 0.05}}));
  *pages.add_eviction() = rule("lru", {{"rows", 4096}});
  *option.add_tables() = pages;
  v1::DenseOptions w = variable("w", kElements, rule("adam", {{"lr", 0.01}}), 37);
  *w.mutable_initializer() = rule("normal", {{"std", 0.1}});
  *option.add_variables() = w;
  *option.add_variables() = variable("b", 1, rule("sgd", {{"lr", 0.1}}), 0);
  return option;
}

uint64_t key_of(uint64_t field, uint64_t number) { return mix64(field * 1'000'003 + number); }

Samples samples_of(uint64_t number) {
  Rng rng(5, 1, number);
  const std::vector<uint64_t> spread = {60, 40, 40, 90, 3000};
  Samples samples{.id = {0, 0, number}, .step = number, .keys = {}};
  for (size_t field = 0; field < kFields.size(); ++field) {
    const bool is_list = kFields[field].table == "tags";
    auto& of_field = samples.keys.emplace_back();
    for (size_t sample = 0; sample < kSamples; ++sample) {
      auto& keys = of_field.emplace_back();
      const uint64_t count = is_list ? rng.below(5) : kFields[field].table == "pages" ? 8 : 1;
      for (uint64_t i = 0; i < count; ++i) {
        keys.push_back(key_of(is_list ? 1 : field, rng.below(spread[field])));
      }
    }
  }
  return samples;
}

// One step of one rank, as a trainer does it.
void train_step(Node& node, uint32_t rank, uint64_t clock, std::vector<DenseCopy>& dense) {
  const auto routes = node.ps->routes();
  const uint64_t number = clock * kRanks + rank;
  Batch batch(kFields, samples_of(number), *routes, kDims);
  const Status fed = node.ps->feed(batch.feeds(), soon());
  ASSERT_TRUE(fed.ok()) << fed;
  const auto looked = node.ps->lookup(batch.lookups(rank, clock), soon());
  ASSERT_TRUE(looked.ok()) << looked.status();
  ASSERT_TRUE(batch.take(*looked).ok());
  auto pulled = node.ps->pull_dense(std::move(dense), soon());
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  dense = *std::move(pulled);
  std::vector<Message> pushes = batch.pushes(rank, clock, [&](size_t field, size_t sample) {
    std::vector<float> grad = batch.pooled(field, sample);
    for (size_t d = 0; d < grad.size(); ++d) {
      grad[d] = grad[d] * 0.3F + static_cast<float>((number * 7 + sample * 3 + d) % 11) * 0.02F;
    }
    return grad;
  });
  std::vector<float> of_w = floats(dense[0].values);
  for (size_t i = 0; i < of_w.size(); ++i) {
    of_w[i] = of_w[i] * 0.1F + batch.pooled(1, i % kSamples)[i % 3];
  }
  const std::vector<float> of_b = {floats(dense[1].values)[0] - static_cast<float>(number)};
  const v1::CreateOption job = job_tables();
  ASSERT_TRUE(add_dense_grads(*routes, job.variables(0),
                              {.variable = "w", .values = floats_of(of_w)}, pushes)
                  .ok());
  ASSERT_TRUE(add_dense_grads(*routes, job.variables(1),
                              {.variable = "b", .values = floats_of(of_b)}, pushes)
                  .ok());
  const Status pushed = node.ps->push_batch(numbered(std::move(pushes)), soon());
  ASSERT_TRUE(pushed.ok()) << pushed;
}

struct Result {
  std::map<std::string, std::vector<float>> weights;
  std::map<std::string, uint64_t> counts;
  bool operator==(const Result&) const = default;
};

void count(const v1::TableStat& stat, Result& result) {
  const std::string& name = stat.name();
  result.counts[name + " rows"] += stat.rows();
  result.counts[name + " admitted"] += stat.admitted();
  result.counts[name + " refused"] += stat.refused();
  for (const v1::TableCount& evicted : stat.evicted()) {
    result.counts[name + " evicted by " + evicted.reason()] += evicted.rows();
  }
}

Result read_all(Node& node) {
  Result result;
  const std::vector<std::pair<uint64_t, uint64_t>> spread = {{0, 60}, {1, 40}, {3, 90}, {4, 3000}};
  const std::vector<std::string> tables = {"users", "tags", "items", "pages"};
  for (size_t i = 0; i < tables.size(); ++i) {
    std::vector<uint64_t> keys;
    for (uint64_t n = 0; n < spread[i].second; ++n) keys.push_back(key_of(spread[i].first, n));
    const auto pulled = node.ps->pull({{.table = tables[i], .keys = keys_of(keys)}}, soon());
    EXPECT_TRUE(pulled.ok()) << pulled.status();
    if (pulled.ok()) result.weights[tables[i]] = floats(pulled->front().values);
  }
  const auto dense = node.ps->pull_dense({{.variable = "w"}, {.variable = "b"}}, soon());
  EXPECT_TRUE(dense.ok()) << dense.status();
  if (dense.ok()) {
    result.weights["w"] = floats((*dense)[0].values);
    result.weights["b"] = floats((*dense)[1].values);
  }
  const auto stats = node.ps->stat({}, soon());
  EXPECT_TRUE(stats.ok()) << stats.status();
  for (const v1::StatReply& one : *stats) {
    for (const v1::TableStat& stat : one.tables()) count(stat, result);
  }
  return result;
}

Result train(Protocol protocol, uint32_t ps, uint32_t shards) {
  World world(
      {.protocol = protocol, .ps = ps, .shards = shards, .staleness = 0, .trainers = kRanks});
  Node& client = world.client();
  world.make_tables(client, job_tables());
  std::vector<Node*> trainers;
  for (uint32_t i = 0; i < kRanks; ++i) {
    trainers.push_back(&world.add(v1::ROLE_TRAINER, fmt::format("trainer-{}", i)));
    const Status joined = trainers.back()->join();
    EXPECT_TRUE(joined.ok()) << joined;
    EXPECT_TRUE(trainers.back()->ps->use_schema(job_tables()).ok());
  }
  world.start_training(client, world.schema_hash);
  if (testing::Test::HasFailure()) return {};
  std::vector<std::thread> threads;
  for (Node* node : trainers) {
    threads.emplace_back([node] {
      std::vector<DenseCopy> dense = {{.variable = "w"}, {.variable = "b"}};
      for (uint64_t clock = 0; clock < kSteps && !testing::Test::HasFailure(); ++clock) {
        train_step(*node, node->ranks.at(0), clock, dense);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return read_all(client);
}

class IdentityTest : public testing::Test {
 protected:
  static void expect_same(const Result& result, const Result& reference) {
    EXPECT_EQ(result.counts, reference.counts);
    for (const auto& [name, weights] : reference.weights) {
      ASSERT_TRUE(result.weights.contains(name));
      EXPECT_EQ(result.weights.at(name), weights) << name;
    }
  }
};

TEST_F(IdentityTest, AnyNumberOfPsAndShardsGivesTheSameBits) {
  const Result reference = train(Protocol::kInproc, 1, 1);
  // The job has something to lose: admission refused, rows were evicted, weights moved.
  EXPECT_GT(reference.counts.at("users refused"), 0);
  EXPECT_GT(reference.counts.at("items refused"), 0);
  EXPECT_GT(reference.counts.at("pages evicted by capacity"), 0);
  EXPECT_NE(reference.weights.at("b"), std::vector<float>{0});
  expect_same(train(Protocol::kInproc, 1, 1), reference);
  for (const uint32_t ps : {1U, 2U, 3U}) {
    for (const uint32_t shards : {1U, 2U, 4U}) {
      SCOPED_TRACE(fmt::format("{} ps with {} shards", ps, shards));
      if (ps * shards == 1) continue;
      expect_same(train(Protocol::kInproc, ps, shards), reference);
    }
  }
}

TEST_F(IdentityTest, AnyTransportGivesTheSameBits) {
  const Result reference = train(Protocol::kInproc, 2, 2);
  expect_same(train(Protocol::kFast, 2, 2), reference);
  expect_same(train(Protocol::kGrpc, 2, 2), reference);
}

}  // namespace
}  // namespace starling::cluster
