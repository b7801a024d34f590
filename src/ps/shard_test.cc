#include "ps/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ps/shard_testing.h"

namespace starling {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr BatchId kFirst{.epoch = 0, .item = 0, .number = 0};
constexpr BatchId kSecond{.epoch = 0, .item = 0, .number = 1};

v1::Reason reason_of(const Message& reply) { return reply.meta.status().reason(); }

TEST(Shard, ARepeatedCreateIsFineAndAnotherSchemaIsNamed) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 2)});
  bench.create({ShardBench::plain_table("t", 2)});
  Message other = bench.request();
  *other.meta.mutable_create()->add_tables() = ShardBench::plain_table("t", 3);
  const Message reply = bench.call(Method::kPsCreate, std::move(other));
  EXPECT_EQ(status_of(reply).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(reason_of(reply), v1::REASON_SCHEMA_DIFFERS);
  EXPECT_THAT(std::string(message_of(status_of(reply))), HasSubstr("dim: 2 -> 3"));
}

TEST(Shard, CreateComesBeforeFreezeAndTrainingAfter) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 2)});
  EXPECT_EQ(reason_of(bench.call(Method::kPsFeedSample, bench.feed_rows(kFirst, "t", {1}))),
            v1::REASON_NOT_FROZEN);
  bench.freeze();
  Message late = bench.request();
  *late.meta.mutable_create()->add_tables() = ShardBench::plain_table("u", 2);
  EXPECT_EQ(reason_of(bench.call(Method::kPsCreate, std::move(late))), v1::REASON_FROZEN);
  bench.create({ShardBench::plain_table("t", 2)});
}

TEST(Shard, TheSchemaHashDependsOnEveryOption) {
  ShardSchema a, b, c;
  v1::CreateOption option;
  *option.add_tables() = ShardBench::plain_table("t", 2);
  ASSERT_TRUE(a.add(option).ok());
  ASSERT_TRUE(b.add(option).ok());
  option.mutable_tables(0)->set_statistics(true);
  ASSERT_TRUE(c.add(option).ok());
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_NE(a.hash(), c.hash());
}

TEST(Shard, AStepByBatchReadsWhatTheLastOneWrote) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 2)});
  bench.freeze();
  ASSERT_TRUE(bench.status(Method::kPsFeedSample, bench.feed_rows(kFirst, "t", {5, 9})).ok());
  const Message zero = bench.call(Method::kPsEmbeddingLookup, bench.of_batch(kFirst));
  EXPECT_THAT(zero.tensors.at(0).values<float>(), ElementsAre(0, 0, 0, 0));
  ASSERT_TRUE(
      bench.status(Method::kPsPushGrad, bench.push_rows(kFirst, "t", 2, {1, 2, 3, 4})).ok());
  ASSERT_TRUE(bench.status(Method::kPsFeedSample, bench.feed_rows(kSecond, "t", {9, 5})).ok());
  const Message after = bench.call(Method::kPsEmbeddingLookup, bench.of_batch(kSecond));
  EXPECT_THAT(after.tensors.at(0).values<float>(), ElementsAre(-3, -4, -1, -2));
  EXPECT_EQ(bench.shard.step(), 1u);
}

TEST(Shard, ARepeatedPushIsAcknowledgedAndNotApplied) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze();
  ASSERT_TRUE(bench.status(Method::kPsFeedSample, bench.feed_rows(kFirst, "t", {5})).ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(bench.status(Method::kPsPushGrad, bench.push_rows(kFirst, "t", 1, {1})).ok());
  }
  // Another trainer that took the batch over has other gradients; the id counts.
  EXPECT_TRUE(bench.status(Method::kPsPushGrad, bench.push_rows(kFirst, "t", 1, {7})).ok());
  EXPECT_THAT(bench.weights("t", {5}), ElementsAre(-1));
  EXPECT_EQ(bench.shard.counts().repeats, 3u);
}

