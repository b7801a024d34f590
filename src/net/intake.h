// Intake is the inside of a server, common to all transports: lanes, handlers, limits and counting.
//
// Uses: base, wire. Threads: accept() and peer() on the request's lane; the rest from any.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "base/gate.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/queue.h"
#include "base/thread.h"
#include "net/server.h"

namespace starling {

// What one connection holds of the server's limits.
struct Meter {
  std::atomic<size_t> bytes{0};
  std::atomic<uint32_t> requests{0};
};

// What one request holds of the server's limits, from its arrival until its reply has left.
class Ticket {
 public:
  Ticket() = default;
  Ticket(Ticket&& other) noexcept = default;
  Ticket& operator=(Ticket&& other) noexcept;
  ~Ticket() { give_back(); }
  // Adds bytes, such as those of the reply. Never refused: the reply exists already.
  void grow(size_t bytes);
  // Counts the request as answered, its bytes as lent: a peer that is held back at the limits could
  // not give back what it was lent, since its word for that stands behind what it may not send yet.
  // False when a quarter of the server's bytes is lent already; nothing changes then.
  bool lend();
  size_t bytes() const { return bytes_; }
  explicit operator bool() const { return intake_ != nullptr; }

 private:
  friend class Intake;
  Ticket(std::shared_ptr<Intake> intake, std::shared_ptr<Meter> meter, size_t bytes);
  void give_back();

  std::shared_ptr<Intake> intake_;
  std::shared_ptr<Meter> meter_;
  size_t bytes_ = 0;
  bool lent_ = false;
};

class Intake : public std::enable_shared_from_this<Intake> {
 public:
  Intake(const NetOptions& options, ServerOptions server, Log log, Metrics& metrics);
  ~Intake();

  uint32_t lanes() const { return static_cast<uint32_t>(server_.lanes.size()); }
  const std::shared_ptr<Lane>& lane(LaneId id) const { return server_.lanes[value(id)]; }
  const NetOptions& options() const { return options_; }
  Service role() const { return server_.role; }
  const Log& log() const { return log_; }
  Metrics& metrics() { return metrics_; }

  // An empty Ticket, and nothing else, when the server is over its limits. `meter` counts what the
  // same connection holds: as the limit comes near, connections that hold more than their share are
  // turned away first. Null: nobody is known to hold anything.
  Ticket admit(size_t bytes, std::shared_ptr<Meter> meter = nullptr);
  // The status that a refused caller gets.
  Status over_limit() const;
  // Each `task` is called (from any thread) when something was given back after a wait_for_room().
  // Add before the first request. A waiter tries once more after wait_for_room(): the room may have
  // come in between.
  void on_room(Function<void() const> task);
  void wait_for_room() { waiters_.store(true, std::memory_order_seq_cst); }

  // Runs the handler, or answers at once: Unavailable while stopping, Unimplemented,
  // DeadlineExceeded when the time has passed, ResourceExhausted when the pool is full.
  void accept(Request request, Reply reply);
  void peer(LaneId lane, const Peer& peer, bool came);
  uint64_t next_connection() { return connections_.fetch_add(1, std::memory_order_relaxed) + 1; }

  void refuse_new() { stopping_.store(true, std::memory_order_release); }
  bool stopping() const { return stopping_.load(std::memory_order_acquire); }
  // True when no request is in flight any more.
  bool wait_idle(Deadline deadline);
  uint64_t in_flight() const {
    return requests_.load(std::memory_order_relaxed) + lent_.load(std::memory_order_relaxed);
  }
  size_t bytes_in_flight() const { return bytes_.load(std::memory_order_relaxed); }
  // From now on the pool throws away what still waits for it.
  void cut() { cut_.store(true, std::memory_order_release); }
  // Not from one of its threads.
  void stop_pool();
  // Waits until every lane with a thread has done what it was doing: no handler runs after it, nor
  // when a driven lane is turned again. Not from one of the lanes, but for one that the calling
  // thread drives.
  void leave_lanes();

 private:
  friend class Ticket;
  bool take_room(size_t bytes, const Meter* meter);
  bool fits(size_t used, size_t bytes, const Meter* meter) const;
  void give_back(size_t bytes);
  void give_back_lent(size_t bytes);
  void tell_if_idle();
  void run(Handler& handler, Request request, Reply reply);

  // Set once.
  const NetOptions options_;
  ServerOptions server_;
  const Log log_;
  Metrics& metrics_;
  std::array<Histogram*, kMethods> times_{};
  std::vector<Function<void() const>> on_room_;

  // Any thread.
  std::atomic<uint64_t> requests_{0};
  std::atomic<size_t> bytes_{0};
  std::atomic<uint64_t> lent_{0};
  std::atomic<size_t> lent_bytes_{0};
  std::atomic<uint64_t> connections_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> waiters_{false};
  std::atomic<bool> cut_{false};
  std::atomic<bool> left_{false};  // handlers may be gone
  Queue<Task> pool_queue_;
  Mutex idle_mutex_;
  CondVar idle_;

  std::vector<Thread> pool_;
};

}  // namespace starling
