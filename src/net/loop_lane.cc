#include "net/loop_lane.h"

#include <immintrin.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace starling {
namespace {

constexpr int kEventsMax = 256;
// Looking at every descriptor costs a system call, so while spinning only every so many looks at
// the hot one.
constexpr uint32_t kLooksPerPoll = 8;
constexpr uint32_t kHoldOffMin = 4;
constexpr uint32_t kHoldOffMax = 256;

int64_t involuntary_switches() {
  rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

}  // namespace

std::unique_ptr<LoopLane> LoopLane::start(LoopOptions options) {
  std::unique_ptr<LoopLane> lane(new LoopLane(std::move(options), /*driven=*/false));
  LoopLane* self = lane.get();
  lane->thread_ =
      Thread({.name = self->options_.name, .core = self->options_.core}, [self] { self->run(); });
  return lane;
}

std::unique_ptr<LoopLane> LoopLane::driven_by_caller(LoopOptions options) {
  std::unique_ptr<LoopLane> lane(new LoopLane(std::move(options), /*driven=*/true));
  lane->owner_ = std::this_thread::get_id();
  return lane;
}

LoopLane::LoopLane(LoopOptions options, bool driven)
    : options_(std::move(options)),
      driven_(driven),
      epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
      // Posted work is bounded by the limits on requests in flight, which know what to answer when
      // they are reached.
      mailbox_(SIZE_MAX) {
  STARLING_CHECK(epoll_fd_ >= 0, "no epoll: out of file descriptors");
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  STARLING_CHECK(epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, mailbox_.fd(), &event) == 0,
                 "cannot watch the mailbox");
}

LoopLane::~LoopLane() {
  stop();
  ::close(epoll_fd_);
}

void LoopLane::stop() {
  stopping_.store(true, std::memory_order_release);
  mailbox_.push_always([] {});
  thread_.join();
  // Somebody may wait for a task to run or to be destroyed, so none may stay. Those that are
  // destroyed here own things (replies, connections) that may post again, to a box that is closed.
  std::vector<Task> left;
  mailbox_.close(left);
}

void LoopLane::post(Task task) { mailbox_.push_always(std::move(task)); }

void LoopLane::run() {
  owner_ = std::this_thread::get_id();
  // A core for each lane that polls; those beyond sleep like all others, or they would take the
  // time from each other and from whatever they wait for.
  const bool polls = options_.polling && options_.budget->enter();
  while (!stopping_.load(std::memory_order_acquire)) {
    while (turn(clock_.now()) && !stopping_.load(std::memory_order_acquire)) {
    }
    if (polls) {
      if (hot_ != nullptr) hot_->poll();
      continue;
    }
    if (stopping_.load(std::memory_order_acquire) || spin(nullptr)) continue;
    sleep(Deadline::never());
  }
  if (polls) options_.budget->leave();
}

bool LoopLane::run_until(const Function<bool() const>& done, Deadline deadline) {
  STARLING_CHECK(driven_ && here(), "only the owner of a driven lane turns it");
  // A core for each lane that polls, as in run(); a handler that turns the lane again shares it.
  const bool enters = options_.polling && !polls_ && options_.budget->enter();
  polls_ |= enters;
  bool in_time = true;
  while (in_time && !done()) {
    const TimePoint now = clock_.now();
    in_time = !deadline.passed(now);
    if (!in_time || turn(now) || polls_) continue;
    if (spin(&done) || done()) continue;
    sleep(deadline);
  }
  if (enters) {
    polls_ = false;
    options_.budget->leave();
  }
  return in_time;
}

// Sockets before timers: an answer that has arrived must win over the timer that would give it up.
bool LoopLane::turn(TimePoint now) {
  bool worked = poll_events(0);
  worked |= run_mail();
  worked |= run_timers(now);
  return worked;
}

bool LoopLane::poll_events(int timeout_ms) {
  std::array<epoll_event, kEventsMax> events;
  // Who is unwatched after this look has events in it that must not be handed out; who was before
  // has none, and may be watched anew by now.
  const size_t gone_before = gone_.size();
  // Written by this thread alone.
  turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (timeout_ms != 0) asleep_.store(true, std::memory_order_relaxed);
  const int count = epoll_wait(epoll_fd_, events.data(), kEventsMax, timeout_ms);
  if (timeout_ms != 0) asleep_.store(false, std::memory_order_relaxed);
  if (count <= 0) return false;
  bool worked = false;
  ++handing_out_;
  for (int i = 0; i < count; ++i) {
    auto* watcher = static_cast<Watcher*>(events[static_cast<size_t>(i)].data.ptr);
    if (watcher == nullptr) continue;  // the mailbox, read by end_sleep()
    const auto gone_since = gone_.begin() + static_cast<ptrdiff_t>(gone_before);
    if (std::find(gone_since, gone_.end(), watcher) != gone_.end()) continue;
    watcher->on_events(events[static_cast<size_t>(i)].events);
    worked = true;
  }
  if (--handing_out_ == 0) gone_.clear();
  return worked;
}