TEST(Shard, BelowTheWatermarkEverythingIsOver) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze();
  ASSERT_TRUE(bench.status(Method::kPsFeedSample, bench.feed_rows(kFirst, "t", {5})).ok());
  ASSERT_TRUE(bench.status(Method::kPsPushGrad, bench.push_rows(kFirst, "t", 1, {1})).ok());
  Message next = bench.feed_rows(kSecond, "t", {5});
  v1::Watermark* mark = next.meta.mutable_feed_sample()->add_watermarks();
  mark->set_done_below(1);
  ASSERT_TRUE(bench.status(Method::kPsFeedSample, std::move(next)).ok());
  EXPECT_TRUE(bench.status(Method::kPsFeedSample, bench.feed_rows(kFirst, "t", {6})).ok());
  EXPECT_TRUE(bench.status(Method::kPsPushGrad, bench.push_rows(kFirst, "t", 1, {1})).ok());
  const Message lookup = bench.call(Method::kPsEmbeddingLookup, bench.of_batch(kFirst));
  EXPECT_EQ(reason_of(lookup), v1::REASON_ALREADY_DONE);
  EXPECT_THAT(bench.weights("t", {5, 6}), ElementsAre(-1, 0));
}

TEST(Shard, AFeedIsKnownByItsContent) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze();
  ASSERT_TRUE(bench.status(Method::kPsFeedSample, bench.feed_rows(kFirst, "t", {5})).ok());
  EXPECT_TRUE(bench.status(Method::kPsFeedSample, bench.feed_rows(kFirst, "t", {5})).ok());
  EXPECT_EQ(bench.status(Method::kPsFeedSample, bench.feed_rows(kFirst, "t", {6})).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(bench.shard.counts().feeds, 1u);
}

TEST(Shard, ARepeatedFeedMayTellOtherWatermarks) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze();
  ASSERT_TRUE(bench.status(Method::kPsFeedSample, bench.feed_rows(kSecond, "t", {5})).ok());
  Message again = bench.feed_rows(kSecond, "t", {5});
  again.meta.mutable_feed_sample()->add_watermarks()->set_done_below(1);
  EXPECT_TRUE(bench.status(Method::kPsFeedSample, again).ok());
  EXPECT_EQ(bench.shard.counts().feeds, 1u);
}

TEST(Shard, AFeedInSeveralMessagesIsThereWhenAllAre) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1), ShardBench::plain_table("u", 1)});
  bench.freeze();
  const auto feed = [&](const std::string& table, const std::vector<uint64_t>& keys) {
    Message message = bench.feed_rows(kFirst, table, keys);
    message.meta.mutable_feed_sample()->set_parts_announced(2);
    return bench.status(Method::kPsFeedSample, std::move(message));
  };
  Message lookup = bench.of_batch(kFirst);
  lookup.meta.mutable_embedding_lookup();
  const Token early = bench.send(Method::kPsEmbeddingLookup, lookup);
  ASSERT_TRUE(feed("t", {5, 6}).ok());
  ASSERT_TRUE(feed("t", {5, 6}).ok());
  EXPECT_EQ(feed("t", {5, 7}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(feed("u", {1, 2, 3}).code(), StatusCode::kInvalidArgument);  // of 3 samples, not 2
  EXPECT_FALSE(bench.answered(early));
  ASSERT_TRUE(feed("u", {1, 2}).ok());
  ASSERT_TRUE(bench.answered(early));
  EXPECT_EQ(bench.answers.at(early).meta.embedding_lookup_reply().parts_size(), 2);
  EXPECT_EQ(bench.shard.counts().feeds, 1u);
  ASSERT_TRUE(bench.status(Method::kPsPushGrad, bench.push_rows(kFirst, "u", 2, {1, 1})).ok());
  EXPECT_THAT(bench.weights("u", {1, 2}), ElementsAre(-1, -1));
}

TEST(Shard, ALookupWaitsForItsFeedAndGivesUpAtItsDeadline) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze();
  const Deadline deadline(bench.now + seconds(5));
  const Token early = bench.send(Method::kPsEmbeddingLookup, bench.of_batch(kFirst), deadline);
  const Token never = bench.send(Method::kPsEmbeddingLookup, bench.of_batch(kSecond), deadline);
  EXPECT_FALSE(bench.answered(early));
  ASSERT_TRUE(bench.status(Method::kPsFeedSample, bench.feed_rows(kFirst, "t", {5})).ok());
  EXPECT_TRUE(bench.answered(early));
  EXPECT_EQ(bench.shard.next_wake(), deadline.at());
  bench.now += seconds(6);
  bench.shard.tick(bench.now);
  bench.collect();
  ASSERT_TRUE(bench.answered(never));
  EXPECT_EQ(status_of(bench.answers.at(never)).code(), StatusCode::kNotFound);
}

