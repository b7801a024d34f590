// Scheduler, ps and client in one process, over every transport: what a client does by key, by name
// and by batch, against a model that applies everything once.
#include <gmock/gmock.h>

#include <fstream>
#include <thread>

#include "base/rng.h"
#include "store/test_tools.h"
#include "tests/cluster/batches.h"
#include "tests/cluster/world.h"

namespace starling::cluster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kDim = 3;

// sgd of rate 1 from zero: a row is minus the sum of its gradients, whatever their order.
v1::CreateOption plain_tables() {
  v1::CreateOption option;
  option.set_seed(7);
  *option.add_tables() = table("t", kDim, rule("sgd", {{"lr", 1}}));
  v1::TableOptions range = table("r", 1, rule("sgd", {{"lr", 1}}));
  range.mutable_range()->set_lo(100);
  range.mutable_range()->set_hi(1100);
  *option.add_tables() = range;
  *option.add_variables() = variable("w", 100, rule("sgd", {{"lr", 1}}), 7);
  return option;
}

class ClientTest : public testing::TestWithParam<Protocol> {
 protected:
  void start(WorldOptions options = {}) {
    options.protocol = GetParam();
    world_ = std::make_unique<World>(options);
    node_ = &world_->client();
    world_->make_tables(*node_, plain_tables());
  }
  PsClient& ps() { return *node_->ps; }
  std::vector<float> rows(const std::string& name, const std::vector<uint64_t>& keys) {
    const auto pulled = ps().pull({{.table = name, .keys = keys_of(keys)}}, soon());
    EXPECT_TRUE(pulled.ok()) << pulled.status();
    return pulled.ok() ? floats(pulled->front().values) : std::vector<float>();
  }
  v1::StatReply total() {
    v1::StatReply sum;
    const auto stats = ps().stat({}, soon());
    EXPECT_TRUE(stats.ok()) << stats.status();
    for (const v1::StatReply& one : *stats) {
      sum.set_repeats(sum.repeats() + one.repeats());
      sum.set_index_probes(sum.index_probes() + one.index_probes());
      sum.set_prepared_batches(sum.prepared_batches() + one.prepared_batches());
    }
    return sum;
  }
  std::unique_ptr<World> world_;
  Node* node_ = nullptr;
};

TEST_P(ClientTest, TrainsByKeyAsTheModelSays) {
  start();
  Rng rng(1, 0, 0);
  std::map<uint64_t, std::vector<float>> model;
  std::vector<uint64_t> all;
  for (uint64_t i = 0; i < 500; ++i) all.push_back(rng.next_u64());
  all.push_back(0);
  all.push_back(UINT64_MAX);
  for (int step = 0; step < 20; ++step) {
    std::vector<uint64_t> keys;
    std::vector<float> grads;
    for (int i = 0; i < 200; ++i) {
      keys.push_back(all[rng.below(all.size())]);
      std::vector<float>& row = model.try_emplace(keys.back(), kDim, 0.0F).first->second;
      for (uint32_t d = 0; d < kDim; ++d) {
        grads.push_back(static_cast<float>(rng.below(64)) - 32);
        row[d] -= grads.back();
      }
    }
    const Status pushed = ps().push_grad(
        {{.table = "t", .keys = keys_of(keys), .grads = rows_of(keys.size(), kDim, grads)}}, {},
        soon());
    ASSERT_TRUE(pushed.ok()) << pushed;
  }
  std::vector<float> expected;
  for (const uint64_t key : all) {
    const auto it = model.find(key);
    const std::vector<float> row = it == model.end() ? std::vector<float>(kDim) : it->second;
    expected.insert(expected.end(), row.begin(), row.end());
  }
  EXPECT_EQ(rows("t", all), expected);
  // Any order and any repeats.
  const std::vector<float> twice = rows("t", {all[3], all[3]});
  EXPECT_EQ(std::vector<float>(twice.begin(), twice.begin() + kDim),
            std::vector<float>(twice.begin() + kDim, twice.end()));
}

