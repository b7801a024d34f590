#include "net/client.h"

#include <algorithm>
#include <vector>

namespace starling {

// All of it lives on the lane; tasks posted from other threads keep it alive until they have run.
class Client::Core : public ChannelSink, public std::enable_shared_from_this<Client::Core> {
 public:
  Core(Network& network, std::shared_ptr<Lane> lane) : network_(network), lane_(std::move(lane)) {}

  // What is asked of a server, and what `reserve` took for it.
  struct Call {
    Method method;
    Message message;
    Deadline deadline;
    Done done;
    size_t bytes;
  };

  CallId next_id() { return static_cast<CallId>(ids_.fetch_add(1, std::memory_order_relaxed) + 1); }

  // Takes room for a request of so many bytes until it has ended. From any thread: what waits for
  // the lane counts.
  Status reserve(size_t bytes) {
    const size_t limit = network_.options().client_bytes_max;
    const size_t before = bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (before <= limit && bytes <= limit - before) return absl::OkStatus();
    release(bytes);
    return resource_exhausted(
        "the client has requests of {} bytes in flight; {} more are above client_bytes_max ({})",
        before, bytes, limit);
  }

  // Ends a call that was never started. Later, so that a caller never finds its callback run before
  // call() has returned.
  void refuse(Done done, Status status) {
    lane_->post([done = std::move(done), status = std::move(status)]() mutable { done(status); });
  }

  void start(CallId id, const Target& target, Call call) {
    StatusOr<Route*> route = admit(target, call.method, call.deadline);
    if (!route.ok()) {
      release(call.bytes);
      return refuse(std::move(call.done), route.status());
    }
    ++(*route)->in_flight;
    (*route)->last_call = ++calls_;
    Open open{
        .route = *route, .method = call.method, .done = std::move(call.done), .bytes = call.bytes};
    if (!call.deadline.is_never()) {
      open.timer = lane_->call_at(call.deadline.at(), [this, id] { expire(id); });
    }
    open_.emplace(id, std::move(open));
    (*route)->channel->start(id, call.method, std::move(call.message), call.deadline);
  }

  void finished(CallId id, StatusOr<Message> result) override {
    auto it = open_.find(id);
    if (it == open_.end()) return;
    Open open = std::move(it->second);
    open_.erase(it);
    --open.route->in_flight;
    release(open.bytes);
    lane_->cancel(open.timer);
    open.done(std::move(result));
  }

  void cancel(CallId id) {
    if (auto it = open_.find(id); it != open_.end()) {
      it->second.route->channel->cancel(id);
      finished(id, cancelled("{}: cancelled by the caller", name_of(it->second)));
    }
  }

  void close() {
    closed_ = true;
    // In the order in which they were made: a simulation must not depend on the order of a hash
    // table.
    std::vector<CallId> ids;
    for (const auto& [id, open] : open_) ids.push_back(id);
    std::sort(ids.begin(), ids.end());
    for (const CallId id : ids) cancel(id);
    routes_.clear();
    retired_.clear();
  }

 private:
  struct Route {
    std::unique_ptr<Channel> channel;
    uint32_t in_flight = 0;
    uint64_t last_call = 0;  // by the count of calls
    std::string name;
  };
  struct Open {
    Route* route;
    Method method;
    Done done;
    TimerId timer{};
    size_t bytes = 0;
  };