TEST(Shard, SynchronousPushesAreAppliedTogetherInRankOrder) {
  v1::TableOptions table = ShardBench::plain_table("t", 1);
  table.mutable_optimizer()->set_name("adagrad");
  std::vector<float> first;
  for (const bool reversed : {false, true}) {
    ShardBench bench;
    bench.create({table});
    bench.freeze(0, 2);
    for (const BatchId& id : {kFirst, kSecond}) {
      ASSERT_TRUE(bench.status(Method::kPsFeedSample, bench.feed_rows(id, "t", {5})).ok());
    }
    std::vector<Message> pushes;
    pushes.push_back(bench.push_rows(kFirst, "t", 1, {0.5}, 0, 0));
    pushes.push_back(bench.push_rows(kSecond, "t", 1, {3}, 1, 0));
    if (reversed) std::swap(pushes[0], pushes[1]);
    const Token a = bench.send(Method::kPsPushGrad, pushes[0]);
    const Token again = bench.send(Method::kPsPushGrad, pushes[0]);
    EXPECT_FALSE(bench.answered(a)) << "applied before all ranks were there";
    const Token b = bench.send(Method::kPsPushGrad, pushes[1]);
    EXPECT_TRUE(bench.answered(a) && bench.answered(again) && bench.answered(b));
    if (first.empty()) {
      first = bench.weights("t", {5});
    } else {
      EXPECT_EQ(bench.weights("t", {5}), first) << "the order of arrival shows";
    }
  }
}

TEST(Shard, ALookupWaitsForTheSlowestRank) {
  for (const uint32_t staleness : {0u, 2u}) {
    ShardBench bench;
    bench.create({ShardBench::plain_table("t", 1)});
    bench.freeze(staleness, 2);
    for (uint64_t clock = 0; clock < 2 + staleness; ++clock) {
      const BatchId id{.number = clock};
      ASSERT_TRUE(bench.status(Method::kPsFeedSample, bench.feed_rows(id, "t", {5})).ok());
      const Token lookup = bench.send(Method::kPsEmbeddingLookup, bench.of_batch(id, 0, clock));
      EXPECT_EQ(bench.answered(lookup), clock <= staleness) << staleness << " at " << clock;
      if (clock > staleness) {
        bench.send(Method::kPsPushGrad,
                   bench.of_batch({.item = 9, .number = 0}, 1, 0));  // rank 1's first tick
        EXPECT_TRUE(bench.answered(lookup));
        EXPECT_LE(bench.answers.at(lookup).meta.embedding_lookup_reply().staleness(), staleness);
      } else {
        bench.send(Method::kPsPushGrad, bench.push_rows(id, "t", 1, {1}, 0, clock));
      }
    }
  }
}

TEST(Shard, AKeyOfAnotherShardIsAnsweredWithTheMap) {
  ShardBench bench;
  bench.set_owner([](uint32_t bucket) { return bucket < 2048 ? 0u : 1u; }, 2);
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze();
  const Message reply =
      bench.call(Method::kPsFeedSample, bench.feed_rows(kFirst, "t", {0}));  // bucket 3618
  EXPECT_EQ(reason_of(reply), v1::REASON_STALE_MAP);
  EXPECT_EQ(reply.meta.status().map().version(), bench.map_version);
}

