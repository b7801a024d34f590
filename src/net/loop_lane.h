// LoopLane is the real lane: an epoll loop with a mailbox and timers, turned by its own thread or
// by its owner. It spins briefly before it sleeps, since an idle wake-up costs more than most
// requests.
//
// Uses: base, epoll. Threads: as Lane; watch(), unwatch() and run_until() on the lane itself.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "base/mailbox.h"
#include "base/thread.h"
#include "net/lane.h"

namespace starling {

// Something with a file descriptor on a LoopLane.
class Watcher {
 public:
  virtual ~Watcher() = default;
  // `events` as epoll gives them.
  virtual void on_events(uint32_t events) = 0;
  // Tries to read without being told that there is something; true when there was. Called while
  // spinning.
  virtual bool poll() { return false; }
};

// How many threads of this process spin. More than there are cores would only take time from each
// other.
class SpinBudget {
 public:
  explicit SpinBudget(int cores = usable_cores()) : cores_(cores) {}
  bool enter() {
    if (spinning_.fetch_add(1, std::memory_order_relaxed) < cores_) return true;
    leave();
    return false;
  }
  void leave() { spinning_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  const int cores_;
  std::atomic<int> spinning_{0};
};

struct LoopOptions {
  std::string name = "lane";
  Duration spin = microseconds(50);  // before each sleep; 0 sleeps at once
  bool polling = false;              // never sleep, where there is a core for it
  std::optional<int> core;           // pin the lane's thread
  std::shared_ptr<SpinBudget> budget = std::make_shared<SpinBudget>();
};

class LoopLane final : public Lane {
 public:
  // With a thread of its own, running when this returns.
  static std::unique_ptr<LoopLane> start(LoopOptions options);
  // Turned by the calling thread, which owns it.
  static std::unique_ptr<LoopLane> driven_by_caller(LoopOptions options);
  ~LoopLane() override;

  // Ends the thread after the task at hand, then drops what is queued. Not from the lane itself.
  // Twice is fine.
  void stop();

  const Clock& clock() const override { return clock_; }
  bool here() const override {
    return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  void post(Task task) override;
  TimerId call_at(TimePoint at, Task task) override { return timers_.add(at, std::move(task)); }
  void cancel(TimerId id) override { timers_.cancel(id); }
  bool driven() const override { return driven_; }
  bool run_until(const Function<bool() const>& done, Deadline deadline) override;

  // `events` as for epoll, level-triggered. The watcher stays with its owner, who unwatches before
  // it goes.
  Status watch(int fd, uint32_t events, Watcher* watcher);
  void change(int fd, uint32_t events, Watcher* watcher);
  void unwatch(int fd, Watcher* watcher);
  // The watcher that is polled first while spinning: the one that had something to read last.
  void set_hot(Watcher* watcher) { hot_ = watcher; }

  // Wake-ups from sleep and spins that were skipped because the cores are taken; any thread.
  struct Stats {
    uint64_t sleeps = 0;
    uint64_t spins_skipped = 0;
  };
  Stats stats() const;
  // Changes as long as the lane turns. Not while it sleeps, nor while one task takes its time.
  uint64_t turns() const { return turns_.load(std::memory_order_relaxed); }
  bool asleep() const { return asleep_.load(std::memory_order_relaxed); }

 private:
  LoopLane(LoopOptions options, bool driven);
  void run();
  bool turn(TimePoint now);
  bool poll_events(int timeout_ms);
  bool run_mail();
  bool run_timers(TimePoint now);
  bool spin(const Function<bool() const>* done);
  bool may_spin();
  void note_preemption();
  void sleep(Deadline deadline);

  // Set once, before the lane runs.
  const LoopOptions options_;
  const bool driven_;
  const int epoll_fd_;
  const RealClock clock_;

  // Any thread.
  std::atomic<std::thread::id> owner_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> sleeps_{0};
  std::atomic<uint64_t> spins_skipped_{0};
  std::atomic<uint64_t> turns_{0};
  std::atomic<bool> asleep_{false};
  Mailbox<Task> mailbox_;

  // The lane's thread only.
  Timers timers_;
  std::vector<Task> mail_;
  std::vector<Watcher*> gone_;  // unwatched while events are being handed out
  Watcher* hot_ = nullptr;
  bool polls_ = false;     // a driven lane that has a core to poll on
  int handing_out_ = 0;    // depth: a handler on a driven lane may turn it again
  int64_t preempted_ = 0;  // involuntary switches seen so far
  uint32_t hold_off_ = 0;  // spins to skip after having been preempted
  uint32_t hold_off_next_ = 4;

  Thread thread_;
};

}  // namespace starling
