// What a shard tells of itself, and what is done to its tables as a whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/shard_testing.h"

namespace starling {
namespace {

using testing::ElementsAre;

v1::DenseOptions scalar(const std::string& name) {
  v1::DenseOptions out;
  out.set_name(name);
  out.mutable_initializer()->set_name("constant");
  out.mutable_initializer()->add_values()->set_name("value");
  out.mutable_initializer()->mutable_values(0)->set_value(2);
  return out;
}

Message clear_of(const ShardBench& bench, uint64_t number, const std::vector<std::string>& names) {
  Message message = bench.numbered(number);
  message.meta.mutable_clear()->set_all(names.empty());
  for (const std::string& name : names) message.meta.mutable_clear()->add_names(name);
  return message;
}

Message push_of(ShardBench& bench, uint64_t number, const std::string& table, uint64_t key,
                float grad) {
  Message message = bench.numbered(number);
  v1::KeyGradPart* part = message.meta.mutable_push_grad()->add_keys();
  part->set_table(table);
  part->set_keys_tensor(ShardBench::add(message, ShardBench::list<uint64_t>({key})));
  part->set_grads_tensor(ShardBench::add(message, ShardBench::matrix(1, 1, {grad})));
  return message;
}

v1::StatReply stat_of(ShardBench& bench, v1::StatOption option = {}) {
  Message message = bench.request();
  *message.meta.mutable_stat() = std::move(option);
  return bench.call(Method::kPsStat, std::move(message)).meta.stat_reply();
}

TEST(ShardUpkeep, ClearTakesOneTableOrAllOfThemOnce) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("a", 1), ShardBench::plain_table("b", 1)}, {scalar("w")});
  bench.freeze();
  ASSERT_TRUE(bench.status(Method::kPsPushGrad, push_of(bench, 1, "a", 5, 1)).ok());
  ASSERT_TRUE(bench.status(Method::kPsPushGrad, push_of(bench, 2, "b", 5, 1)).ok());
  ASSERT_TRUE(bench.status(Method::kPsClear, clear_of(bench, 3, {"a"})).ok());
  EXPECT_THAT(bench.weights("a", {5}), ElementsAre(0));
  EXPECT_THAT(bench.weights("b", {5}), ElementsAre(-1));
  ASSERT_TRUE(bench.status(Method::kPsPushGrad, push_of(bench, 4, "a", 5, 1)).ok());
  // A copy that was late takes nothing.
  ASSERT_TRUE(bench.status(Method::kPsClear, clear_of(bench, 3, {"a"})).ok());
  EXPECT_THAT(bench.weights("a", {5}), ElementsAre(-1));
  Message step = bench.numbered(5);
  step.meta.mutable_push_grad()->add_dense()->set_variable("w");
  step.meta.mutable_push_grad()->mutable_dense(0)->set_grads_tensor(
      ShardBench::add(step, ShardBench::list<float>({1})));
  ASSERT_TRUE(bench.status(Method::kPsPushGrad, step).ok());
  ASSERT_NE(bench.shard.variable("w")->parts().at(0)->weights()[0], 2);
  ASSERT_TRUE(bench.status(Method::kPsClear, clear_of(bench, 6, {})).ok());
  EXPECT_THAT(bench.weights("a", {5}), ElementsAre(0));
  EXPECT_THAT(bench.weights("b", {5}), ElementsAre(0));
  EXPECT_EQ(bench.shard.variable("w")->parts().at(0)->weights()[0], 2);
}

TEST(ShardUpkeep, StatCountsPerTableAndNamesTheHottestKeys) {
  ShardBench bench;
  v1::TableOptions counted = ShardBench::plain_table("t", 1);
  counted.mutable_admission()->set_name("count");
  counted.mutable_admission()->add_values()->set_name("count");
  counted.mutable_admission()->mutable_values(0)->set_value(2);
  bench.create({counted, ShardBench::plain_table("other", 1)});
  bench.freeze();
  uint64_t number = 0;
  for (uint64_t key = 0; key < 30; ++key) {
    for (uint64_t times = 0; times <= key % 3; ++times) {
      ASSERT_TRUE(bench.status(Method::kPsPushGrad, push_of(bench, ++number, "t", key, 1)).ok());
    }
  }
  std::vector<uint64_t> asked(640, 29);
  for (uint64_t key = 0; key < 30; ++key) asked.push_back(key);
  bench.weights("t", asked);
  const v1::StatReply all = stat_of(bench);
  ASSERT_EQ(all.tables_size(), 2);
  const v1::TableStat& told = all.tables(1);
  EXPECT_EQ(told.name(), "t");
  EXPECT_EQ(told.rows(), 20u) << "keys that came twice or more";
  EXPECT_EQ(told.admitted(), 20u);
  EXPECT_EQ(told.refused(), 30u) << "each key's first gradient was dropped";
  EXPECT_EQ(told.pushes(), 60u);
  EXPECT_EQ(told.lookups(), 670u);
  EXPECT_EQ(told.misses(), 10u);
  EXPECT_GT(told.bytes(), 0u);
  // Uses may be sampled.
  ASSERT_GE(told.hottest_size(), 1);
  EXPECT_LE(told.hottest_size(), 20);
  EXPECT_EQ(told.hottest(0).key(), 29u);
  EXPECT_GE(told.hottest(0).uses(), 500u);
  v1::StatOption one;
  one.add_names("t");
  one.set_hottest_max(1);
  const v1::StatReply chosen = stat_of(bench, one);
  ASSERT_EQ(chosen.tables_size(), 1);
  EXPECT_EQ(chosen.tables(0).hottest_size(), 1);
  EXPECT_EQ(chosen.memory_bytes(), bench.shard.memory_bytes()) << "of this shard";
}