TEST(Shard, PushesByKeyAreAppliedOncePerNumber) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze();
  const auto push = [&](uint64_t number, float gradient, uint64_t acked = 0) {
    Message message = bench.numbered(number);
    message.meta.mutable_header()->set_acked_below(acked);
    v1::KeyGradPart* part = message.meta.mutable_push_grad()->add_keys();
    part->set_table("t");
    part->set_keys_tensor(ShardBench::add(message, ShardBench::list<uint64_t>({5, 5})));
    part->set_grads_tensor(
        ShardBench::add(message, ShardBench::matrix(2, 1, {gradient, gradient})));
    return bench.call(Method::kPsPushGrad, std::move(message));
  };
  EXPECT_TRUE(status_of(push(1, 1)).ok());
  EXPECT_TRUE(status_of(push(1, 1)).ok());
  EXPECT_THAT(bench.weights("t", {5}), ElementsAre(-2));
  EXPECT_EQ(reason_of(push(1, 9)), v1::REASON_NUMBER_REUSED);
  EXPECT_EQ(reason_of(push(5000, 1)), v1::REASON_WINDOW_FULL);
  EXPECT_TRUE(status_of(push(2, 1, 2)).ok());
  EXPECT_TRUE(status_of(push(1, 9, 2)).ok()) << "below acked_below: applied long ago";
  EXPECT_EQ(reason_of(push(0, 1)), v1::REASON_NONE);
  EXPECT_THAT(bench.weights("t", {5}), ElementsAre(-4));
}

TEST(Shard, ANanIsRefusedForGoodAndNothingOfTheMessageApplies) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("a", 1), ShardBench::plain_table("b", 1)});
  bench.freeze();
  const auto push = [&](float second) {
    Message message = bench.numbered(1);
    for (const auto& [table, gradient] : {std::pair("a", 1.0f), std::pair("b", second)}) {
      v1::KeyGradPart* part = message.meta.mutable_push_grad()->add_keys();
      part->set_table(table);
      part->set_keys_tensor(ShardBench::add(message, ShardBench::list<uint64_t>({5})));
      part->set_grads_tensor(ShardBench::add(message, ShardBench::matrix(1, 1, {gradient})));
    }
    return bench.call(Method::kPsPushGrad, std::move(message));
  };
  EXPECT_EQ(reason_of(push(std::nanf(""))), v1::REASON_CONTENT_REFUSED);
  EXPECT_EQ(status_of(push(std::nanf(""))).code(), StatusCode::kInvalidArgument)
      << "the refusal is the final answer";
  EXPECT_THAT(bench.weights("a", {5}), ElementsAre(0));
}

TEST(Shard, ADeadIncarnationIsRefused) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze();
  v1::Event event;
  event.mutable_node()->set_id(7);
  event.mutable_node()->set_incarnation(1);
  event.mutable_node()->set_state(v1::NODE_STATE_DEAD);
  bench.shard.on_event(event);
  EXPECT_EQ(reason_of(bench.call(Method::kPsPushGrad, bench.of_batch(kFirst, 0, 0))),
            v1::REASON_FENCED);
}

TEST(Shard, AnotherGenerationIsRefused) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze();
  Message push = bench.numbered(1);
  push.meta.mutable_header()->set_generation(2);
  push.meta.mutable_push_grad();
  EXPECT_EQ(bench.status(Method::kPsPushGrad, push).code(), StatusCode::kUnavailable)
      << "the scheduler's word of it may come yet";
  v1::Event job;
  job.mutable_job()->set_generation(2);
  bench.shard.on_event(job);
  EXPECT_EQ(reason_of(bench.call(Method::kPsPushGrad, push)), v1::REASON_NOT_FROZEN);
  Message freeze = bench.request();
  freeze.meta.mutable_header()->set_generation(2);
  freeze.meta.mutable_freeze();
  ASSERT_TRUE(bench.status(Method::kPsFreeze, freeze).ok());
  EXPECT_TRUE(bench.status(Method::kPsPushGrad, push).ok());
  push.meta.mutable_header()->set_generation(1);
  EXPECT_EQ(reason_of(bench.call(Method::kPsPushGrad, push)), v1::REASON_WRONG_GENERATION);
}

// Steps that some had pushed and others not used to be taken half by the old rule, half by the new.
TEST(Shard, AStalenessThatComesTooLateWaitsForItsNextAnnouncement) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze(0, 1);
  for (uint64_t clock = 0; clock < 3; ++clock) {
    Message tick = bench.of_batch({0, 9, clock}, 0, clock);
    tick.meta.mutable_push_grad();
    ASSERT_TRUE(bench.status(Method::kPsPushGrad, tick).ok());
  }
  v1::Event event;
  event.mutable_staleness()->set_staleness(4);
  event.mutable_staleness()->set_clock(2);
  bench.shard.on_event(event);
  EXPECT_TRUE(bench.shard.clocks().synchronous(3));
  event.mutable_staleness()->set_withdrawn_clock(2);
  event.mutable_staleness()->set_clock(6);
  bench.shard.on_event(event);
  EXPECT_TRUE(bench.shard.clocks().synchronous(5));
  EXPECT_EQ(bench.shard.clocks().staleness(6), 4u);
  // The whole state tells what holds since long.
  event.mutable_staleness()->clear_withdrawn_clock();
  event.mutable_staleness()->set_clock(1);
  event.mutable_staleness()->set_settled(true);
  bench.shard.on_event(event);
  EXPECT_EQ(bench.shard.clocks().staleness(3), 4u);
}