  void release(size_t bytes) { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

  static std::string name_of(const Open& open) {
    return fmt::format("{} {}", open.route->name, info_of(open.method).name);
  }

  StatusOr<Route*> admit(const Target& target, Method method, Deadline deadline) {
    if (closed_) return cancelled("the client is closed");
    if (deadline.passed(lane_->clock().now())) {
      return deadline_exceeded("{} {}: its time had passed before it was sent", target.to_string(),
                               info_of(method).name);
    }
    STARLING_ASSIGN_OR_RETURN(Route * route, route_to(target));
    if (route->in_flight >= network_.options().connection_requests_max) {
      return resource_exhausted("{}: {} requests are in flight already", target.to_string(),
                                route->in_flight);
    }
    return route;
  }

  StatusOr<Route*> route_to(const Target& target) {
    if (auto it = routes_.find(target); it != routes_.end()) return &it->second;
    STARLING_ASSIGN_OR_RETURN(Transport * transport, network_.transport(target.address.protocol));
    STARLING_RETURN_IF_ERROR(make_room());
    STARLING_ASSIGN_OR_RETURN(auto channel, transport->open(target, lane_, *this));
    Route& route = routes_[target];
    route.channel = std::move(channel);
    route.name = target.to_string();
    return &route;
  }

  // Lets go of the channel that has been idle longest when there are as many as may be. Linear: a
  // new connection costs more.
  Status make_room() {
    const size_t limit = network_.options().client_channels_max;
    if (routes_.size() < limit) return absl::OkStatus();
    auto oldest = routes_.end();
    for (auto it = routes_.begin(); it != routes_.end(); ++it) {
      if (it->second.in_flight > 0) continue;
      if (oldest == routes_.end() || it->second.last_call < oldest->second.last_call) oldest = it;
    }
    if (oldest == routes_.end()) {
      return resource_exhausted("{} channels have calls in flight already, the limit is {}",
                                routes_.size(), limit);
    }
    // Later: the call that needs the room may be made inside of an end that this channel tells.
    retired_.push_back(std::move(oldest->second.channel));
    routes_.erase(oldest);
    lane_->post([core = shared_from_this()] { core->retired_.clear(); });
    return absl::OkStatus();
  }

  void expire(CallId id) {
    auto it = open_.find(id);
    if (it == open_.end()) return;
    it->second.timer = TimerId{};
    const Status trouble = it->second.route->channel->trouble();
    it->second.route->channel->cancel(id);
    std::string why = trouble.ok()
                          ? "no answer by the deadline"
                          : fmt::format("no answer by the deadline ({})", message_of(trouble));
    finished(id, deadline_exceeded("{}: {}", name_of(it->second), why));
  }

  Network& network_;
  const std::shared_ptr<Lane> lane_;
  std::atomic<uint64_t> ids_{0};
  std::atomic<size_t> bytes_{0};  // of all requests that have not ended

  // The lane's thread only.
  bool closed_ = false;
  uint64_t calls_ = 0;
  std::map<Target, Route> routes_;
  std::vector<std::unique_ptr<Channel>> retired_;
  absl::flat_hash_map<CallId, Open> open_;
};

Client::Client(Network& network, std::shared_ptr<Lane> lane)
    : lane_(std::move(lane)), core_(std::make_shared<Core>(network, lane_)) {}

Client::Client(Network& network) : Client(network, network.background_lane()) {}

Client::~Client() {
  if (lane_->here()) {
    core_->close();
    return;
  }
  // Channels belong to the lane, so they are closed there; waiting keeps the network alive until it
  // is done.
  std::promise<void> closed;
  std::future<void> done = closed.get_future();
  lane_->post([core = core_, closed = std::move(closed)]() mutable {
    core->close();
    core.reset();
    closed.set_value();
  });
  // A stopped lane drops the task, which breaks the promise: the channels then die with the core.
  done.wait();
}

namespace {

// What a client keeps of a request until it has ended.
size_t bytes_of(const Message& message) {
  constexpr size_t kCallBytes = 256;  // the call itself, so that many empty ones count too
  size_t bytes = kCallBytes + message.meta.ByteSizeLong();
  for (const Tensor& tensor : message.tensors) bytes += tensor.bytes();
  return bytes;
}

}  // namespace

CallId Client::call(const Target& target, Method method, Message message, Deadline deadline,
                    Done done) {
  const CallId id = core_->next_id();
  const size_t bytes = bytes_of(message);
  if (Status room = core_->reserve(bytes); !room.ok()) {
    core_->refuse(std::move(done), std::move(room));
    return id;
  }
  Core::Call call{method, std::move(message), deadline, std::move(done), bytes};
  if (lane_->here()) {
    core_->start(id, target, std::move(call));
  } else {
    lane_->post([core = core_, id, target, call = std::move(call)]() mutable {
      core->start(id, target, std::move(call));
    });
  }
  return id;
}

namespace {

// Answers the future even when a stopped lane drops the call unrun.
class Promised {
 public:
  Promised() = default;
  Promised(Promised&& other) noexcept
      : promise_(std::move(other.promise_)), open_(std::exchange(other.open_, false)) {}
  ~Promised() {
    if (open_) promise_.set_value(cancelled("the client's lane has stopped"));
  }
  std::future<StatusOr<Message>> future() { return promise_.get_future(); }
  void operator()(StatusOr<Message> result) {
    open_ = false;
    promise_.set_value(std::move(result));
  }

 private:
  std::promise<StatusOr<Message>> promise_;
  bool open_ = true;
};

}  // namespace

std::future<StatusOr<Message>> Client::call_future(const Target& target, Method method,
                                                   Message message, Deadline deadline) {
  Promised promised;
  std::future<StatusOr<Message>> future = promised.future();
  call(target, method, std::move(message), deadline, std::move(promised));
  return future;
}

StatusOr<Message> Client::call_wait(const Target& target, Method method, Message message,
                                    Deadline deadline) {
  if (!lane_->here()) return call_future(target, method, std::move(message), deadline).get();
  STARLING_CHECK(lane_->driven(), "a blocking call on a lane's own thread would wait for itself");
  StatusOr<Message> out = internal_error("unanswered");
  bool ended = false;
  call(target, method, std::move(message), deadline, [&](StatusOr<Message> result) {
    out = std::move(result);
    ended = true;
  });
  lane_->run_until([&] { return ended; }, Deadline::never());
  return out;
}

void Client::cancel(CallId id) {
  if (lane_->here()) return core_->cancel(id);
  lane_->post([core = core_, id] { core->cancel(id); });
}

}  // namespace starling
