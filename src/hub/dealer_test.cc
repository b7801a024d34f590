#include "hub/dealer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/dealer_testing.h"

namespace starling {
namespace {

using hub_testing::add_whole_item;
using hub_testing::Asker;
using hub_testing::batch_of;
using hub_testing::ids_in;
using hub_testing::kSamples;
using hub_testing::report_done;
using hub_testing::settle;
using hub_testing::state_in;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const TimePoint kStart{seconds(100)};
using Ids = std::vector<BatchId>;

TEST(Dealer, LeasesABatchOnlyWhenItIsFedAndTheSchedulerKnowsThatItMayBegin) {
  Dealer dealer({});
  Asker asker;
  dealer.add_item({0, 0}, {});
  dealer.add(batch_of({0, 0, 0}));
  EXPECT_THAT(ids_in(dealer.read(asker.ask(1), kStart)), IsEmpty());
  EXPECT_THAT(dealer.take_feeds(), ElementsAre(BatchId{0, 0, 0}));
  dealer.fed({0, 0, 0});
  EXPECT_THAT(ids_in(dealer.read(asker.ask(1), kStart)), IsEmpty());
  EXPECT_TRUE(dealer.wants_renewal());
  for (const auto& [name, progress] : dealer.progress()) dealer.known(name, progress);
  EXPECT_FALSE(dealer.wants_renewal());
  const Message reply = dealer.read(asker.ask(1), kStart);
  EXPECT_THAT(ids_in(reply), ElementsAre(BatchId{0, 0, 0}));
  EXPECT_EQ(reply.tensors.size(), 1U);
}

TEST(Dealer, AnswersARepeatTheSameAgain) {
  Dealer dealer({});
  add_whole_item(dealer, {0, 0}, 3);
  Asker asker;
  const Message first = asker.ask(1);
  const Ids given = ids_in(dealer.read(first, kStart));
  EXPECT_THAT(given, ElementsAre(BatchId{0, 0, 0}));
  EXPECT_EQ(ids_in(dealer.read(asker.ask(1), kStart)), (Ids{{0, 0, 1}}));
  EXPECT_EQ(ids_in(dealer.read(first, kStart + seconds(1000))), given);
  Message late = first;
  late.meta.mutable_header()->set_acked_below(100);
  late.meta.mutable_header()->set_number(50);
  EXPECT_EQ(status_of(dealer.read(late, kStart)).code(), StatusCode::kAborted);
}

TEST(Dealer, DealsABatchAgainWhenItsLeaseEnds) {
  Dealer dealer({.lease = seconds(10)});
  add_whole_item(dealer, {0, 0}, 1);
  Asker one{.session = 1};
  Asker two{.session = 2};
  EXPECT_THAT(ids_in(dealer.read(one.ask(1), kStart)), ElementsAre(BatchId{0, 0, 0}));
  EXPECT_THAT(ids_in(dealer.read(two.ask(1), kStart + seconds(9))), IsEmpty());
  EXPECT_THAT(ids_in(dealer.read(two.ask(1), kStart + seconds(10))), ElementsAre(BatchId{0, 0, 0}));
  // The first one has lost it.
  Message renewal = one.ask(0);
  to_proto(BatchId{0, 0, 0}, renewal.meta.mutable_read_sample()->add_renewed());
  const Message told = dealer.read(renewal, kStart + seconds(10));
  ASSERT_EQ(told.meta.read_sample_reply().lost_size(), 1);
  EXPECT_EQ(dealer.counts().batches_again(), 1U);
  EXPECT_EQ(dealer.counts().batches_dealt(), 1U);
}

TEST(Dealer, KeepsARenewedLease) {
  Dealer dealer({.lease = seconds(10)});
  add_whole_item(dealer, {0, 0}, 1);
  Asker one{.session = 1};
  Asker two{.session = 2};
  (void)dealer.read(one.ask(1), kStart);
  Message renewal = one.ask(0);
  to_proto(BatchId{0, 0, 0}, renewal.meta.mutable_read_sample()->add_renewed());
  EXPECT_EQ(dealer.read(renewal, kStart + seconds(9)).meta.read_sample_reply().lost_size(), 0);
  EXPECT_THAT(ids_in(dealer.read(two.ask(1), kStart + seconds(15))), IsEmpty());
}

TEST(Dealer, DealsAtOnceWhatIsGivenBackOrWhoseTrainerDied) {
  Dealer dealer({});
  add_whole_item(dealer, {0, 0}, 2);
  Asker one{.session = 1, .node = 7};
  Asker two{.session = 2, .node = 8};
  EXPECT_EQ(ids_in(dealer.read(one.ask(2), kStart)).size(), 2U);
  Message back = one.ask(0);
  to_proto(BatchId{0, 0, 1}, back.meta.mutable_read_sample()->add_given_back());
  (void)dealer.read(back, kStart);
  EXPECT_THAT(ids_in(dealer.read(two.ask(2), kStart)), ElementsAre(BatchId{0, 0, 1}));
  dealer.on_node_gone(7);
  EXPECT_THAT(ids_in(dealer.read(two.ask(2), kStart)), ElementsAre(BatchId{0, 0, 0}));
}

TEST(Dealer, FeedsAgainWithoutTakingTheLease) {
  Dealer dealer({});
  add_whole_item(dealer, {0, 0}, 1);
  Asker asker;
  (void)dealer.read(asker.ask(1), kStart);
  Message again = asker.ask(0);
  to_proto(BatchId{0, 0, 0}, again.meta.mutable_read_sample()->add_feed_again());
  to_proto(BatchId{0, 0, 9}, again.meta.mutable_read_sample()->add_feed_again());
  const Message reply = dealer.read(again, kStart);
  EXPECT_THAT(dealer.take_feeds(), ElementsAre(BatchId{0, 0, 0}));
  ASSERT_EQ(reply.meta.read_sample_reply().lost_size(), 1);
  EXPECT_EQ(reply.meta.read_sample_reply().lost(0).number(), 9U);
}

TEST(Dealer, NeverDealsAFailedBatchAgainAndCountsItsSamplesAsSkipped) {
  Dealer dealer({.lease = seconds(1)});
  add_whole_item(dealer, {0, 0}, 1);
  Asker asker;
  (void)dealer.read(asker.ask(1), kStart);
  Message failed = asker.ask(1);
  to_proto(BatchId{0, 0, 0}, failed.meta.mutable_read_sample()->add_failed());
  EXPECT_THAT(ids_in(dealer.read(failed, kStart + seconds(5))), IsEmpty());
  EXPECT_EQ(dealer.counts().samples_skipped(), kSamples);
  EXPECT_EQ(dealer.counts().samples_done(), 0U);
  EXPECT_EQ(dealer.finished().size(), 1U);
  EXPECT_TRUE(dealer.failure().ok()) << dealer.failure();
}

TEST(Dealer, MovesTheWatermarkOverWhatIsDoneInOrder) {
  Dealer dealer({});
  add_whole_item(dealer, {0, 3}, 3);
  Asker asker;
  (void)dealer.read(asker.ask(3), kStart);
  Message done = asker.ask(0);
  report_done(done, {{0, 3, 1}, {0, 3, 2}});
  (void)dealer.read(done, kStart);
  EXPECT_THAT(dealer.marks(), IsEmpty());
  Message rest = asker.ask(0);
  report_done(rest, {{0, 3, 0}, {0, 3, 0}});
  (void)dealer.read(rest, kStart);
  const auto marks = dealer.marks();
  ASSERT_EQ(marks.size(), 1U);
  EXPECT_EQ(marks[0].done_below(), 3U);
  EXPECT_TRUE(marks[0].finished());
  EXPECT_EQ(dealer.counts().samples_done(), 3 * kSamples);
  settle(dealer);
  EXPECT_THAT(dealer.marks(), IsEmpty());
  EXPECT_THAT(dealer.progress(), IsEmpty());
}

TEST(Dealer, HoldsNoMoreThanItsWindow) {
  Dealer dealer({.window = 3});
  dealer.add_item({0, 0}, {});
  for (uint64_t i = 0; i < 3; ++i) dealer.add(batch_of({0, 0, i}));
  EXPECT_EQ(dealer.room(), 0U);
  settle(dealer);
  Asker asker;
  EXPECT_EQ(ids_in(dealer.read(asker.ask(8), kStart)).size(), 3U);
  // What is done above the watermark still lies on the shards.
  Message done = asker.ask(0);
  report_done(done, {{0, 0, 1}});
  (void)dealer.read(done, kStart);
  EXPECT_EQ(dealer.room(), 0U);
  Message rest = asker.ask(0);
  report_done(rest, {{0, 0, 0}});
  (void)dealer.read(rest, kStart);
  EXPECT_EQ(dealer.room(), 2U);
}

TEST(Dealer, TellsTheEndOfAnEpochAndTheEndOfTheData) {
  Dealer dealer({});
  add_whole_item(dealer, {0, 0}, 1);
  dealer.set_idle(true);
  Asker one{.session = 1};
  Asker two{.session = 2};
  (void)dealer.read(one.ask(1), kStart);
  const Message waits = dealer.read(two.ask(1), kStart);
  EXPECT_EQ(state_in(waits), v1::DATASET_STATE_END_OF_EPOCH);
  EXPECT_GT(waits.meta.read_sample_reply().retry_after_ms(), 0U);
  dealer.set_idle(false);
  add_whole_item(dealer, {1, 0}, 1);
  EXPECT_THAT(ids_in(dealer.read(two.ask(1), kStart)), ElementsAre(BatchId{1, 0, 0}));
  dealer.end_data();
  EXPECT_EQ(state_in(dealer.read(two.ask(1), kStart)), v1::DATASET_STATE_END);
}

TEST(Dealer, LeasesAGroupAsOneAndCountsItWhenAllOfItIsReported) {
  Dealer dealer({.lease = seconds(1), .group_batches = 2});
  add_whole_item(dealer, {0, 0}, 3);
  Asker asker;
  EXPECT_EQ(status_of(dealer.read(asker.ask(1), kStart)).code(), StatusCode::kInvalidArgument);
  const Message reply = dealer.read(asker.ask(3), kStart);
  EXPECT_THAT(ids_in(reply), ElementsAre(BatchId{0, 0, 0}, BatchId{0, 0, 1}));
  EXPECT_EQ(batch_id_of(reply.meta.read_sample_reply().batches(1).group()), (BatchId{0, 0, 0}));
  // The second batch's tensors stand behind the first's.
  EXPECT_EQ(reply.meta.read_sample_reply().batches(1).labels_tensor(), 1U);
  Message half = asker.ask(0);
  report_done(half, {{0, 0, 0}});
  (void)dealer.read(half, kStart);
  EXPECT_EQ(dealer.counts().batches_done(), 0U);
  EXPECT_THAT(ids_in(dealer.read(asker.ask(2), kStart + seconds(2))),
              ElementsAre(BatchId{0, 0, 0}, BatchId{0, 0, 1}));
  Message all = asker.ask(2);
  report_done(all, {{0, 0, 0}, {0, 0, 1}});
  EXPECT_THAT(ids_in(dealer.read(all, kStart + seconds(2))), ElementsAre(BatchId{0, 0, 2}));
  EXPECT_EQ(dealer.counts().batches_done(), 2U);
}

TEST(Dealer, DealsAWholeGroupAgainAndAShorterOneAtTheEndOfAnItem) {
  Dealer dealer({.lease = seconds(1), .group_batches = 4});
  add_whole_item(dealer, {0, 0}, 6);
  Asker one{.session = 1};
  Asker two{.session = 2};
  const Ids first{{0, 0, 0}, {0, 0, 1}, {0, 0, 2}, {0, 0, 3}};
  EXPECT_EQ(ids_in(dealer.read(one.ask(5), kStart)), first);
  // One given back is not dealt while the others are held.
  Message back = one.ask(0);
  to_proto({0, 0, 1}, back.meta.mutable_read_sample()->add_given_back());
  (void)dealer.read(back, kStart);
  const Message rest = dealer.read(two.ask(8), kStart);
  EXPECT_EQ(ids_in(rest), (Ids{{0, 0, 4}, {0, 0, 5}}));
  EXPECT_EQ(batch_id_of(rest.meta.read_sample_reply().batches(1).group()), (BatchId{0, 0, 4}));
  EXPECT_EQ(ids_in(dealer.read(two.ask(4), kStart + seconds(2))), first);
}

TEST(Dealer, WhoTakesAnItemOverDealsTheSameIdsFromTheWatermarkOn) {
  Dealer dealer({});
  add_whole_item(dealer, {2, 5}, 4,
                 {.done_below = 1, .begun_below = 3, .samples_trained = kSamples});
  Asker asker;
  EXPECT_THAT(ids_in(dealer.read(asker.ask(8), kStart)),
              ElementsAre(BatchId{2, 5, 1}, BatchId{2, 5, 2}, BatchId{2, 5, 3}));
  Message done = asker.ask(0);
  report_done(done, {{2, 5, 1}, {2, 5, 2}, {2, 5, 3}});
  (void)dealer.read(done, kStart);
  EXPECT_TRUE(dealer.failure().ok()) << dealer.failure();
  // The first batch was counted by whoever had the item before.
  EXPECT_EQ(dealer.counts().samples_read(), 3 * kSamples);
  EXPECT_EQ(dealer.counts().samples_done(), 3 * kSamples);
}

TEST(Dealer, WhoTakesAnItemOverEndsWithTheSamplesOfAllOfIt) {
  const auto train = [](Dealer& dealer, const Ids& done, const Ids& failed) {
    Asker asker;
    (void)dealer.read(asker.ask(8), kStart);
    Message told = asker.ask(0);
    report_done(told, done);
    for (const BatchId& id : failed) to_proto(id, told.meta.mutable_read_sample()->add_failed());
    (void)dealer.read(told, kStart);
  };
  Dealer first({});
  add_whole_item(first, {0, 0}, 6);
  // The last one of these is above the watermark: it is told by whoever comes.
  train(first, {{0, 0, 1}, {0, 0, 3}}, {{0, 0, 0}});
  const v1::WorkProgress told = first.progress().at(0).second;
  EXPECT_EQ(told.done_below(), 2U);
  EXPECT_EQ(told.samples_trained(), kSamples);
  EXPECT_EQ(told.samples_skipped(), kSamples);
  Dealer second({});
  second.add_item({0, 0}, {.done_below = told.done_below(),
                           .samples_trained = told.samples_trained(),
                           .samples_failed = told.samples_skipped()});
  for (uint64_t i = 2; i < 6; ++i) second.add(batch_of({0, 0, i}));
  second.end_item(
      {0, 0}, 6,
      {.samples_read = 6 * kSamples + 2, .samples_skipped = 2, .samples_before = 2 * kSamples});
  settle(second);
  train(second, {{0, 0, 3}, {0, 0, 4}}, {{0, 0, 2}, {0, 0, 5}});
  EXPECT_TRUE(second.failure().ok()) << second.failure();
  ASSERT_EQ(second.finished().size(), 1U);
  const v1::WorkProgress whole = second.finished().at(0).second;
  EXPECT_EQ(whole.samples_trained(), 3 * kSamples);
  EXPECT_EQ(whole.samples_skipped(), 3 * kSamples + 2);
}

TEST(Dealer, AFormerTakerThatToldOtherSamplesThanAreReadIsAnError) {
  Dealer dealer({});
  dealer.add_item({0, 0}, {.done_below = 1, .samples_trained = kSamples - 1});
  dealer.end_item({0, 0}, 1, {.samples_read = kSamples - 1, .samples_before = kSamples});
  EXPECT_THAT(std::string(message_of(dealer.failure())),
              HasSubstr("4 samples are in the batches below 1, but 3"));
}

TEST(Dealer, AnItemThatIsLostCountsUpToItsWatermark) {
  Dealer dealer({});
  add_whole_item(dealer, {0, 0}, 4);
  Asker asker;
  (void)dealer.read(asker.ask(8), kStart);
  Message done = asker.ask(0);
  report_done(done, {{0, 0, 0}, {0, 0, 2}});
  (void)dealer.read(done, kStart);
  dealer.lose_item({0, 0});
  EXPECT_EQ(dealer.counts().samples_read(), kSamples);
  EXPECT_EQ(dealer.counts().samples_done(), kSamples);
}

TEST(Dealer, ASampleThatIsNeitherDoneNorSkippedIsAnError) {
  Dealer dealer({});
  dealer.add_item({0, 0}, {});
  dealer.add(batch_of({0, 0, 0}));
  dealer.end_item({0, 0}, 1, {.samples_read = kSamples + 1});
  settle(dealer);
  Asker asker;
  (void)dealer.read(asker.ask(1), kStart);
  Message done = asker.ask(1);
  report_done(done, {{0, 0, 0}});
  const Message reply = dealer.read(done, kStart);
  EXPECT_EQ(state_in(reply), v1::DATASET_STATE_FAILED);
  EXPECT_THAT(std::string(message_of(status_of(reply))), HasSubstr("5 samples were read, but 4"));
}

TEST(Dealer, PausesAtACutUntilAllThatIsBegunIsDone) {
  Dealer dealer({});
  add_whole_item(dealer, {0, 0}, 3);
  Asker asker;
  (void)dealer.read(asker.ask(1), kStart);
  dealer.drain(std::nullopt);
  EXPECT_FALSE(dealer.is_drained());
  EXPECT_EQ(state_in(dealer.read(asker.ask(1), kStart)), v1::DATASET_STATE_PAUSED);
  Message done = asker.ask(0);
  report_done(done, {{0, 0, 0}});
  (void)dealer.read(done, kStart);
  EXPECT_FALSE(dealer.is_drained());  // the scheduler does not know it yet
  EXPECT_TRUE(dealer.wants_renewal());
  settle(dealer);
  EXPECT_TRUE(dealer.is_drained());
  dealer.resume();
  EXPECT_THAT(ids_in(dealer.read(asker.ask(1), kStart)), ElementsAre(BatchId{0, 0, 1}));
}

TEST(Dealer, DealsExpiredLeasesAgainWhileACutDrains) {
  Dealer dealer({.lease = seconds(1)});
  add_whole_item(dealer, {0, 0}, 2);
  Asker one{.session = 1};
  Asker two{.session = 2};
  (void)dealer.read(one.ask(1), kStart);
  dealer.drain(std::nullopt);
  EXPECT_THAT(ids_in(dealer.read(two.ask(2), kStart + seconds(2))), ElementsAre(BatchId{0, 0, 0}));
}

TEST(BoundedDealer, DealsNoFurtherThanTheClockOfACut) {
  Dealer dealer({.has_clocks = true});
  add_whole_item(dealer, {0, 0}, 9);
  Asker one{.session = 1, .rank = 0, .clock = 3};
  dealer.drain(5);
  EXPECT_EQ(ids_in(dealer.read(one.ask(4), kStart)), (Ids{{0, 0, 0}, {0, 0, 1}}));
  one.clock = 5;
  Message done = one.ask(4);
  report_done(done, {{0, 0, 0}, {0, 0, 1}});
  EXPECT_EQ(state_in(dealer.read(done, kStart)), v1::DATASET_STATE_PAUSED);
  settle(dealer);
  EXPECT_TRUE(dealer.is_drained());
  EXPECT_EQ(dealer.drained_at(), 5U);
}

TEST(BoundedDealer, ARankTicksToTheClockOfACutWhereAGroupDoesNotFit) {
  Dealer dealer({.lease = seconds(1), .group_batches = 4, .has_clocks = true});
  add_whole_item(dealer, {0, 0}, 8);
  Asker one{.session = 1, .rank = 0, .clock = 0};
  Asker two{.session = 2, .rank = 1, .clock = 0};
  const Ids first{{0, 0, 0}, {0, 0, 1}, {0, 0, 2}, {0, 0, 3}};
  EXPECT_EQ(ids_in(dealer.read(one.ask(4), kStart)), first);
  dealer.drain(4);
  two.clock = 2;
  const Message reply = dealer.read(two.ask(4), kStart);
  EXPECT_TRUE(ids_in(reply).empty());
  EXPECT_TRUE(reply.meta.read_sample_reply().tick());
  // What is begun has to be done before the cut, which then lies later.
  EXPECT_EQ(ids_in(dealer.read(two.ask(4), kStart + seconds(2))), first);
  EXPECT_EQ(dealer.drained_at(), 6U);
}

TEST(BoundedDealer, ARankWithoutDataTicksWhileOthersOrACutWaitForIt) {
  Dealer dealer({.has_clocks = true});
  add_whole_item(dealer, {0, 0}, 1);
  Asker one{.session = 1, .rank = 0, .clock = 3};
  Asker two{.session = 2, .rank = 1, .clock = 2};
  const auto ticks = [&](Asker& asker) {
    return dealer.read(asker.ask(1), kStart).meta.read_sample_reply().tick();
  };
  EXPECT_FALSE(ticks(one));  // it has a batch
  EXPECT_TRUE(ticks(two));
  two.clock = 3;
  EXPECT_FALSE(ticks(two));  // nobody waits for it
  dealer.drain(4);
  EXPECT_TRUE(ticks(two));
  two.clock = 4;
  EXPECT_FALSE(ticks(two));
  EXPECT_EQ(dealer.drained_at(), 4U);
}

class SynchronousDealer : public testing::Test {
 protected:
  // 5 batches in two items, dealt to two ranks: rows (0, 1), (2, 3), (4, none).
  SynchronousDealer()
      : dealer_({.lease = seconds(10), .has_clocks = true, .is_synchronous = true, .ranks = 2}) {
    dealer_.begin_epoch({});
    add_whole_item(dealer_, {0, 0}, 3);
    add_whole_item(dealer_, {0, 1}, 2);
    dealer_.set_base({0, 0}, 0);
    dealer_.set_base({0, 1}, 3);
    dealer_.set_epoch_end(5);
  }
  Message ask(Asker& asker, const Ids& done = {}) {
    Message request = asker.ask(1);
    report_done(request, done);
    return dealer_.read(request, kStart);
  }