bool LoopLane::run_mail() {
  if (!mailbox_.maybe_filled()) return false;
  // Taken to the stack: a task may turn the lane again (a blocking call on a driven lane).
  std::vector<Task> mail = std::move(mail_);
  mailbox_.take(mail);
  for (Task& task : mail) {
    Task mine = std::move(task);
    mine();
  }
  const bool worked = !mail.empty();
  mail.clear();
  mail_ = std::move(mail);
  return worked;
}

bool LoopLane::run_timers(TimePoint now) {
  bool worked = false;
  while (Task task = timers_.take_due(now)) {
    task();
    worked = true;
  }
  return worked;
}

// Stays as long as the hot watcher keeps it busy; true when there is something that only a turn can
// do.
bool LoopLane::spin(const Function<bool() const>* done) {
  if (!may_spin()) return false;
  TimePoint until = std::min(clock_.now() + options_.spin, timers_.next());
  bool leave = false;
  for (uint32_t look = 1; !leave; ++look) {
    bool worked = hot_ != nullptr && hot_->poll();
    if (mailbox_.maybe_filled() || (done != nullptr && (*done)()) ||
        stopping_.load(std::memory_order_relaxed))
      break;
    if (look % kLooksPerPoll == 0) worked |= poll_events(0);
    const TimePoint now = clock_.now();
    if (worked) until = std::min(now + options_.spin, timers_.next());
    if (now < until) {
      _mm_pause();
    } else {
      leave = true;
    }
  }
  options_.budget->leave();
  return !leave;
}

bool LoopLane::may_spin() {
  if (options_.spin <= Duration::zero()) return false;
  if (hold_off_ == 0 && options_.budget->enter()) return true;
  if (hold_off_ > 0) --hold_off_;
  spins_skipped_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

// A thread that was preempted competes with others for its core, in this process or another: it
// then sleeps at once for a while instead of spinning, longer each time.
void LoopLane::note_preemption() {
  const int64_t switches = involuntary_switches();
  if (switches != std::exchange(preempted_, switches)) {
    if (hold_off_ == 0) hold_off_next_ = std::min(hold_off_next_ * 2, kHoldOffMax);
    hold_off_ = hold_off_next_;
  } else if (hold_off_next_ > kHoldOffMin) {
    --hold_off_next_;
  }
}

void LoopLane::sleep(Deadline deadline) {
  const TimePoint now = clock_.now();
  const TimePoint until = std::min(deadline.at(), timers_.next());
  if (until <= now || !mailbox_.prepare_sleep()) return;
  int timeout_ms = -1;
  if (until != TimePoint::max()) {
    // Rounded up: a timer must not find itself a fraction of a millisecond early and sleep for
    // nothing.
    const auto left = std::chrono::ceil<milliseconds>(until - now).count();
    timeout_ms = static_cast<int>(std::min<int64_t>(left, 60'000));
  }
  sleeps_.fetch_add(1, std::memory_order_relaxed);
  note_preemption();
  poll_events(timeout_ms);
  mailbox_.end_sleep();
}

Status LoopLane::watch(int fd, uint32_t events, Watcher* watcher) {
  epoll_event event{.events = events, .data = {.ptr = watcher}};
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return resource_exhausted("cannot watch a socket: {}", std::strerror(errno));
}

void LoopLane::change(int fd, uint32_t events, Watcher* watcher) {
  epoll_event event{.events = events, .data = {.ptr = watcher}};
  STARLING_CHECK(epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event) == 0,
                 "changing a descriptor that is not watched");
}

void LoopLane::unwatch(int fd, Watcher* watcher) {
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
  if (handing_out_ > 0) gone_.push_back(watcher);
  if (hot_ == watcher) hot_ = nullptr;
}

LoopLane::Stats LoopLane::stats() const {
  return {sleeps_.load(std::memory_order_relaxed), spins_skipped_.load(std::memory_order_relaxed)};
}

}  // namespace starling
