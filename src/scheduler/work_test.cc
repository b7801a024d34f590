#include "scheduler/work.h"

#include <optional>

#include "base/rng.h"
#include "scheduler/scheduler_testing.h"

namespace starling {
namespace {

using scheduler_testing::Bench;
using scheduler_testing::code_of;
using scheduler_testing::entries_of;

v1::AddWorkOption adding(uint32_t items, bool complete) {
  v1::AddWorkOption option;
  option.set_queue("train");
  option.set_complete(complete);
  for (uint32_t i = 0; i < items; ++i) {
    option.add_items()->set_item(i);
    option.mutable_items()->rbegin()->set_path(fmt::format("part-{}", i));
  }
  return option;
}

v1::TakeWorkOption taking(uint32_t count = 1) {
  v1::TakeWorkOption option;
  option.set_queue("train");
  option.set_items_max(count);
  return option;
}

// Of an item or of a queue.
struct Samples {
  uint64_t trained = 0;
  uint64_t skipped = 0;
  bool operator==(const Samples&) const = default;
};

template <typename Told>
Samples samples_in(const Told& told) {
  return {told.samples_trained(), told.samples_skipped()};
}

Samples sums_of(const WorkQueues& work, TimePoint now) {
  v1::GetJobReply reply;
  work.show(false, now, &reply);
  return samples_in(reply.queues(0));
}

template <typename Option>
Option about(uint32_t item, uint64_t done_below = 0, const Samples& samples = {}) {
  Option option;
  option.set_queue("train");
  v1::WorkProgress* progress = option.add_items();
  progress->set_item(item);
  progress->set_done_below(done_below);
  progress->set_samples_trained(samples.trained);
  progress->set_samples_skipped(samples.skipped);
  return option;
}

class WorkTest : public testing::Test {
 protected:
  Bench bench_;
  WorkQueues work_{bench_.options};
  Turn turn_ = bench_.turn();