  Dealer dealer_;
  Asker one_{.session = 1, .rank = 0};
  Asker two_{.session = 2, .rank = 1};
};

TEST_F(SynchronousDealer, GivesBatchKToRankKModRanks) {
  EXPECT_THAT(ids_in(ask(two_)), ElementsAre(BatchId{0, 0, 1}));
  EXPECT_THAT(ids_in(ask(one_)), ElementsAre(BatchId{0, 0, 0}));
  one_.clock = two_.clock = 1;
  EXPECT_THAT(ids_in(ask(two_, {{0, 0, 1}})), ElementsAre(BatchId{0, 1, 0}));
  EXPECT_THAT(ids_in(ask(one_, {{0, 0, 0}})), ElementsAre(BatchId{0, 0, 2}));
  one_.clock = two_.clock = 2;
  EXPECT_THAT(ids_in(ask(one_, {{0, 0, 2}})), ElementsAre(BatchId{0, 1, 1}));
  const Message none = ask(two_, {{0, 1, 0}});
  EXPECT_THAT(ids_in(none), IsEmpty());
  EXPECT_EQ(state_in(none), v1::DATASET_STATE_END_OF_EPOCH);
  two_.clock = 3;
  EXPECT_EQ(state_in(ask(two_)), v1::DATASET_STATE_READY);  // waits for what comes next
}

TEST_F(SynchronousDealer, TheNextEpochStartsAtAFullRow) {
  dealer_.begin_epoch({.epoch = 1, .clock = 3});
  add_whole_item(dealer_, {1, 0}, 2);
  dealer_.set_base({1, 0}, 0);
  one_.clock = two_.clock = 3;
  EXPECT_THAT(ids_in(ask(two_)), ElementsAre(BatchId{1, 0, 1}));
  EXPECT_THAT(ids_in(ask(one_)), ElementsAre(BatchId{1, 0, 0}));
}

TEST_F(SynchronousDealer, AReturningRankGetsWhatItHasMissedWithItsClock) {
  (void)ask(one_);
  Asker back{.session = 3, .rank = 0, .clock = 1};
  const Message missed = ask(back);
  ASSERT_THAT(ids_in(missed), ElementsAre(BatchId{0, 0, 0}));
  EXPECT_EQ(missed.meta.read_sample_reply().batches(0).clock(), 0U);
  EXPECT_EQ(missed.meta.read_sample_reply().batches(0).rank(), 0U);
  EXPECT_THAT(ids_in(ask(back, {{0, 0, 0}})), ElementsAre(BatchId{0, 0, 2}));
}

// Its hub had died with it, and the cut waited for ever.
TEST_F(SynchronousDealer, ACutWaitsForWhatARankHasMissedAndDealsNothingBehindIt) {
  (void)ask(two_);
  dealer_.drain(1);
  Asker back{.session = 3, .rank = 0, .clock = 2};  // it had read on
  const Message missed = ask(back);
  ASSERT_THAT(ids_in(missed), ElementsAre(BatchId{0, 0, 0}));
  EXPECT_EQ(missed.meta.read_sample_reply().batches(0).clock(), 0U);
  const Message none = ask(back, {{0, 0, 0}});
  EXPECT_THAT(ids_in(none), IsEmpty());
  EXPECT_EQ(state_in(none), v1::DATASET_STATE_PAUSED);
}

TEST_F(SynchronousDealer, DealsNothingLaterBeforeWhatARankHasMissed) {
  // The first batch is being fed again, and the second of the rank is ready.
  Dealer dealer({.has_clocks = true, .is_synchronous = true, .ranks = 1});
  dealer.begin_epoch({});
  dealer.add_item({0, 0}, {.begun_below = 1});
  dealer.set_base({0, 0}, 0);
  dealer.add(batch_of({0, 0, 0}));
  dealer.add(batch_of({0, 0, 1}));
  dealer.end_item({0, 0}, 2, {.samples_read = 2 * kSamples});
  for (const auto& [name, progress] : dealer.progress()) dealer.known(name, progress);
  dealer.fed({0, 0, 1});
  Asker back{.session = 3, .rank = 0, .clock = 1};
  EXPECT_THAT(ids_in(dealer.read(back.ask(1), kStart)), IsEmpty());
  dealer.fed({0, 0, 0});
  EXPECT_THAT(ids_in(dealer.read(back.ask(1), kStart)), ElementsAre(BatchId{0, 0, 0}));
}

// Ranks 0 and 2 wait at the shards for rank 1 and ask nobody: whatever the scheduler has not heard
// of, a hub that comes anew has to make the batch of rank 1.
TEST_F(SynchronousDealer, AHubThatComesAnewDealsTheRowThatRanksWaitIn) {
  constexpr uint64_t kBatches = 300;
  const auto make = [](uint64_t begun_below) {
    auto dealer = std::make_unique<Dealer>(
        DealerOptions{.window = 12, .has_clocks = true, .is_synchronous = true, .ranks = 3});
    dealer->begin_epoch({});
    dealer->add_item({0, 0}, {.begun_below = begun_below});
    dealer->set_base({0, 0}, 0);
    return dealer;
  };
  const auto fill = [](Dealer& dealer, uint64_t& next) {
    while (next < kBatches && dealer.room() > 0) dealer.add(batch_of({0, 0, next++}));
    for (const BatchId& id : dealer.take_feeds()) dealer.fed(id);
  };
  const auto first = make(0);
  uint64_t next = 0, begun = 0;
  std::vector<Asker> ranks{
      {.session = 1, .rank = 0}, {.session = 2, .rank = 1}, {.session = 3, .rank = 2}};
  for (const auto& [name, progress] : first->progress()) {
    begun = Dealer::begun_below(progress.position());
    first->known(name, progress);
  }
  // The scheduler hears nothing more; steps go on as long as ranks 0 and 2 get batches.
  uint64_t clock = 0;
  for (bool is_dealt = true; is_dealt; ++clock) {
    for (Asker& rank : ranks) {
      fill(*first, next);
      rank.clock = clock;
      Message request = rank.ask(1);
      if (clock > 0) report_done(request, {{0, 0, (clock - 1) * 3 + rank.rank}});
      is_dealt = is_dealt && !ids_in(first->read(request, kStart)).empty();
    }
    ASSERT_LT(clock, kBatches);
  }
  EXPECT_TRUE(first->wants_renewal());
  const auto second = make(begun);
  next = 0;
  fill(*second, next);
  for (uint64_t at = 0; at + 1 < clock; ++at) {
    Asker rank{.session = 9, .number = at, .rank = 1, .clock = clock - 2};
    Message request = rank.ask(1);
    if (at > 0) report_done(request, {{0, 0, (at - 1) * 3 + 1}});
    EXPECT_THAT(ids_in(second->read(request, kStart)), ElementsAre(BatchId{0, 0, at * 3 + 1}));
    fill(*second, next);
  }
}

TEST_F(SynchronousDealer, DealsUpToTheClockOfACut) {
  (void)ask(one_);
  (void)ask(two_);
  dealer_.drain(1);
  one_.clock = two_.clock = 1;
  EXPECT_EQ(state_in(ask(one_, {{0, 0, 0}})), v1::DATASET_STATE_PAUSED);
  EXPECT_FALSE(dealer_.is_drained());
  EXPECT_EQ(state_in(ask(two_, {{0, 0, 1}})), v1::DATASET_STATE_PAUSED);
  settle(dealer_);
  EXPECT_TRUE(dealer_.is_drained());
  EXPECT_EQ(dealer_.drained_at(), 1U);
  dealer_.drain(0);
  EXPECT_EQ(dealer_.drained_at(), 1U);  // passed already
}

TEST_F(SynchronousDealer, TicksBehindTheEndOfAnEpochOnlyToWhereTheNextOneBegins) {
  (void)ask(one_);
  (void)ask(two_);
  one_.clock = two_.clock = 1;
  (void)ask(one_, {{0, 0, 0}});
  (void)ask(two_, {{0, 0, 1}});
  one_.clock = 2;
  (void)ask(one_, {{0, 0, 2}});
  (void)ask(two_, {{0, 1, 0}});
  one_.clock = 4;
  (void)ask(one_, {{0, 1, 1}});
  dealer_.drain(6);
  // The hubs have not agreed yet.
  EXPECT_EQ(state_in(ask(one_)), v1::DATASET_STATE_READY);
  dealer_.set_next_clock(6);
  one_.clock = 5;
  EXPECT_EQ(state_in(ask(one_)), v1::DATASET_STATE_END_OF_EPOCH);
  one_.clock = 6;
  EXPECT_EQ(state_in(ask(one_)), v1::DATASET_STATE_PAUSED);
}

TEST_F(SynchronousDealer, ACutDoesNotWaitForRanksThatHaveHeardOfTheEnd) {
  Dealer dealer({.has_clocks = true, .is_synchronous = true, .ranks = 2});
  dealer.end_data();
  EXPECT_EQ(state_in(dealer.read(one_.ask(1), kStart)), v1::DATASET_STATE_END);
  dealer.drain(9);
  EXPECT_TRUE(dealer.is_drained());
}

TEST_F(SynchronousDealer, SomebodyFinishesWhatADeadRankLeftHalfPushed) {
  (void)ask(one_);
  (void)ask(two_);
  v1::RankEvent left;
  left.set_rank(1);
  left.set_leaves(true);
  left.set_clock(1);
  left.mutable_half_pushed()->set_number(1);
  dealer_.on_rank(left);
  one_.clock = 1;
  const Message taken = ask(one_, {{0, 0, 0}});
  ASSERT_THAT(ids_in(taken), ElementsAre(BatchId{0, 0, 1}));
  EXPECT_EQ(taken.meta.read_sample_reply().batches(0).rank(), 1U);
  EXPECT_EQ(taken.meta.read_sample_reply().batches(0).clock(), 0U);
  EXPECT_THAT(ids_in(ask(one_, {{0, 0, 1}})), ElementsAre(BatchId{0, 0, 2}));
}

TEST_F(SynchronousDealer, NeedsTheRankOfTheAsker) {
  Message request = one_.ask(1);
  request.meta.mutable_header()->clear_rank();
  EXPECT_EQ(status_of(dealer_.read(request, kStart)).code(), StatusCode::kInvalidArgument);
  Asker stranger{.session = 9, .rank = 1 << 20};
  EXPECT_EQ(status_of(ask(stranger)).code(), StatusCode::kInvalidArgument);
}

TEST_F(SynchronousDealer, WhoeverHasJoinedTicksWithTheOthersUntilACutGivesItASeat) {
  Asker late{.session = 3, .rank = 2};
  const auto ticks = [](const Message& reply) { return reply.meta.read_sample_reply().tick(); };
  EXPECT_FALSE(ticks(ask(late)));  // nobody is there yet
  (void)ask(one_);
  EXPECT_TRUE(ticks(ask(late)));
  late.clock = 1;
  EXPECT_FALSE(ticks(ask(late)));
  (void)ask(two_);
  dealer_.drain(1);
  one_.clock = two_.clock = 1;
  (void)ask(one_, {{0, 0, 0}});
  (void)ask(two_, {{0, 0, 1}});
  EXPECT_EQ(state_in(ask(late)), v1::DATASET_STATE_PAUSED);
  settle(dealer_);
  EXPECT_TRUE(dealer_.is_drained());
  v1::RankSeats seats;
  seats.set_clock(1);
  seats.set_ranks(3);
  dealer_.seat(seats);
  dealer_.resume();
  EXPECT_THAT(ids_in(ask(late)), ElementsAre(BatchId{0, 1, 1}));
  EXPECT_THAT(ids_in(ask(two_)), ElementsAre(BatchId{0, 1, 0}));
  EXPECT_THAT(ids_in(ask(one_)), ElementsAre(BatchId{0, 0, 2}));
  EXPECT_EQ(dealer_.clock_behind(0, 5), 2U);
}

TEST_F(SynchronousDealer, AHubThatComesAnewKnowsTheSeatsOfThoseWhoHaveJoined) {
  v1::RankSeats seats;
  seats.set_clock(1);
  seats.set_ranks(3);
  dealer_.seat(seats);
  Asker back{.session = 4, .rank = 2, .clock = 2};
  const Message missed = ask(back);
  ASSERT_THAT(ids_in(missed), ElementsAre(BatchId{0, 1, 1}));
  EXPECT_EQ(missed.meta.read_sample_reply().batches(0).clock(), 1U);
}

}  // namespace
}  // namespace starling
