#include <gtest/gtest.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <thread>

#include "net/loop_lane.h"
#include "net/manual_lane.h"

namespace starling {
namespace {

Deadline patience() { return Deadline::in(RealClock(), seconds(60)); }

bool wait_until(const std::function<bool()>& done) {
  const Deadline late = patience();
  while (!done() && !late.passed(RealClock().now())) std::this_thread::yield();
  return done();
}

TEST(LoopLane, RunsTasksInOrderOnItsOwnThread) {
  auto lane = LoopLane::start({.name = "test"});
  std::vector<int> ran;
  std::promise<bool> here;
  EXPECT_FALSE(lane->here());
  for (int i = 0; i < 1000; ++i) lane->post([&ran, i] { ran.push_back(i); });
  lane->post([&] { here.set_value(lane->here()); });
  EXPECT_TRUE(here.get_future().get());
  ASSERT_EQ(ran.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(ran.begin(), ran.end()));
}

TEST(LoopLane, TakesTasksFromManyThreads) {
  auto lane = LoopLane::start({.name = "test"});
  int count = 0;
  std::promise<void> all;
  {
    std::vector<Thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back(ThreadOptions{.name = "poster"}, [&] {
        for (int i = 0; i < 1000; ++i) {
          lane->post([&] {
            if (++count == 4000) all.set_value();
          });
        }
      });
    }
  }
  EXPECT_EQ(all.get_future().wait_for(seconds(60)), std::future_status::ready);
}

TEST(LoopLane, WakesForItsTimers) {
  auto lane = LoopLane::start({.name = "test", .spin = Duration::zero()});
  std::promise<std::vector<int>> done;
  lane->post([&] {
    const TimePoint now = lane->clock().now();
    auto ran = std::make_shared<std::vector<int>>();
    lane->call_at(now + milliseconds(20), [&done, ran] {
      ran->push_back(2);
      done.set_value(*ran);
    });
    lane->call_at(now + milliseconds(10), [ran] { ran->push_back(1); });
    lane->cancel(lane->call_at(now + milliseconds(5), [ran] { ran->push_back(0); }));
  });
  EXPECT_EQ(done.get_future().get(), (std::vector<int>{1, 2}));
}

TEST(LoopLane, DropsWhatIsPostedAfterItHasStopped) {
  auto lane = LoopLane::start({.name = "test"});
  lane->stop();
  auto owned = std::make_shared<int>(1);
  lane->post([owned] { FAIL() << "ran on a stopped lane"; });
  EXPECT_EQ(owned.use_count(), 1);
  lane->stop();
}

TEST(LoopLane, StopDropsWhatItsTasksOwn) {
  auto owned = std::make_shared<int>(1);
  auto lane = LoopLane::start({.name = "test"});
  std::promise<void> in_task;
  std::promise<void> go_on;
  lane->post([&, go = go_on.get_future()] {
    in_task.set_value();
    go.wait();
  });
  in_task.get_future().wait();
  for (int i = 0; i < 10; ++i) lane->post([owned] {});
  Thread stopper({.name = "stopper"}, [&] { lane->stop(); });
  std::this_thread::sleep_for(milliseconds(20));
  go_on.set_value();
  stopper.join();
  EXPECT_EQ(owned.use_count(), 1);
}

TEST(LoopLane, IsTurnedByItsOwner) {
  auto lane = LoopLane::driven_by_caller({.name = "test"});
  EXPECT_TRUE(lane->driven());
  EXPECT_TRUE(lane->here());
  bool ran = false;
  lane->post([&] { ran = true; });
  EXPECT_FALSE(ran);
  EXPECT_TRUE(lane->run_until([&] { return ran; }, patience()));
  EXPECT_FALSE(lane->run_until([] { return false; }, Deadline::in(RealClock(), milliseconds(10))));
  Thread poster({.name = "poster"}, [&] {
    std::this_thread::sleep_for(milliseconds(20));
    lane->post([&] { ran = false; });
  });
  EXPECT_TRUE(lane->run_until([&] { return !ran; }, patience()));
}

TEST(LoopLane, ATaskMayTurnItsDrivenLaneAgain) {
  auto lane = LoopLane::driven_by_caller({.name = "test"});
  bool inner = false;
  bool outer = false;
  lane->post([&] {
    lane->post([&] { inner = true; });
    outer = lane->run_until([&] { return inner; }, patience());
  });
  EXPECT_TRUE(lane->run_until([&] { return outer; }, patience()));
}

// Counts what it is told of an eventfd.
class Bell : public Watcher {
 public:
  Bell() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~Bell() override { ::close(fd_); }
  void ring() {
    const uint64_t one = 1;
    ASSERT_EQ(::write(fd_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }
  void on_events(uint32_t) override {
    uint64_t count = 0;
    heard += ::read(fd_, &count, sizeof(count)) > 0 ? 1 : 0;
    if (then) then();
  }
  int fd() const { return fd_; }
  int heard = 0;
  std::function<void()> then;

 private:
  const int fd_;
};

TEST(LoopLane, TellsItsWatchers) {
  auto lane = LoopLane::driven_by_caller({.name = "test"});
  Bell bell;
  ASSERT_TRUE(lane->watch(bell.fd(), EPOLLIN, &bell).ok());
  bell.ring();
  EXPECT_TRUE(lane->run_until([&] { return bell.heard == 1; }, patience()));
  lane->unwatch(bell.fd(), &bell);
  bell.ring();
  EXPECT_FALSE(lane->run_until([&] { return bell.heard == 2; },
                               Deadline::in(RealClock(), milliseconds(20))));
}

TEST(LoopLane, AWatcherThatGoesWhileEventsAreHandedOutHearsNothingMore) {
  auto lane = LoopLane::driven_by_caller({.name = "test"});
  Bell bells[2];
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(lane->watch(bells[i].fd(), EPOLLIN, &bells[i]).ok());
    bells[i].then = [&, i] { lane->unwatch(bells[1 - i].fd(), &bells[1 - i]); };
    bells[i].ring();
  }
  EXPECT_TRUE(lane->run_until([&] { return bells[0].heard + bells[1].heard > 0; }, patience()));
  lane->run_until([] { return false; }, Deadline::in(RealClock(), milliseconds(20)));
  EXPECT_EQ(bells[0].heard + bells[1].heard, 1);
}

TEST(LoopLane, AWatcherThatComesBackWhileEventsAreHandedOutIsToldInANestedTurn) {
  auto lane = LoopLane::driven_by_caller({.name = "test"});
  Bell first;
  Bell second;
  ASSERT_TRUE(lane->watch(first.fd(), EPOLLIN, &first).ok());
  int told = 0;
  // As a channel that loses its connection inside of a call, and gets another one.
  first.then = [&] {
    if (++told > 1) return;
    lane->unwatch(first.fd(), &first);
    ASSERT_TRUE(lane->watch(second.fd(), EPOLLIN, &first).ok());
    second.ring();
    EXPECT_TRUE(lane->run_until([&] { return told > 1; }, patience()));
  };
  first.ring();
  EXPECT_TRUE(lane->run_until([&] { return told > 1; }, patience()));
  lane->unwatch(second.fd(), &first);
}

TEST(SpinBudget, LetsInAsManyAsThereAreCores) {
  SpinBudget budget(2);
  EXPECT_TRUE(budget.enter());
  EXPECT_TRUE(budget.enter());
  EXPECT_FALSE(budget.enter());
  budget.leave();
  EXPECT_TRUE(budget.enter());
}

TEST(SpinBudget, ALaneWithoutACoreToSpinOnSleepsAtOnce) {
  auto lane = LoopLane::start(
      {.name = "test", .spin = milliseconds(10), .budget = std::make_shared<SpinBudget>(0)});
  // It goes to sleep by itself; nothing has to be sent for that.
  EXPECT_TRUE(wait_until([&] { return lane->stats().sleeps > 0; }));
  EXPECT_GT(lane->stats().spins_skipped, 0u);
}

TEST(Polling, ALaneThatPollsNeverSleepsAndHoldsItsCore) {
  auto budget = std::make_shared<SpinBudget>(1);
  auto lane = LoopLane::start({.name = "test", .polling = true, .budget = budget});
  for (int i = 0; i < 100; ++i) {
    auto ran = std::make_shared<std::promise<void>>();
    lane->post([ran] { ran->set_value(); });
    ran->get_future().wait();
  }
  EXPECT_EQ(lane->stats().sleeps, 0u);
  EXPECT_FALSE(budget->enter()) << "nobody else may spin on that core";
  lane->stop();
  EXPECT_TRUE(budget->enter());
}

TEST(Polling, ALaneWithoutACoreToPollOnSleeps) {
  auto lane =
      LoopLane::start({.name = "test", .polling = true, .budget = std::make_shared<SpinBudget>(0)});
  EXPECT_TRUE(wait_until([&] { return lane->stats().sleeps > 0; }));
  auto ran = std::make_shared<std::promise<void>>();
  lane->post([ran] { ran->set_value(); });
  EXPECT_EQ(ran->get_future().wait_for(seconds(60)), std::future_status::ready);
}

TEST(Polling, ADrivenLaneWithoutACoreToPollOnSleeps) {
  auto lane = LoopLane::driven_by_caller({.name = "test",
                                          .spin = Duration::zero(),
                                          .polling = true,
                                          .budget = std::make_shared<SpinBudget>(0)});
  std::function<void()> tick = [&] {
    lane->call_at(lane->clock().now() + milliseconds(1), [&] { tick(); });
  };
  tick();
  EXPECT_TRUE(lane->run_until([&] { return lane->stats().sleeps > 0; }, patience()));
}

TEST(Polling, ADrivenLaneHoldsOneCoreWhileItIsTurned) {
  auto budget = std::make_shared<SpinBudget>(2);
  auto lane = LoopLane::driven_by_caller({.name = "test", .polling = true, .budget = budget});
  const auto one_is_left = [&] {
    const bool first = budget->enter();
    const bool second = budget->enter();
    if (first) budget->leave();
    if (second) budget->leave();
    return first && !second;
  };
  bool inner = false;
  bool outer = false;
  lane->post([&] {
    EXPECT_TRUE(lane->run_until([&] { return inner = one_is_left(); }, patience()));
    outer = one_is_left();
  });
  EXPECT_TRUE(lane->run_until([&] { return outer; }, patience()));
  EXPECT_TRUE(inner);
  EXPECT_EQ(lane->stats().sleeps, 0u);
  EXPECT_FALSE(one_is_left()) << "given back";
}

TEST(Pinning, ALaneStaysOnItsCore) {
  cpu_set_t usable;
  ASSERT_EQ(sched_getaffinity(0, sizeof(usable), &usable), 0);
  int core = 0;
  while (!CPU_ISSET(core, &usable)) ++core;
  auto lane = LoopLane::start({.name = "test", .core = core});
  std::promise<cpu_set_t> there;
  lane->post([&] {
    cpu_set_t set;
    sched_getaffinity(0, sizeof(set), &set);
    there.set_value(set);
  });
  const cpu_set_t set = there.get_future().get();
  EXPECT_EQ(CPU_COUNT(&set), 1);
  EXPECT_TRUE(CPU_ISSET(core, &set));
}

TEST(ManualLanes, StepInTheOrderOfPostingThenOfTime) {
  ManualLanes lanes;
  auto a = lanes.make();
  auto b = lanes.make();
  std::string ran;
  a->call_at(lanes.clock().now() + milliseconds(2), [&] { ran += "t"; });
  a->post([&] { ran += "a"; });
  b->post([&] {
    ran += b->here() && !a->here() ? "b" : "?";
    a->post([&] { ran += "c"; });
  });
  const TimePoint start = lanes.clock().now();
  while (lanes.step()) {
  }
  EXPECT_EQ(ran, "abct");
  EXPECT_EQ(lanes.clock().now() - start, milliseconds(2));
  EXPECT_TRUE(a->here() && b->here()) << "between steps the owner may touch everything";
}

TEST(ManualLanes, RunUntilStopsAtItsLimit) {
  ManualLanes lanes;
  auto lane = lanes.make();
  int count = 0;
  std::function<void()> tick = [&] {
    ++count;
    lane->call_at(lanes.clock().now() + seconds(1), [&] { tick(); });
  };
  lane->post([&] { tick(); });
  EXPECT_FALSE(lanes.run_until([] { return false; }, seconds(10)));
  EXPECT_GE(count, 10);
  EXPECT_LE(count, 13);
}

// Posts once more when it is destroyed, as a Reply does.
struct LastWord {
  explicit LastWord(std::shared_ptr<Lane> lane) : lane(std::move(lane)) {}
  LastWord(LastWord&&) = default;
  ~LastWord() {
    if (lane != nullptr) lane->post([] {});
  }
  std::shared_ptr<Lane> lane;
};

TEST(ManualLanes, GoWithTasksAndTimersLeft) {
  auto lanes = std::make_unique<ManualLanes>();
  auto lane = lanes->make();
  lane->post([word = LastWord(lane)] {});
  lane->call_at(lanes->clock().now() + seconds(1), [word = LastWord(lane)] {});
  lanes.reset();
}

}  // namespace
}  // namespace starling