TEST_P(ClientTest, PullSaysWhichKeysHaveRowsAndMakesThemOnlyWhenAsked) {
  start();
  const std::vector<uint64_t> keys = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto found = [&](bool create) {
    const auto pulled = ps().pull(
        {{.table = "t", .keys = keys_of(keys), .create = create, .with_found = true}}, soon());
    EXPECT_TRUE(pulled.ok()) << pulled.status();
    const auto values = pulled->front().found.values<uint8_t>();
    return std::count(values.begin(), values.end(), 1);
  };
  EXPECT_EQ(found(false), 0);
  EXPECT_EQ(found(false), 0);
  found(true);
  EXPECT_EQ(found(false), 8);
}

TEST_P(ClientTest, RangesArePulledAndPushedWhole) {
  start();
  v1::KeyRange range;
  range.set_lo(150);
  range.set_hi(950);
  std::vector<float> grads, expected;
  for (int i = 0; i < 800; ++i) {
    grads.push_back(static_cast<float>(i));
    expected.push_back(static_cast<float>(-i));
  }
  const Status pushed =
      ps().push_grad({{.table = "r", .range = range, .grads = rows_of(800, 1, grads)}}, {}, soon());
  ASSERT_TRUE(pushed.ok()) << pushed;
  auto pulled = ps().pull({{.table = "r", .range = range}}, soon());
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(floats(pulled->front().values), expected);
  // Only what is there, in order.
  range.set_lo(100);
  range.set_hi(153);
  pulled = ps().pull({{.table = "r", .range = range, .existing_only = true}}, soon());
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  const auto keys = pulled->front().keys.values<uint64_t>();
  EXPECT_THAT(std::vector<uint64_t>(keys.begin(), keys.end()), ElementsAre(150, 151, 152));
  EXPECT_THAT(floats(pulled->front().values), ElementsAre(0, -1, -2));
  const Status set = ps().push({{.table = "r", .range = range, .erase = true}}, {}, soon());
  ASSERT_TRUE(set.ok()) << set;
  EXPECT_THAT(rows("r", {150, 151, 153}), ElementsAre(0, 0, -3));
}

TEST_P(ClientTest, RowsAreSetAndErased) {
  start();
  const std::vector<uint64_t> keys = {11, 12, 13, 14};
  Status done = ps().push({{.table = "t",
                            .keys = keys_of(keys),
                            .values = rows_of(4, kDim, {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4})}},
                          {}, soon());
  ASSERT_TRUE(done.ok()) << done;
  EXPECT_THAT(rows("t", {14, 12}), ElementsAre(4, 4, 4, 2, 2, 2));
  done = ps().push({{.table = "t", .keys = keys_of({12}), .erase = true}}, {}, soon());
  ASSERT_TRUE(done.ok()) << done;
  EXPECT_THAT(rows("t", {14, 12}), ElementsAre(4, 4, 4, 0, 0, 0));
}

TEST_P(ClientTest, VariablesTravelWhenTheyHaveChanged) {
  start();
  std::vector<float> values(100), grads(100, 0.5F);
  for (int i = 0; i < 100; ++i) values[i] = static_cast<float>(i);
  Status done = ps().push({}, {{.variable = "w", .values = floats_of(values)}}, soon());
  ASSERT_TRUE(done.ok()) << done;
  auto first = ps().pull_dense({{.variable = "w"}}, soon());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(floats(first->front().values), values);
  auto second = ps().pull_dense(*first, soon());
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->front().versions, first->front().versions);
  EXPECT_EQ(second->front().values.buffer().data(), first->front().values.buffer().data());
  done = ps().push_grad({}, {{.variable = "w", .values = floats_of(grads)}}, soon());
  ASSERT_TRUE(done.ok()) << done;
  auto third = ps().pull_dense(*second, soon());
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_NE(third->front().versions, first->front().versions);
  EXPECT_EQ(floats(third->front().values)[99], 98.5F);
  auto middle = ps().pull_dense({{.variable = "w", .begin = 10, .end = 30}}, soon());
  ASSERT_TRUE(middle.ok()) << middle.status();
  EXPECT_EQ(floats(middle->front().values)[0], 9.5F);
  EXPECT_EQ(middle->front().values.elements(), 20);
}