// Their clocks used to go on where the old generation had been, so that the first pushes of the new
// one passed for repeats.
TEST(Shard, ANewGenerationSendsEverybodyAwayAndStartsItsClocksAnew) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze(0, 2);
  ASSERT_TRUE(bench.status(Method::kPsFeedSample, bench.feed_rows(kFirst, "t", {5})).ok());
  const Token staged = bench.send(Method::kPsPushGrad, bench.push_rows(kFirst, "t", 1, {2}, 0, 0));
  Message lookup = bench.of_batch(kSecond, 1, 0);
  lookup.meta.mutable_embedding_lookup();
  const Token waiting = bench.send(Method::kPsEmbeddingLookup, lookup);
  v1::Event job;
  job.mutable_job()->set_generation(2);
  bench.shard.on_event(job);
  bench.collect();
  for (const Token token : {staged, waiting}) {
    ASSERT_TRUE(bench.answered(token));
    EXPECT_EQ(reason_of(bench.answers.at(token)), v1::REASON_WRONG_GENERATION);
  }
  EXPECT_TRUE(bench.shard.clocks().all().empty());
  EXPECT_TRUE(bench.shard.rank_batches().empty());
  bench.join(0, 0);
  EXPECT_EQ(bench.shard.clocks().clock(Rank{0}), 0u);
}

TEST(Shard, DenseVariablesStepAndTellTheirVersion) {
  ShardBench bench;
  v1::DenseOptions w;
  w.set_name("w");
  w.add_shape(3);
  v1::NamedValue* rate = w.mutable_optimizer()->add_values();
  rate->set_name("lr");
  rate->set_value(1);
  bench.create({}, {w});
  bench.freeze();
  Message push = bench.numbered(1);
  v1::DenseGradPart* part = push.meta.mutable_push_grad()->add_dense();
  part->set_variable("w");
  part->set_grads_tensor(ShardBench::add(push, ShardBench::list<float>({1, 2, 3})));
  ASSERT_TRUE(bench.status(Method::kPsPushGrad, push).ok());
  Message pull = bench.request();
  pull.meta.mutable_pull()->add_dense()->set_variable("w");
  const Message reply = bench.call(Method::kPsPull, pull);
  ASSERT_EQ(status_of(reply), absl::OkStatus());
  EXPECT_THAT(reply.tensors.at(0).values<float>(), ElementsAre(-1, -2, -3));
  const uint64_t version = reply.meta.pull_reply().dense(0).version();
  pull.meta.mutable_pull()->mutable_dense(0)->set_known_version(version);
  const Message same = bench.call(Method::kPsPull, pull);
  EXPECT_TRUE(same.meta.pull_reply().dense(0).unchanged());
  EXPECT_TRUE(same.tensors.empty());
}