TEST(ShardUpkeep, AHeartbeatTellsWhatWaits) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  const auto beat = [&bench] {
    return bench.call(Method::kPsHeartbeat, bench.request()).meta.ps_heartbeat_reply();
  };
  EXPECT_FALSE(beat().ready());
  bench.freeze(0, 2);
  ASSERT_TRUE(bench.status(Method::kPsFeedSample, bench.feed_rows({0, 0, 1}, "t", {5})).ok());
  bench.send(Method::kPsPushGrad, bench.push_rows({0, 0, 1}, "t", 1, {2}, 0, 0));
  Message lookup = bench.of_batch({0, 0, 2}, 1, 0);
  lookup.meta.mutable_embedding_lookup();
  bench.send(Method::kPsEmbeddingLookup, lookup);
  const v1::PsHeartbeatReply told = beat();
  EXPECT_TRUE(told.ready() && told.frozen());
  EXPECT_EQ(told.generation(), 1u);
  EXPECT_EQ(told.map_version(), bench.map_version);
  EXPECT_EQ(told.waiting_lookups(), 1u);
  EXPECT_EQ(told.staged_pushes(), 1u);
  EXPECT_GT(told.staged_bytes(), 0u);
  EXPECT_EQ(told.prepared_batches(), 1u);
  EXPECT_EQ(told.queued_requests(), bench.open_requests) << "as the host says";
  EXPECT_EQ(told.clocks_size(), 2);
}

// Score admission sees what each sample was shown and clicked, summed over the samples of a key.
TEST(ShardUpkeep, ShowAndClickPerSampleReachTheKeysOfTheBatch) {
  ShardBench bench;
  v1::TableOptions scored = ShardBench::plain_table("t", 1);
  scored.set_statistics(true);
  scored.mutable_admission()->set_name("score");
  scored.mutable_admission()->add_values()->set_name("threshold");
  scored.mutable_admission()->mutable_values(0)->set_value(1.05);
  bench.create({scored});
  bench.freeze();
  // Samples 0 and 1 have key 5, 2 has key 6, 3 has key 7.
  Message feed = bench.of_batch({0, 0, 1});
  feed.meta.mutable_header()->set_role(v1::ROLE_HUB);
  v1::FeedSampleOption* option = feed.meta.mutable_feed_sample();
  option->set_samples(4);
  v1::FeedPart* part = option->add_parts();
  part->set_table("t");
  part->set_keys_tensor(ShardBench::add(feed, ShardBench::list<uint64_t>({5, 6, 7})));
  part->set_row_keys(3);
  v1::FieldLayout* field = part->add_fields();
  field->set_field("f");
  field->set_samples_tensor(ShardBench::add(feed, ShardBench::list<uint32_t>({0, 1, 2, 3})));
  field->set_positions_tensor(ShardBench::add(feed, ShardBench::list<uint32_t>({0, 0, 1, 2})));
  ASSERT_TRUE(bench.status(Method::kPsFeedSample, std::move(feed)).ok());
  Message push = bench.push_rows({0, 0, 1}, "t", 3, {1, 1, 1});
  push.meta.mutable_push_grad()->set_shows_tensor(
      ShardBench::add(push, ShardBench::list<float>({1, 1, 1, 12})));
  push.meta.mutable_push_grad()->set_clicks_tensor(
      ShardBench::add(push, ShardBench::list<float>({0, 1, 1, 0})));
  ASSERT_TRUE(bench.status(Method::kPsPushGrad, std::move(push)).ok());
  // 5: 2 shows, 1 click, score 1.1; 6: 1 and 1, score 1; 7: 12 and 0, score 1.2.
  const Table& table = *bench.shard.table("t");
  EXPECT_EQ(table.rows(), 2u);
  EXPECT_THAT(bench.weights("t", {5, 6, 7}), ElementsAre(-1, 0, -1));
}

}  // namespace
}  // namespace starling