TEST_P(ClientTest, ABatchIsTrainedOnceHoweverOftenItIsPushed) {
  start();
  const auto routes = ps().routes();
  const std::vector<Field> fields = {{"user", "t", false}, {"genres", "t", true}};
  Batch batch(fields, {.id = {0, 0, 1}, .keys = {{{1}, {2}, {3}}, {{5, 6}, {}, {2, 7}}}}, *routes,
              {{"t", kDim}});
  const Status fed = ps().feed(batch.feeds(), soon());
  ASSERT_TRUE(fed.ok()) << fed;
  EXPECT_TRUE(ps().feed(batch.feeds(), soon()).ok());
  const auto looked = ps().lookup(batch.lookups(0, 0), soon());
  ASSERT_TRUE(looked.ok()) << looked.status();
  ASSERT_TRUE(batch.take(*looked).ok());
  EXPECT_THAT(batch.pooled(1, 0), ElementsAre(0, 0, 0));
  const auto ones = [](size_t, size_t) { return std::vector<float>(kDim, 1); };
  for (int i = 0; i < 3; ++i) {
    const Status pushed = ps().push_batch(numbered(batch.pushes(0, 0, ones)), soon());
    ASSERT_TRUE(pushed.ok()) << pushed;
  }
  EXPECT_THAT(rows("t", {1, 5, 2}), ElementsAre(-1, -1, -1, -0.5, -0.5, -0.5, -1.5, -1.5, -1.5));
  EXPECT_GT(total().repeats(), 0);
  // The watermark passes: a feed is acknowledged, a lookup says that it is done.
  Message mark;
  mark.meta.mutable_feed_sample()->add_watermarks()->set_done_below(2);
  ASSERT_TRUE(ps().call_all(Method::kPsFeedSample, mark, soon()).ok());
  EXPECT_EQ(total().prepared_batches(), 0);
  EXPECT_TRUE(ps().feed(batch.feeds(), soon()).ok());
  const auto late = ps().lookup(batch.lookups(0, 0), soon());
  EXPECT_EQ(reason_of(late.status()), v1::REASON_ALREADY_DONE);
}

TEST_P(ClientTest, LookupsProbeOnlyForRowsThatMoved) {
  start();
  const auto routes = ps().routes();
  std::vector<std::vector<uint64_t>> samples;
  std::vector<uint64_t> keys;
  for (uint64_t key = 1; key <= 300; ++key) {
    samples.push_back({key});
    keys.push_back(key);
  }
  ASSERT_TRUE(ps().pull({{.table = "t", .keys = keys_of(keys), .create = true}}, soon()).ok());
  uint64_t number = 0;
  const auto round = [&](const std::function<void()>& between) {
    Batch batch({{"f", "t", false}}, {.id = {0, 0, number++}, .keys = {samples}}, *routes,
                {{"t", kDim}});
    EXPECT_TRUE(ps().feed(batch.feeds(), soon()).ok());
    between();
    const uint64_t before = total().index_probes();
    const auto looked = ps().lookup(batch.lookups(0, 0), soon());
    EXPECT_TRUE(looked.ok()) << looked.status();
    EXPECT_TRUE(batch.take(*looked).ok());
    for (size_t sample = 0; sample < samples.size(); ++sample) {
      EXPECT_EQ(batch.pooled(0, sample), rows("t", {samples[sample][0]}));
    }
    return total().index_probes() - before;
  };
  EXPECT_EQ(round([] {}), 0);
  // Growth: rows that did not move are still found by their hints.
  EXPECT_EQ(round([&] {
              std::vector<uint64_t> more;
              for (uint64_t key = 1000; key < 21000; ++key) more.push_back(key);
              EXPECT_TRUE(
                  ps().pull({{.table = "t", .keys = keys_of(more), .create = true}}, soon()).ok());
            }),
            0);
  EXPECT_GT(
      round([&] {
        EXPECT_TRUE(
            ps().push({{.table = "t", .keys = keys_of({5}), .erase = true}}, {}, soon()).ok());
      }),
      0);
  v1::ClearOption clear;
  clear.add_names("t");
  EXPECT_GT(round([&] { EXPECT_TRUE(ps().clear(clear, soon()).ok()); }), 0);
}

