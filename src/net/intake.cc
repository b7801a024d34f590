#include "net/intake.h"

#include <future>

#include "net/loop_lane.h"

namespace starling {

Ticket::Ticket(std::shared_ptr<Intake> intake, std::shared_ptr<Meter> meter, size_t bytes)
    : intake_(std::move(intake)), meter_(std::move(meter)), bytes_(bytes) {
  if (meter_ == nullptr) return;
  meter_->bytes.fetch_add(bytes, std::memory_order_relaxed);
  meter_->requests.fetch_add(1, std::memory_order_relaxed);
}

Ticket& Ticket::operator=(Ticket&& other) noexcept {
  if (this != &other) {
    give_back();
    intake_ = std::move(other.intake_);
    meter_ = std::move(other.meter_);
    bytes_ = other.bytes_;
    lent_ = other.lent_;
  }
  return *this;
}

void Ticket::grow(size_t bytes) {
  if (lent_) return;  // all of it is counted already
  bytes_ += bytes;
  intake_->bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (meter_ != nullptr) meter_->bytes.fetch_add(bytes, std::memory_order_relaxed);
}

bool Ticket::lend() {
  Intake& intake = *intake_;
  const size_t before = intake.lent_bytes_.fetch_add(bytes_, std::memory_order_relaxed);
  if (before > 0 && before + bytes_ > intake.options_.server_bytes_max / 4) {
    intake.lent_bytes_.fetch_sub(bytes_, std::memory_order_relaxed);
    return false;
  }
  // First this, so that the request is never counted nowhere.
  intake.lent_.fetch_add(1, std::memory_order_seq_cst);
  lent_ = true;
  if (meter_ != nullptr) {
    meter_->bytes.fetch_sub(bytes_, std::memory_order_relaxed);
    meter_->requests.fetch_sub(1, std::memory_order_relaxed);
    meter_.reset();
  }
  intake.give_back(bytes_);
  return true;
}

void Ticket::give_back() {
  if (intake_ == nullptr) return;
  if (lent_) return std::exchange(intake_, nullptr)->give_back_lent(bytes_);
  if (meter_ != nullptr) {
    meter_->bytes.fetch_sub(bytes_, std::memory_order_relaxed);
    meter_->requests.fetch_sub(1, std::memory_order_relaxed);
  }
  std::exchange(intake_, nullptr)->give_back(bytes_);
}

Intake::Intake(const NetOptions& options, ServerOptions server, Log log, Metrics& metrics)
    : options_(options),
      server_(std::move(server)),
      log_(std::move(log)),
      metrics_(metrics),
      pool_queue_(options.pool_queue_max) {
  bool any_blocks = false;
  for (const MethodInfo& info : kMethodTable) {
    for (const LaneHandlers& lane : server_.handlers) {
      Handler* handler = lane[static_cast<size_t>(info.service)];
      if (handler == nullptr) continue;
      times_[static_cast<size_t>(info.method)] =
          &metrics.histogram(fmt::format("rpc.{}.time", info.name), "ns");
      any_blocks |= handler->blocks(info.method);
    }
  }
  for (uint32_t i = 0; any_blocks && i < options_.pool_threads; ++i) {
    pool_.emplace_back(ThreadOptions{.name = fmt::format("pool-{}", i)}, [this] {
      for (auto task = pool_queue_.pop(Deadline::never()); task.ok();
           task = pool_queue_.pop(Deadline::never())) {
        (*task)();
      }
    });
  }
}

Intake::~Intake() { stop_pool(); }

Ticket Intake::admit(size_t bytes, std::shared_ptr<Meter> meter) {
  if (!take_room(bytes, meter.get())) return Ticket();
  return Ticket(shared_from_this(), std::move(meter), bytes);
}

// A refusal leaves no trace: what is added and taken away again would be seen by another admit(),
// refused for it, and would look like room to those who wait. Only one whose bytes were taken
// between two looks gives its request back, so each of these is paid for by an admission.
bool Intake::take_room(size_t bytes, const Meter* meter) {
  size_t used = bytes_.load(std::memory_order_seq_cst);
  if (!fits(used, bytes, meter)) return false;
  uint64_t requests = requests_.load(std::memory_order_seq_cst);
  do {
    if (requests >= options_.server_requests_max) return false;
  } while (!requests_.compare_exchange_weak(requests, requests + 1, std::memory_order_seq_cst));
  while (!bytes_.compare_exchange_weak(used, used + bytes, std::memory_order_seq_cst)) {
    if (!fits(used, bytes, meter)) {
      give_back(0);
      return false;
    }
  }
  return true;
}

// An idle server takes any legal message; a nearly full one none from those who hold a quarter of
// it already.
bool Intake::fits(size_t used, size_t bytes, const Meter* meter) const {
  if (used == 0) return true;
  const size_t limit = options_.server_bytes_max;
  const size_t held = meter == nullptr ? 0 : meter->bytes.load(std::memory_order_relaxed);
  const bool greedy = used + bytes > limit - limit / 4 && held > 0 && held + bytes > limit / 4;
  return used + bytes <= limit && !greedy;
}

Status Intake::over_limit() const {
  return resource_exhausted("server is full: {} requests (limit {}), {} bytes (limit {}) in flight",
                            in_flight(), options_.server_requests_max, bytes_in_flight(),
                            options_.server_bytes_max);
}

void Intake::on_room(Function<void() const> task) { on_room_.push_back(std::move(task)); }

void Intake::give_back(size_t bytes) {
  bytes_.fetch_sub(bytes, std::memory_order_seq_cst);
  if (requests_.fetch_sub(1, std::memory_order_seq_cst) == 1) tell_if_idle();
  if (waiters_.load(std::memory_order_seq_cst) && waiters_.exchange(false)) {
    for (const auto& task : on_room_) task();
  }
}

void Intake::give_back_lent(size_t bytes) {
  lent_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  if (lent_.fetch_sub(1, std::memory_order_seq_cst) == 1) tell_if_idle();
}

void Intake::tell_if_idle() {
  if (!stopping() || in_flight() > 0) return;
  MutexLock lock(idle_mutex_);
  idle_.notify_all();
}

void Intake::accept(Request request, Reply reply) {
  if (stopping()) return reply.fail(unavailable("server is stopping"));
  const MethodInfo& info = info_of(request.method);
  Handler* handler = server_.handlers[value(request.lane)][static_cast<size_t>(info.service)];
  if (handler == nullptr)
    return reply.fail(wrong_service(static_cast<uint16_t>(request.method), server_.role));
  if (const Status status = check_option(request.method, request.message.meta); !status.ok())
    return reply.send(status_reply(status));
  const TimePoint now = lane(request.lane)->clock().now();
  if (request.deadline.passed(now)) {
    return reply.fail(deadline_exceeded("{}: its time had passed before it was run", info.name));
  }
  if (!handler->blocks(request.method)) return run(*handler, std::move(request), std::move(reply));

  // The Reply is shared with the task, so that a full pool can still be answered properly.
  auto shared = std::make_shared<Reply>(std::move(reply));
  Task task = [this, handler, request = std::move(request), shared]() mutable {
    if (cut_.load(std::memory_order_acquire)) {
      return shared->fail(unavailable("server has stopped"));
    }
    if (shared->cancelled()) {
      return shared->fail(cancelled("the caller gave up before it was run"));
    }
    if (request.deadline.passed(lane(request.lane)->clock().now())) {
      return shared->fail(deadline_exceeded("{}: its time had passed before it was run",
                                            info_of(request.method).name));
    }
    run(*handler, std::move(request), std::move(*shared));
  };
  if (!pool_queue_.try_push(task).ok()) {
    shared->fail(resource_exhausted("{}: {} requests wait for a pool thread already", info.name,
                                    options_.pool_queue_max));
  }
}

void Intake::run(Handler& handler, Request request, Reply reply) {
  Histogram* times = times_[static_cast<size_t>(request.method)];
  const TimePoint start = lane(request.lane)->clock().now();
  const LaneId at = request.lane;
  handler.handle(std::move(request), std::move(reply));
  times->record(lane(at)->clock().now() - start);
}

void Intake::peer(LaneId at, const Peer& peer, bool came) {
  if (left_.load(std::memory_order_acquire)) return;
  for (Handler* handler : server_.handlers[value(at)]) {
    if (handler != nullptr) handler->on_peer(peer, came);
  }
}

bool Intake::wait_idle(Deadline deadline) {
  MutexLock lock(idle_mutex_);
  while (in_flight() > 0) {
    if (!idle_.wait(idle_mutex_, deadline)) return in_flight() == 0;
  }
  return true;
}

void Intake::stop_pool() {
  cut();
  pool_queue_.close();
  pool_.clear();
}

void Intake::leave_lanes() {
  for (const auto& lane : server_.lanes) {
    // Only a LoopLane has a thread that may be in a handler.
    if (dynamic_cast<LoopLane*>(lane.get()) == nullptr || lane->driven()) continue;
    auto left = std::make_shared<std::promise<void>>();
    std::future<void> done = left->get_future();
    // A lane that has stopped drops the task; the broken promise ends the wait.
    lane->post([left = std::move(left)] { left->set_value(); });
    done.wait();
  }
  left_.store(true, std::memory_order_release);
}

}  // namespace starling