TEST(Shard, MergedGradientsAreKnownByTheirGroupAndRowsByTheirBatch) {
  ShardBench bench;
  v1::DenseOptions w;
  w.set_name("w");
  w.add_shape(2);
  *w.mutable_optimizer() = ShardBench::plain_table("t", 1).optimizer();
  bench.create({ShardBench::plain_table("t", 1)}, {w});
  bench.freeze();
  const auto push = [&](const BatchId& id, float dense) {
    Message message = bench.push_rows(id, "t", 1, {1});
    *message.meta.mutable_header()->mutable_group() = bench.of_batch(kFirst).meta.header().batch();
    if (dense != 0) {
      v1::DenseGradPart* part = message.meta.mutable_push_grad()->add_dense();
      part->set_variable("w");
      part->set_grads_tensor(ShardBench::add(message, ShardBench::list<float>({dense, dense})));
    }
    return bench.status(Method::kPsPushGrad, std::move(message));
  };
  for (const BatchId& id : {kFirst, kSecond}) {
    ASSERT_TRUE(bench.status(Method::kPsFeedSample, bench.feed_rows(id, "t", {5})).ok());
  }
  ASSERT_EQ(push(kFirst, 0), absl::OkStatus());
  ASSERT_EQ(push(kSecond, 2), absl::OkStatus());
  // Dealt again: another trainer's sum is the same group's.
  ASSERT_EQ(push(kFirst, 0), absl::OkStatus());
  ASSERT_EQ(push(kSecond, 3), absl::OkStatus());
  EXPECT_THAT(bench.weights("t", {5}), ElementsAre(-2));
  EXPECT_THAT(bench.shard.variable("w")->parts().at(0)->weights(), ElementsAre(-2, -2));
}

TEST(Shard, MergedGradientsAreRefusedInStep) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze(0, 1);
  ASSERT_TRUE(bench.status(Method::kPsFeedSample, bench.feed_rows(kFirst, "t", {5})).ok());
  Message push = bench.push_rows(kFirst, "t", 1, {1}, 0, 0);
  *push.meta.mutable_header()->mutable_group() = push.meta.header().batch();
  EXPECT_EQ(bench.status(Method::kPsPushGrad, push).code(), StatusCode::kInvalidArgument);
}

TEST(Shard, LargeRepliesComeInRanges) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze();
  ASSERT_TRUE(
      bench.status(Method::kPsFeedSample, bench.feed_rows(kFirst, "t", {1, 2, 3, 4, 5})).ok());
  ASSERT_TRUE(
      bench.status(Method::kPsPushGrad, bench.push_rows(kFirst, "t", 5, {1, 2, 3, 4, 5})).ok());
  std::vector<float> all;
  for (uint64_t begin = 0; begin < 5; begin += 2) {
    Message pull = bench.request();
    v1::KeyPullPart* part = pull.meta.mutable_pull()->add_keys();
    part->set_table("t");
    part->set_keys_tensor(ShardBench::add(pull, ShardBench::list<uint64_t>({1, 2, 3, 4, 5})));
    pull.meta.mutable_pull()->mutable_range()->set_begin(begin);
    pull.meta.mutable_pull()->mutable_range()->set_rows_max(2);
    const Message reply = bench.call(Method::kPsPull, std::move(pull));
    EXPECT_EQ(reply.meta.pull_reply().rows_total(), 5u);
    const auto values = reply.tensors.at(0).values<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  EXPECT_THAT(all, ElementsAre(-1, -2, -3, -4, -5));
}

TEST(Shard, MemoryFullRefusesNewRowsOnly) {
  ShardBench bench({.memory_bytes_max = 1});
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze();
  ASSERT_TRUE(bench.status(Method::kPsFeedSample, bench.feed_rows(kFirst, "t", {5})).ok());
  const Message reply = bench.call(Method::kPsPushGrad, bench.push_rows(kFirst, "t", 1, {1}));
  EXPECT_EQ(reason_of(reply), v1::REASON_MEMORY_FULL);
  EXPECT_THAT(bench.weights("t", {5}), ElementsAre(0));
}

TEST(Shard, SeveralPartsOfOneVariableAreOneStep) {
  ShardBench bench;
  v1::DenseOptions w;
  w.set_name("w");
  w.add_shape(30);
  w.set_split_elements(10);
  bench.create({}, {w});
  bench.freeze();
  const auto push = [&](Message message) {
    for (const uint64_t begin : {0, 20}) {
      v1::DenseGradPart* part = message.meta.mutable_push_grad()->add_dense();
      part->set_variable("w");
      part->mutable_range()->set_begin(begin);
      part->mutable_range()->set_end(begin + 10);
      part->set_grads_tensor(
          ShardBench::add(message, ShardBench::list<float>(std::vector<float>(10, 1))));
    }
    return bench.status(Method::kPsPushGrad, std::move(message));
  };
  ASSERT_EQ(push(bench.of_batch(kFirst)), absl::OkStatus());
  ASSERT_EQ(push(bench.of_batch(kFirst)), absl::OkStatus());
  ASSERT_EQ(push(bench.numbered(1)), absl::OkStatus());
  EXPECT_EQ(bench.shard.variable("w")->version(), 3);
  const auto& parts = bench.shard.variable("w")->parts();
  const float rate = -parts.at(0)->weights()[0] / 2;
  EXPECT_GT(rate, 0);
  EXPECT_EQ(parts.at(2)->weights()[9], -2 * rate);
  EXPECT_EQ(parts.at(1)->weights()[0], 0);
}