// Rows that move or go between the feed and the lookup are found again, or not at all.
TEST_P(ClientTest, ShrinkAndEvictionBetweenFeedAndLookupAreSeen) {
  world_ = std::make_unique<World>(WorldOptions{.protocol = GetParam(), .ps = 1, .shards = 2});
  node_ = &world_->client();
  v1::CreateOption create;
  *create.add_tables() = table("small", 1, rule("sgd", {{"lr", 1}}));
  *create.mutable_tables(0)->add_eviction() = rule("norm", {{"threshold", 10}});
  *create.add_tables() = table("full", 1, rule("sgd", {{"lr", 1}}));
  *create.mutable_tables(1)->add_eviction() = rule("lru", {{"rows", 4096}});
  world_->make_tables(*node_, create);
  std::vector<uint64_t> keys;
  std::vector<std::vector<uint64_t>> samples;
  std::vector<float> values;
  for (uint64_t key = 0; key < 200; ++key) {
    keys.push_back(key);
    samples.push_back({key});
    values.push_back(static_cast<float>(key));
  }
  const auto set = [&](const std::string& name, const std::vector<uint64_t>& which) {
    std::vector<float> of(which.begin(), which.end());
    const Status done =
        ps().push({{.table = name, .keys = keys_of(which), .values = rows_of(which.size(), 1, of)}},
                  {}, soon());
    ASSERT_TRUE(done.ok()) << done;
  };
  set("small", keys);
  set("full", keys);
  uint64_t number = 0;
  const auto look = [&](const std::string& name, const std::function<void()>& between) {
    Batch batch({{"f", name}}, {.id = {0, 0, number++}, .keys = {samples}}, *ps().routes(),
                {{name, 1}});
    EXPECT_TRUE(ps().feed(batch.feeds(), soon()).ok());
    between();
    const auto looked = ps().lookup(batch.lookups(0, 0), soon());
    EXPECT_TRUE(looked.ok() && batch.take(*looked).ok()) << looked.status();
    std::vector<float> out;
    for (size_t sample = 0; sample < samples.size(); ++sample) {
      out.push_back(batch.pooled(0, sample).front());
    }
    return out;
  };
  EXPECT_EQ(look("small", [] {}), values);
  const std::vector<float> shrunk = look("small", [&] {
    const auto gone = ps().shrink({}, soon());
    ASSERT_TRUE(gone.ok()) << gone.status();
    EXPECT_EQ(gone->front().rows(), 10) << "the ten rows below the threshold";
  });
  for (size_t i = 0; i < shrunk.size(); ++i) EXPECT_EQ(shrunk[i], i < 10 ? 0 : values[i]) << i;
  // One row fits into each bucket; whoever shares one with a later key has gone.
  std::vector<uint64_t> later;
  for (uint64_t key = 1000; key < 9000; ++key) later.push_back(key);
  const std::vector<float> evicted = look("full", [&] { set("full", later); });
  EXPECT_EQ(evicted, rows("full", keys));
  EXPECT_NE(evicted, values) << "some rows have gone";
}

