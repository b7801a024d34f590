// Gate, queue, mailbox and metrics, each under several threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <numeric>

#include "base/gate.h"
#include "base/mailbox.h"
#include "base/metrics.h"
#include "base/queue.h"
#include "base/thread.h"

namespace starling {
namespace {

const RealClock kClock;
Deadline soon() { return Deadline::in(kClock, milliseconds(20)); }
Deadline late() { return Deadline::in(kClock, seconds(60)); }

TEST(Gate, CloseWaitsForThoseInside) {
  Gate gate;
  Gate::Pass pass = gate.enter();
  ASSERT_TRUE(pass);
  EXPECT_FALSE(gate.close(soon()));
  EXPECT_FALSE(gate.enter()) << "a closed gate lets nobody in";
  Thread leaver({.name = "leaver"},
                [pass = std::make_shared<Gate::Pass>(std::move(pass))]() mutable { pass.reset(); });
  EXPECT_TRUE(gate.close(late()));
  EXPECT_EQ(gate.inside(), 0);
}

TEST(Queue, IsBoundedAndTellsWhy) {
  Queue<int> queue(2);
  EXPECT_TRUE(queue.try_push(1).ok());
  EXPECT_TRUE(queue.try_push(2).ok());
  EXPECT_EQ(queue.try_push(3).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(queue.push(3, soon()).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(*queue.try_pop(), 1);
  EXPECT_TRUE(queue.try_push(3).ok());
}

TEST(Queue, ARefusedItemStaysWithItsOwner) {
  Queue<std::unique_ptr<int>> queue(1);
  auto first = std::make_unique<int>(1), second = std::make_unique<int>(2);
  EXPECT_TRUE(queue.try_push(first).ok());
  EXPECT_FALSE(queue.try_push(second).ok());
  EXPECT_NE(second, nullptr);
}

TEST(Queue, WhatWasInsideCanBeTakenAfterClose) {
  Queue<int> queue(4);
  EXPECT_EQ(queue.pop(soon()).status().code(), StatusCode::kDeadlineExceeded);
  (void)queue.try_push(7);
  queue.close();
  queue.close();
  EXPECT_EQ(queue.try_push(8).code(), StatusCode::kCancelled);
  EXPECT_EQ(*queue.pop(late()), 7);
  EXPECT_EQ(queue.pop(late()).status().code(), StatusCode::kOutOfRange);
}

TEST(Queue, EveryItemArrivesOnceFromManyToMany) {
  constexpr int kEach = 20000;
  Queue<int> queue(16);
  std::array<std::vector<int>, 3> got;
  {
    std::vector<Thread> takers;
    for (auto& mine : got) {
      takers.emplace_back(ThreadOptions{.name = "taker"}, [&queue, &mine] {
        for (auto item = queue.pop(late()); item.ok(); item = queue.pop(late()))
          mine.push_back(*item);
      });
    }
    std::vector<Thread> givers;
    for (int g = 0; g < 3; ++g) {
      givers.emplace_back(ThreadOptions{.name = "giver"}, [&queue, g] {
        for (int i = 0; i < kEach; ++i) ASSERT_TRUE(queue.push(g * kEach + i, late()).ok());
      });
    }
    givers.clear();
    queue.close();
  }
  std::vector<int> all;
  for (const auto& mine : got) all.insert(all.end(), mine.begin(), mine.end());
  std::sort(all.begin(), all.end());
  std::vector<int> expected(3 * kEach);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

bool readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return poll(&p, 1, 0) == 1;
}

TEST(Mailbox, WakesOnlyASleeper) {
  Mailbox<int> box(10);
  EXPECT_TRUE(box.push(1));
  EXPECT_FALSE(readable(box.fd())) << "an awake owner costs no system call";
  EXPECT_FALSE(box.prepare_sleep()) << "there is mail";
  std::vector<int> mail;
  box.take(mail);
  EXPECT_THAT(mail, testing::ElementsAre(1));
  EXPECT_TRUE(box.prepare_sleep());
  EXPECT_TRUE(box.push(2));
  EXPECT_TRUE(readable(box.fd()));
  box.end_sleep();
  EXPECT_FALSE(readable(box.fd()));
}

TEST(Mailbox, IsBoundedButTakesAdmittedAnswers) {
  Mailbox<int> box(1);
  EXPECT_TRUE(box.push(1));
  EXPECT_FALSE(box.push(2));
  box.push_always(3);
  std::vector<int> mail;
  box.take(mail);
  EXPECT_THAT(mail, testing::ElementsAre(1, 3));
  EXPECT_FALSE(box.maybe_filled());
}

TEST(Mailbox, ClosedItGivesWhatItHasAndTakesNothing) {
  Mailbox<std::unique_ptr<int>> box(10);
  EXPECT_TRUE(box.push(std::make_unique<int>(1)));
  std::vector<std::unique_ptr<int>> mail;
  box.close(mail);
  EXPECT_EQ(mail.size(), 1u);
  auto late = std::make_unique<int>(2);
  EXPECT_FALSE(box.push(late));
  box.push_always(std::move(late));
  EXPECT_NE(late, nullptr) << "stays with the sender, who lets go of it";
  EXPECT_FALSE(box.maybe_filled());
  box.close(mail);
  EXPECT_TRUE(mail.empty());
}

TEST(Mailbox, NothingIsLostAndEachSendersOrderIsKept) {
  constexpr int kEach = 50000;
  Mailbox<std::pair<int, int>> box(SIZE_MAX);
  std::vector<Thread> senders;
  for (int s = 0; s < 3; ++s) {
    senders.emplace_back(ThreadOptions{.name = "sender"}, [&box, s] {
      for (int i = 0; i < kEach; ++i) box.push({s, i});
    });
  }
  std::array<int, 3> next{};
  std::vector<std::pair<int, int>> mail;
  int total = 0;
  while (total < 3 * kEach) {
    if (box.prepare_sleep()) {
      pollfd p{box.fd(), POLLIN, 0};
      ASSERT_EQ(poll(&p, 1, 60000), 1);
      box.end_sleep();
    }
    box.take(mail);
    for (const auto& [sender, number] : mail) {
      ASSERT_EQ(number, next.at(static_cast<size_t>(sender))++);
      ++total;
    }
  }
}

TEST(Histogram, EveryValueFallsIntoABucketThatHoldsIt) {
  uint64_t value = 0;
  for (int i = 0; i < 4000; ++i) {
    const size_t bucket = Histogram::bucket_of(value);
    ASSERT_LT(bucket, Histogram::kBucketCount);
    ASSERT_LE(value, Histogram::upper_of(bucket));
    ASSERT_LE(Histogram::upper_of(bucket) - value, value / 16);
    if (bucket > 0) {
      ASSERT_GT(value, Histogram::upper_of(bucket - 1));
    }
    value = value < 100 ? value + 1 : value + value / 90;
    if (value > UINT64_MAX / 2) break;
  }
  EXPECT_LT(Histogram::bucket_of(UINT64_MAX), Histogram::kBucketCount);
}

TEST(Histogram, QuantilesMatchASortedList) {
  Histogram histogram;
  for (uint64_t i = 1; i <= 10000; ++i) histogram.record(i);
  const auto s = histogram.summary();
  EXPECT_EQ(s.count, 10000u);
  EXPECT_EQ(s.max, 10000u);
  EXPECT_NEAR(static_cast<double>(s.p50), 5000, 5000 / 16.0);
  EXPECT_NEAR(static_cast<double>(s.p95), 9500, 9500 / 16.0);
  EXPECT_NEAR(static_cast<double>(s.p99), 9900, 9900 / 16.0);
  EXPECT_EQ(Histogram().summary().p99, 0u);
}

TEST(Metrics, OneNameIsOneCounterOnAllThreads) {
  Metrics metrics;
  {
    std::vector<Thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back(ThreadOptions{.name = "adds"}, [&] {
        for (int i = 0; i < 1000; ++i) {
          metrics.counter("rpc.count").add();
          metrics.histogram("rpc.time", "ns").record(uint64_t{5});
        }
      });
    }
  }
  EXPECT_EQ(metrics.print(),
            "rpc.count 4000\nrpc.time count=4000 p50=5ns p95=5ns p99=5ns max=5ns\n");
}

}  // namespace
}  // namespace starling