TEST(Shard, SessionsEndWithTheProcessThatOpenedThem) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze();
  v1::Event event;
  event.mutable_node()->set_id(7);
  event.mutable_node()->set_incarnation(1);
  event.mutable_node()->set_state(v1::NODE_STATE_ALIVE);
  bench.shard.on_event(event);
  const auto push = [&](uint64_t incarnation) {
    Message message = bench.numbered(1);
    message.meta.mutable_header()->set_incarnation(incarnation);
    v1::KeyGradPart* part = message.meta.mutable_push_grad()->add_keys();
    part->set_table("t");
    part->set_keys_tensor(ShardBench::add(message, ShardBench::list<uint64_t>({1})));
    part->set_grads_tensor(ShardBench::add(message, ShardBench::matrix(1, 1, {1})));
    return bench.call(Method::kPsPushGrad, std::move(message));
  };
  EXPECT_EQ(status_of(push(1)), absl::OkStatus());
  event.mutable_node()->set_incarnation(2);
  bench.shard.on_event(event);
  EXPECT_EQ(reason_of(push(1)), v1::REASON_FENCED);
  EXPECT_EQ(reason_of(push(2)), v1::REASON_FENCED) << "a new process has a new session";
}

TEST(Shard, VariablesFollowTheMapUntilFreeze) {
  ShardBench bench;
  v1::DenseOptions w;
  w.set_name("w");
  w.add_shape(100);
  w.set_split_elements(10);
  bench.create({}, {w});
  EXPECT_EQ(bench.shard.variable("w")->parts().size(), 10);
  bench.set_owner([](uint32_t bucket) { return bucket < kBuckets / 2 ? 0U : 1U; }, 2);
  const size_t half = bench.shard.variable("w")->parts().size();
  EXPECT_GT(half, 0);
  EXPECT_LT(half, 10);
  // Whoever freezes by another map would mean other shards.
  Message early = bench.request();
  early.meta.mutable_freeze();
  early.meta.mutable_header()->set_map_version(bench.map_version + 1);
  EXPECT_EQ(bench.status(Method::kPsFreeze, early).code(), StatusCode::kUnavailable);
  early.meta.mutable_header()->set_map_version(bench.map_version - 1);
  EXPECT_EQ(reason_of(bench.call(Method::kPsFreeze, early)), v1::REASON_STALE_MAP);
  bench.freeze();
  bench.own_all();
  EXPECT_EQ(bench.shard.variable("w")->parts().size(), half);
}

TEST(Shard, TellsTheNewestBatchOfEachRank) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze();
  ASSERT_EQ(bench.status(Method::kPsFeedSample, bench.feed_rows(kSecond, "t", {1})),
            absl::OkStatus());
  ASSERT_EQ(bench.status(Method::kPsPushGrad, bench.push_rows(kSecond, "t", 1, {1}, 3, 8)),
            absl::OkStatus());
  const v1::RankBatch& newest = bench.shard.rank_batches().at(Rank{3});
  EXPECT_EQ(newest.clock(), 9);
  EXPECT_EQ(newest.batch().number(), kSecond.number);
}

v1::Event node_event(uint32_t id, uint64_t incarnation) {
  v1::Event event;
  event.mutable_node()->set_id(id);
  event.mutable_node()->set_incarnation(incarnation);
  event.mutable_node()->set_state(v1::NODE_STATE_ALIVE);
  return event;
}