TEST_P(ClientTest, AFeedBeyondTheWindowIsToldAtOnce) {
  start({.ps = 1, .shards = 1});
  const auto feed = [&](uint64_t number) {
    Batch batch({{"f", "t", false}}, {.id = {0, 0, number}, .keys = {{{number}}}}, *ps().routes(),
                {{"t", kDim}});
    std::vector<ShardMessage> messages = batch.feeds();
    for (ShardMessage& one : messages) one.message.meta.mutable_feed_sample()->set_window(2);
    return ps().feed(std::move(messages), soon());
  };
  EXPECT_TRUE(feed(0).ok());
  EXPECT_TRUE(feed(1).ok());
  const Status beyond = feed(2);
  EXPECT_EQ(beyond.code(), StatusCode::kResourceExhausted) << beyond;
  EXPECT_EQ(reason_of(beyond), v1::REASON_FEED_WINDOW_FULL) << beyond;
  EXPECT_TRUE(feed(1).ok()) << "a repeat is inside";
  Message mark;
  mark.meta.mutable_feed_sample()->add_watermarks()->set_done_below(1);
  ASSERT_TRUE(ps().call_all(Method::kPsFeedSample, mark, soon()).ok());
  EXPECT_TRUE(feed(2).ok());
}

// A ps that came between Create and Freeze used to have no tables, and to start elements anew that
// somebody had set.
TEST_P(ClientTest, WhatWasCreatedAndPushedBeforeFreezeFollowsTheMap) {
  world_ = std::make_unique<World>(
      WorldOptions{.protocol = GetParam(), .ps = 1, .shards = 2, .map_grows = true});
  node_ = &world_->client();
  ASSERT_TRUE(ps().create(plain_tables(), soon()).ok());
  std::vector<float> values(100);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 0.5F;
  ASSERT_TRUE(ps().push({}, {{.variable = "w", .values = floats_of(values)}}, soon()).ok());
  ASSERT_NO_FATAL_FAILURE(world_->add_ps());
  const Deadline deadline = soon();
  while (ps().routes()->shards() < 4 && !deadline.passed(RealClock().now())) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  ASSERT_EQ(ps().routes()->shards(), 4);
  const auto hash = ps().freeze({}, soon());
  ASSERT_TRUE(hash.ok()) << hash.status();
  const auto pulled = ps().pull_dense({{.variable = "w"}}, soon());
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(floats(pulled->front().values), values);
}

TEST_P(ClientTest, AStaleMapIsReplacedAndTheRequestCutAnew) {
  start({.map_grows = true});
  const uint64_t newest = ps().routes()->version();
  ASSERT_GT(newest, 1);
  // What a client knows that has slept since the first map: every bucket on another shard.
  v1::Event event;
  *event.mutable_map() = ps().routes()->map();
  event.mutable_map()->set_version(1);
  for (uint32_t& shard : *event.mutable_map()->mutable_bucket_shard()) shard = (shard + 1) % 4;
  Node& other = world_->add(v1::ROLE_CLIENT, "stale");
  const auto reply = other.scheduler->join_wait(soon());
  ASSERT_TRUE(reply.ok()) << reply.status();
  PsClientOptions options;
  options.role = v1::ROLE_CLIENT;
  options.node = reply->id();
  options.incarnation = other.incarnation;
  options.generation = reply->generation();
  const auto lane = world_->network().make_lane("stale", 0);
  {
    PsClient stale(world_->network(), lane, options, nullptr);
    ASSERT_TRUE(stale.use_schema(plain_tables()).ok());
    stale.on_event(event);
    const std::vector<uint64_t> keys = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const Status pushed =
        stale.push_grad({{.table = "t",
                          .keys = keys_of(keys),
                          .grads = rows_of(10, kDim, std::vector<float>(10 * kDim, 1))}},
                        {}, soon());
    ASSERT_TRUE(pushed.ok()) << pushed;
    EXPECT_EQ(stale.routes()->version(), newest);
    EXPECT_EQ(rows("t", keys), std::vector<float>(10 * kDim, -1.0F));
    lane->stop();
  }
}