  std::vector<uint32_t> take(uint32_t node, uint32_t count = 1) {
    std::vector<uint32_t> items;
    const Message reply = work_.take(turn_, taking(count), node);
    for (const v1::WorkLease& lease : reply.meta.take_work_reply().leases()) {
      items.push_back(lease.work().item());
    }
    return items;
  }
  Samples sums() const { return sums_of(work_, bench_.now); }
};

TEST_F(WorkTest, ItemsAreTakenInOrderAndByOneOnly) {
  work_.add(turn_, adding(3, true));
  EXPECT_EQ(take(1, 2), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(take(2, 2), (std::vector<uint32_t>{2}));
  const Message empty = work_.take(turn_, taking(), 2);
  EXPECT_FALSE(empty.meta.take_work_reply().finished());
  EXPECT_GT(empty.meta.take_work_reply().retry_after_ms(), 0);
}

TEST_F(WorkTest, TheQueueIsFinishedWhenAllIsAcknowledged) {
  work_.add(turn_, adding(1, true));
  ASSERT_EQ(take(1).size(), 1);
  EXPECT_EQ(code_of(work_.ack(turn_, about<v1::AckWorkOption>(0), 1)), StatusCode::kOk);
  EXPECT_EQ(code_of(work_.ack(turn_, about<v1::AckWorkOption>(0), 1)), StatusCode::kOk);
  EXPECT_TRUE(work_.take(turn_, taking(), 1).meta.take_work_reply().finished());
}

TEST_F(WorkTest, AnIncompleteQueueIsNeverFinished) {
  work_.add(turn_, adding(0, false));
  EXPECT_FALSE(work_.take(turn_, taking(), 1).meta.take_work_reply().finished());
}

TEST_F(WorkTest, WhatADeadTakerHeldComesBackWithItsProgress) {
  work_.add(turn_, adding(1, true));
  ASSERT_EQ(take(1).size(), 1);
  v1::RenewWorkOption renew = about<v1::RenewWorkOption>(0, 7);
  renew.mutable_items(0)->set_position("here");
  work_.renew(turn_, renew, 1);
  work_.drop_node(turn_, 1);
  const Message reply = work_.take(turn_, taking(), 2);
  ASSERT_EQ(reply.meta.take_work_reply().leases_size(), 1);
  EXPECT_EQ(reply.meta.take_work_reply().leases(0).done_below(), 7);
  EXPECT_EQ(reply.meta.take_work_reply().leases(0).position(), "here");
  EXPECT_EQ(work_.renew(turn_, renew, 1).meta.renew_work_reply().lost(0), 0);
  const Message late = work_.ack(turn_, about<v1::AckWorkOption>(0), 1);
  EXPECT_EQ(code_of(late), StatusCode::kAborted);
  EXPECT_EQ(late.meta.status().reason(), v1::REASON_LEASE_LOST);
}

TEST_F(WorkTest, ALeaseThatIsNotRenewedEnds) {
  work_.add(turn_, adding(1, true));
  ASSERT_EQ(take(1).size(), 1);
  EXPECT_EQ(work_.next(), bench_.now + bench_.options.work_lease);
  bench_.now += bench_.options.work_lease - milliseconds(1);
  Turn early = bench_.turn();
  work_.expire(early);
  EXPECT_TRUE(take(2).empty());
  bench_.now += milliseconds(1);
  Turn late = bench_.turn();
  work_.expire(late);
  EXPECT_EQ(take(2).size(), 1);
}

TEST_F(WorkTest, WhatIsGivenBackIsFreeAtOnce) {
  work_.add(turn_, adding(2, true));
  ASSERT_EQ(take(1, 2).size(), 2);
  work_.give_back(turn_, about<v1::GiveBackWorkOption>(0, 3), 1);
  work_.give_back(turn_, about<v1::GiveBackWorkOption>(1, 3), 9);
  EXPECT_EQ(take(2, 2), (std::vector<uint32_t>{0}));
}

TEST_F(WorkTest, HubsOfASynchronousJobTakeTheirOwnItems) {
  work_.add(turn_, adding(6, true));
  v1::TakeWorkOption option = taking(10);
  option.set_hub(1);
  option.set_hubs(3);
  const Message reply = work_.take(turn_, option, 1);
  ASSERT_EQ(reply.meta.take_work_reply().leases_size(), 2);
  EXPECT_EQ(reply.meta.take_work_reply().leases(0).work().item(), 1);
  EXPECT_EQ(reply.meta.take_work_reply().leases(1).work().item(), 4);
  option.set_hub(3);
  EXPECT_EQ(code_of(work_.take(turn_, option, 1)), StatusCode::kInvalidArgument);
}

TEST_F(WorkTest, TheSameItemAgainIsFineAndOtherContentIsNot) {
  EXPECT_EQ(code_of(work_.add(turn_, adding(2, false))), StatusCode::kOk);
  EXPECT_EQ(code_of(work_.add(turn_, adding(2, true))), StatusCode::kOk);
  v1::AddWorkOption other = adding(1, false);
  other.mutable_items(0)->set_path("elsewhere");
  EXPECT_EQ(code_of(work_.add(turn_, other)), StatusCode::kAlreadyExists);
  EXPECT_EQ(code_of(work_.add(turn_, adding(3, true))), StatusCode::kFailedPrecondition);
}

TEST_F(WorkTest, LimitsAreNamed) {
  bench_.options.limits.items_max = 3;
  bench_.options.limits.position_bytes_max = 4;
  const Message reply = work_.add(turn_, adding(4, true));
  EXPECT_EQ(code_of(reply), StatusCode::kResourceExhausted);
  EXPECT_NE(reply.meta.status().message().find("items_max"), std::string::npos);
  ASSERT_EQ(code_of(work_.add(turn_, adding(1, true))), StatusCode::kOk);
  ASSERT_EQ(take(1).size(), 1);
  v1::RenewWorkOption renew = about<v1::RenewWorkOption>(0);
  renew.mutable_items(0)->set_position("too long");
  EXPECT_EQ(code_of(work_.renew(turn_, renew, 1)), StatusCode::kInvalidArgument);
}

TEST_F(WorkTest, ProgressCanBeSavedAndFilledIntoANewQueue) {
  work_.add(turn_, adding(3, true));
  ASSERT_EQ(take(1, 2).size(), 2);
  work_.ack(turn_, about<v1::AckWorkOption>(0, 9), 1);
  work_.renew(turn_, about<v1::RenewWorkOption>(1, 4), 1);
  v1::GetJobReply saved;
  work_.show(true, bench_.now, &saved);
  ASSERT_EQ(saved.queues(0).progress_size(), 2);
  work_.clear(turn_);
  v1::AddWorkOption again = adding(3, true);
  *again.mutable_progress() = saved.queues(0).progress();
  ASSERT_EQ(code_of(work_.add(turn_, again)), StatusCode::kOk);
  const Message reply = work_.take(turn_, taking(5), 2);
  ASSERT_EQ(reply.meta.take_work_reply().leases_size(), 2);
  EXPECT_EQ(reply.meta.take_work_reply().leases(0).work().item(), 1);
  EXPECT_EQ(reply.meta.take_work_reply().leases(0).done_below(), 4);
  // A repeat changes nothing; what is ahead of an item that was begun is refused.
  EXPECT_EQ(code_of(work_.add(turn_, again)), StatusCode::kOk);
  again.mutable_progress(1)->set_done_below(6);
  EXPECT_EQ(code_of(work_.add(turn_, again)), StatusCode::kFailedPrecondition);
}

TEST_F(WorkTest, SamplesAreCountedWithTheWatermarkWhoeverTellsIt) {
  work_.add(turn_, adding(2, true));
  ASSERT_EQ(take(1, 2).size(), 2);
  work_.renew(turn_, about<v1::RenewWorkOption>(0, 7, {70, 4}), 1);
  work_.renew(turn_, about<v1::RenewWorkOption>(1, 1, {10, 0}), 1);
  EXPECT_EQ(sums(), (Samples{80, 4}));
  // A late repeat changes nothing, nor does what a dead taker had not told.
  work_.renew(turn_, about<v1::RenewWorkOption>(0, 5, {90, 9}), 1);
  EXPECT_EQ(sums(), (Samples{80, 4}));
  work_.drop_node(turn_, 1);
  work_.renew(turn_, about<v1::RenewWorkOption>(0, 9, {90, 9}), 1);
  EXPECT_EQ(sums(), (Samples{80, 4}));
  const Message taken = work_.take(turn_, taking(), 2);
  ASSERT_EQ(taken.meta.take_work_reply().leases_size(), 1);
  EXPECT_EQ(samples_in(taken.meta.take_work_reply().leases(0)), (Samples{70, 4}));
  // The end of an item tells also what rules left out of it.
  work_.ack(turn_, about<v1::AckWorkOption>(0, 9, {92, 6}), 2);
  work_.ack(turn_, about<v1::AckWorkOption>(0, 9, {99, 9}), 2);
  EXPECT_EQ(sums(), (Samples{102, 6}));
}

TEST_F(WorkTest, AResumedQueueCountsWhatIsTrainedSince) {
  work_.add(turn_, adding(3, true));
  ASSERT_EQ(take(1, 2).size(), 2);
  work_.ack(turn_, about<v1::AckWorkOption>(0, 9, {90, 5}), 1);
  work_.renew(turn_, about<v1::RenewWorkOption>(1, 4, {38, 2}), 1);
  v1::GetJobReply saved;
  work_.show(true, bench_.now, &saved);
  work_.clear(turn_);
  v1::AddWorkOption again = adding(3, true);
  *again.mutable_progress() = saved.queues(0).progress();
  ASSERT_EQ(code_of(work_.add(turn_, again)), StatusCode::kOk);
  EXPECT_EQ(sums(), Samples());
  const Message taken = work_.take(turn_, taking(), 2);
  ASSERT_EQ(taken.meta.take_work_reply().leases_size(), 1);
  EXPECT_EQ(samples_in(taken.meta.take_work_reply().leases(0)), (Samples{38, 2}));
  ASSERT_EQ(take(2).size(), 1);
  work_.ack(turn_, about<v1::AckWorkOption>(1, 9, {88, 3}), 2);
  work_.ack(turn_, about<v1::AckWorkOption>(2, 1, {7, 0}), 2);
  EXPECT_EQ(sums(), (Samples{57, 1}));
}

// What the queue should do, as plainly as can be: per item the holder, its end, whether it is done.
struct Oracle {
  struct Item {
    uint32_t node = 0;
    TimePoint until;
    bool done = false;
    uint64_t below = 0;
    Samples samples;

    void hear(uint64_t below_now, const Samples& samples_now) {
      if (below_now < below) return;
      below = below_now;
      samples = samples_now;
    }
  };
  std::vector<Item> items;

  Samples sums() const {
    Samples out;
    for (const Item& item : items) {
      out.trained += item.samples.trained;
      out.skipped += item.samples.skipped;
    }
    return out;
  }

  void free_due(TimePoint now) {
    for (Item& item : items) {
      if (item.node != 0 && item.until <= now) item.node = 0;
    }
  }
  std::vector<uint32_t> take(uint32_t node, uint32_t count, TimePoint until) {
    std::vector<uint32_t> taken;
    for (uint32_t i = 0; i < items.size() && taken.size() < count; ++i) {
      if (items[i].done || items[i].node != 0) continue;
      items[i].node = node;
      items[i].until = until;
      taken.push_back(i);
    }
    return taken;
  }
};

// The queues and the oracle side by side, told the same.
class WorkPair {
 public:
  explicit WorkPair(uint64_t seed)
      : rng_(seed, 2, 0),
        count_(static_cast<uint32_t>(1 + rng_.below(12))),
        oracle_{.items = std::vector<Oracle::Item>(count_)},
        work_(std::make_unique<WorkQueues>(bench_.options)) {
    Turn first = bench_.turn();
    work_->add(first, adding(count_, true));
    writes_ = first.writes;
  }

  void step() {
    bench_.now += milliseconds(static_cast<int64_t>(rng_.below(20000)));
    Turn turn = bench_.turn();
    work_->expire(turn);
    oracle_.free_due(bench_.now);
    const auto node = static_cast<uint32_t>(1 + rng_.below(3));
    const auto item = static_cast<uint32_t>(rng_.below(count_));
    const uint64_t below = rng_.below(10);
    samples_ = {rng_.below(100), rng_.below(100)};
    switch (rng_.below(6)) {
      case 0:
        take(turn, node);
        break;
      case 1:
        renew(turn, node, item, below);
        break;
      case 2:
        ack(turn, node, item, below);
        break;
      case 3:
        give_back(turn, node, item, below);
        break;
      case 4:
        drop(turn, node);
        break;
      default:
        restart(turn);
    }
    for (const LedgerWrite& write : turn.writes) writes_.push_back(write);
    EXPECT_EQ(sums_of(*work_, bench_.now), oracle_.sums());
  }

 private:
  TimePoint until() const { return bench_.now + bench_.options.work_lease; }

  void take(Turn& turn, uint32_t node) {
    const auto wanted = static_cast<uint32_t>(1 + rng_.below(3));
    std::vector<uint32_t> got;
    const Message reply = work_->take(turn, taking(wanted), node);
    for (const auto& lease : reply.meta.take_work_reply().leases()) {
      got.push_back(lease.work().item());
      EXPECT_EQ(lease.done_below(), oracle_.items[lease.work().item()].below);
      EXPECT_EQ(samples_in(lease), oracle_.items[lease.work().item()].samples);
    }
    EXPECT_EQ(got, oracle_.take(node, wanted, until()));
    const bool all_done = std::all_of(oracle_.items.begin(), oracle_.items.end(),
                                      [](const auto& each) { return each.done; });
    EXPECT_EQ(reply.meta.take_work_reply().finished(), all_done);
  }

  void renew(Turn& turn, uint32_t node, uint32_t item, uint64_t below) {
    Oracle::Item& told = oracle_.items[item];
    const Message reply =
        work_->renew(turn, about<v1::RenewWorkOption>(item, below, samples_), node);
    const bool holds = !told.done && told.node == node;
    EXPECT_EQ(reply.meta.renew_work_reply().lost_size(), holds ? 0 : 1);
    if (holds) {
      told.until = until();
      told.hear(below, samples_);
    }
  }

  void ack(Turn& turn, uint32_t node, uint32_t item, uint64_t below) {
    Oracle::Item& told = oracle_.items[item];
    const Message reply = work_->ack(turn, about<v1::AckWorkOption>(item, below, samples_), node);
    const bool refused = !told.done && told.node != 0 && told.node != node;
    EXPECT_EQ(code_of(reply), refused ? StatusCode::kAborted : StatusCode::kOk);
    if (refused || told.done) return;
    told.hear(below, samples_);
    told.done = true;
    told.node = 0;
  }

  void give_back(Turn& turn, uint32_t node, uint32_t item, uint64_t below) {
    Oracle::Item& told = oracle_.items[item];
    work_->give_back(turn, about<v1::GiveBackWorkOption>(item, below, samples_), node);
    if (!told.done && told.node == node) {
      told.hear(below, samples_);
      told.node = 0;
    }
  }

  void drop(Turn& turn, uint32_t node) {
    work_->drop_node(turn, node);
    for (Oracle::Item& each : oracle_.items) {
      if (each.node == node && !each.done) each.node = 0;
    }
  }

  // What the ledger has is all there is; leases start anew.
  void restart(Turn& turn) {
    work_ = std::make_unique<WorkQueues>(bench_.options);
    for (const LedgerWrite& write : turn.writes) writes_.push_back(write);
    turn.writes.clear();
    for (const LedgerEntry& entry : entries_of(writes_, "queue/")) {
      ASSERT_TRUE(work_->load_queue(entry).ok());
    }
    for (const LedgerEntry& entry : entries_of(writes_, "item/")) {
      ASSERT_TRUE(work_->load_item(entry, bench_.now).ok());
    }
    for (Oracle::Item& each : oracle_.items) each.until = until();
  }

  Rng rng_;
  Bench bench_;
  uint32_t count_;
  Oracle oracle_;
  Samples samples_;  // that the step at hand tells
  std::unique_ptr<WorkQueues> work_;
  std::vector<LedgerWrite> writes_;
};

TEST(WorkPropertyTest, RandomOperationsAgreeWithAnOracleOverRestarts) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    WorkPair pair(seed);
    for (int step = 0; step < 120; ++step) pair.step();
  }
}

}  // namespace
}  // namespace starling