// The step used to read the keys of a batch that had gone with its hub.
TEST(Shard, AStagedPushOutlivesTheHubThatFedIt) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze(0, 2);
  bench.shard.on_event(node_event(3, 1));
  Message feed = bench.feed_rows(kFirst, "t", {5});
  feed.meta.mutable_header()->set_incarnation(1);
  ASSERT_TRUE(bench.status(Method::kPsFeedSample, feed).ok());
  const Token staged = bench.send(Method::kPsPushGrad, bench.push_rows(kFirst, "t", 1, {2}, 0, 0));
  bench.shard.on_event(node_event(3, 2));
  Message tick = bench.of_batch(kSecond, 1, 0);
  tick.meta.mutable_push_grad();
  EXPECT_TRUE(bench.status(Method::kPsPushGrad, tick).ok());
  ASSERT_TRUE(bench.answered(staged));
  EXPECT_THAT(bench.weights("t", {5}), ElementsAre(-2));
}

TEST(Shard, WithoutLockStepNobodyWaitsForTheTickThatADeadRankLeftHalfDone) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze(1, 2);
  for (uint64_t clock = 0; clock < 3; ++clock) {
    Message tick = bench.of_batch({9, 1, clock}, 1, clock);
    tick.meta.mutable_push_grad();
    ASSERT_TRUE(bench.status(Method::kPsPushGrad, tick).ok());
  }
  ASSERT_TRUE(bench.status(Method::kPsFeedSample, bench.feed_rows(kFirst, "t", {5})).ok());
  Message lookup = bench.of_batch(kFirst, 1, 3);
  lookup.meta.mutable_embedding_lookup();
  const Token waiting = bench.send(Method::kPsEmbeddingLookup, lookup);
  EXPECT_FALSE(bench.answered(waiting));
  v1::Event event;
  event.mutable_rank()->set_rank(0);
  event.mutable_rank()->set_leaves(true);
  event.mutable_rank()->set_clock(1);  // another shard has its first step
  event.mutable_rank()->mutable_half_pushed()->set_number(7);
  bench.shard.on_event(event);
  bench.collect();
  EXPECT_TRUE(bench.answered(waiting));
  // A late tick of it brings nobody back.
  Message late = bench.of_batch({9, 0, 0}, 0, 0);
  late.meta.mutable_push_grad();
  ASSERT_TRUE(bench.status(Method::kPsPushGrad, late).ok());
  EXPECT_FALSE(bench.shard.clocks().active(Rank{0}));
}

// It used to be staged for a step that never comes.
TEST(Shard, APushOfARankThatHasLeftIsAnswered) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze(0, 2);
  ASSERT_TRUE(bench.status(Method::kPsFeedSample, bench.feed_rows(kFirst, "t", {5})).ok());
  const Token staged = bench.send(Method::kPsPushGrad, bench.push_rows(kFirst, "t", 1, {2}, 1, 0));
  v1::Event leave;
  leave.mutable_rank()->set_rank(1);
  leave.mutable_rank()->set_leaves(true);
  bench.shard.on_event(leave);
  bench.collect();
  ASSERT_TRUE(bench.answered(staged));
  EXPECT_EQ(status_of(bench.answers.at(staged)).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(bench.status(Method::kPsPushGrad, bench.push_rows(kFirst, "t", 1, {2}, 1, 0)).code(),
            StatusCode::kFailedPrecondition);
  Message tick = bench.of_batch(kSecond, 1, 0);
  tick.meta.mutable_push_grad();
  EXPECT_TRUE(bench.status(Method::kPsPushGrad, tick).ok());
}

// It used to be told that it is dead, when the scheduler's word of it had not come yet.
TEST(Shard, AProcessThatIsNotKnownYetMayTryAgain) {
  ShardBench bench;
  bench.create({ShardBench::plain_table("t", 1)});
  bench.freeze();
  bench.shard.on_event(node_event(7, 1));
  Message push = bench.numbered(1);
  push.meta.mutable_header()->set_incarnation(2);
  push.meta.mutable_push_grad();
  EXPECT_EQ(bench.status(Method::kPsPushGrad, push).code(), StatusCode::kUnavailable);
  bench.shard.on_event(node_event(7, 2));
  EXPECT_TRUE(bench.status(Method::kPsPushGrad, push).ok());
  push.meta.mutable_header()->set_incarnation(1);
  EXPECT_EQ(bench.call(Method::kPsPushGrad, push).meta.status().reason(), v1::REASON_FENCED);
}

}  // namespace
}  // namespace starling