TEST_P(ClientTest, ARangeByAStaleMapTravelsAsKeys) {
  start({.map_grows = true});
  v1::Event event;
  *event.mutable_map() = ps().routes()->map();
  event.mutable_map()->set_version(1);
  for (uint32_t& shard : *event.mutable_map()->mutable_bucket_shard()) shard = 3 - shard;
  const auto lane = world_->network().make_lane("stale", 0);
  {
    PsClient stale(world_->network(), lane, {}, nullptr);
    ASSERT_TRUE(stale.use_schema(plain_tables()).ok());
    stale.on_event(event);
    v1::KeyRange range;
    range.set_lo(100);
    range.set_hi(1100);
    const Status set = ps().push(
        {{.table = "r", .keys = keys_of({100, 600, 1099}), .values = rows_of(3, 1, {1, 2, 3})}}, {},
        soon());
    ASSERT_TRUE(set.ok()) << set;
    const auto pulled = stale.pull({{.table = "r", .range = range}}, soon());
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    const std::vector<float> values = floats(pulled->front().values);
    EXPECT_THAT((std::vector<float>{values[0], values[1], values[500], values[999]}),
                ElementsAre(1, 0, 2, 3));
    lane->stop();
  }
}

TEST_P(ClientTest, TheStepIsReadAndSetEverywhere) {
  start();
  ASSERT_TRUE(ps().set_step(41, soon()).ok());
  const auto step = ps().step(soon());
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(*step, 41);
}

TEST_P(ClientTest, StatCountsAndMeasuresEveryRpc) {
  start();
  rows("t", {1, 2, 3, 4});
  v1::StatOption option;
  option.set_with_latencies(true);
  const auto stats = ps().stat(option, soon());
  ASSERT_TRUE(stats.ok()) << stats.status();
  ASSERT_EQ(stats->size(), 4);
  uint64_t lookups = 0;
  for (const v1::StatReply& one : *stats) {
    ASSERT_EQ(one.tables_size(), 3);
    lookups += one.tables(1).lookups();
  }
  EXPECT_EQ(lookups, 4);
  bool has_pull = false;
  for (const v1::RpcStat& rpc : stats->front().rpcs()) {
    if (rpc.method() != "Ps.Pull") continue;
    has_pull = true;
    EXPECT_GT(rpc.calls(), 0);
    EXPECT_GT(rpc.bytes_in(), 0);
    EXPECT_GT(rpc.bytes_out(), 0);
    EXPECT_GE(rpc.max_us(), rpc.p50_us() * 0.9);
  }
  EXPECT_TRUE(has_pull);
  const auto beats = ps().heartbeat(soon());
  ASSERT_TRUE(beats.ok()) << beats.status();
  EXPECT_TRUE(beats->front().ready());
}

TEST_P(ClientTest, AProfileIsAChromeTraceOfEveryLane) {
  TemporaryDirectory directory;
  start({.trace_path = directory.path() + "/traces"});
  v1::ProfileOption option;
  ASSERT_TRUE(ps().profile(option, soon()).ok());
  for (uint64_t key = 0; key < 64; ++key) rows("t", {key, key + 64});
  option.set_action(v1::PROFILE_ACTION_STOP);
  const auto traces = ps().profile(option, soon());
  ASSERT_TRUE(traces.ok()) << traces.status();
  ASSERT_EQ(traces->size(), 2);
  for (const v1::ProfileReply& trace : *traces) {
    EXPECT_THAT(trace.trace(), HasSubstr(R"("traceEvents":[)"));
    EXPECT_THAT(trace.trace(), HasSubstr(R"("tid":0,"name":"Ps.Pull","cat":"handle")"));
    EXPECT_THAT(trace.trace(), HasSubstr(R"("tid":1,"name":"Ps.Pull","cat":"send")"));
    std::ifstream file(trace.path());
    const std::string written((std::istreambuf_iterator<char>(file)), {});
    EXPECT_EQ(written, trace.trace());
  }
}

TEST_P(ClientTest, ShrinkTellsWhatWentAndIsAppliedOnce) {
  WorldOptions options{.protocol = GetParam()};
  world_ = std::make_unique<World>(options);
  node_ = &world_->client();
  v1::CreateOption create;
  v1::TableOptions small = table("t", kDim, rule("sgd", {{"lr", 1}}));
  *small.add_eviction() = rule("norm", {{"threshold", 1}});
  *create.add_tables() = small;
  world_->make_tables(*node_, create);
  const Status set = ps().push({{.table = "t",
                                 .keys = keys_of({1, 2, 3}),
                                 .values = rows_of(3, kDim, {0.1, 0, 0, 5, 5, 5, 0.2, 0, 0})}},
                               {}, soon());
  ASSERT_TRUE(set.ok()) << set;
  const auto gone = ps().shrink({}, soon());
  ASSERT_TRUE(gone.ok()) << gone.status();
  ASSERT_EQ(gone->size(), 1);
  EXPECT_EQ(gone->front().rows(), 2);
  EXPECT_EQ(gone->front().reason(), "norm");
  EXPECT_THAT(rows("t", {1, 2}), ElementsAre(0, 0, 0, 5, 5, 5));
}

TEST_P(ClientTest, NewRowsAreRefusedWhenMemoryIsFullAndOldOnesTrainOn) {
  start({.ps = 1, .shards = 1, .memory_bytes_max = size_t{64} << 20});
  constexpr uint64_t kStep = 20'000;
  Status status;
  uint64_t key = 0;
  const auto push = [&](uint64_t first) {
    std::vector<uint64_t> keys;
    for (uint64_t i = 0; i < kStep; ++i) keys.push_back(first + i);
    return ps().push_grad({{.table = "t",
                            .keys = keys_of(keys),
                            .grads = rows_of(kStep, kDim, std::vector<float>(kStep * kDim, 1))}},
                          {}, soon());
  };
  for (; key < 8'000'000 && status.ok(); key += kStep) status = push(key);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(reason_of(status), v1::REASON_MEMORY_FULL);
  EXPECT_THAT(std::string(message_of(status)), HasSubstr("limit is"));
  EXPECT_THAT(rows("t", {0}), ElementsAre(-1, -1, -1));
}

TEST_P(ClientTest, StopEndsEveryPsAndIsSeenByItsOwner) {
  start();
  v1::StopOption option;
  option.set_grace_ms(1234);
  ASSERT_TRUE(ps().stop(option, soon()).ok());
  for (size_t i = 0; i < 2; ++i) {
    const auto end = world_->ps(i).ended();
    ASSERT_TRUE(end.has_value());
    EXPECT_TRUE(end->status.ok());
    EXPECT_EQ(end->grace, milliseconds(1234));
    EXPECT_TRUE(world_->ps(i).stop(soon()).ok());
    EXPECT_TRUE(world_->ps(i).stop(soon()).ok());
  }
}

TEST_P(ClientTest, AStoppedClientAnswersEveryCallWithCancelled) {
  start();
  ps().stop();
  EXPECT_EQ(ps().stat({}, Deadline::never()).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(ps().pull({{.table = "t", .keys = keys_of({1})}}, Deadline::never()).status().code(),
            StatusCode::kCancelled);
}

TEST_P(ClientTest, ADeadPsIsNamedByClientsAndByTheOtherPs) {
  start();
  world_->start_training(*node_, world_->schema_hash);
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; key < 200; ++key) keys.push_back(key);
  world_->kill_ps(1);
  const auto pulled = ps().pull({{.table = "t", .keys = keys_of(keys)}}, soon());
  EXPECT_EQ(pulled.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(message_of(pulled.status())), HasSubstr("ps-1 died"));
  const Deadline deadline = soon();
  while (!world_->ps(0).ended().has_value() && !deadline.passed(RealClock().now())) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  const auto end = world_->ps(0).ended();
  ASSERT_TRUE(end.has_value());
  EXPECT_THAT(std::string(message_of(end->status)), HasSubstr("ps-1 died"));
}

INSTANTIATE_TEST_SUITE_P(Protocols, ClientTest, testing::ValuesIn(all_protocols()), protocol_title);

}  // namespace
}  // namespace starling::cluster
