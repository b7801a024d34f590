#include "net/client.h"

#include <algorithm>
#include <vector>

namespace starling {

// All of it lives on the lane; tasks posted from other threads keep it alive until they have run.
class Client::Core : public ChannelSink, public std::enable_shared_from_this<Client::Core> {
 public:
  Core(Network& network, std::shared_ptr<Lane> lane) : network_(network), lane_(std::move(lane)) {}

  CallId next_id() { return static_cast<CallId>(ids_.fetch_add(1, std::memory_order_relaxed) + 1); }

  void start(CallId id, const Target& target, Method method, Message message, Deadline deadline,
             Done done) {
    StatusOr<Route*> route = admit(target, method, deadline);
    if (!route.ok()) {
      // Later, so that a caller never finds its callback run before call() has returned.
      return lane_->post(
          [done = std::move(done), status = route.status()]() mutable { done(status); });
    }
    ++(*route)->in_flight;
    (*route)->last_call = ++calls_;
    Open open{.route = *route, .method = method, .done = std::move(done)};
    if (!deadline.is_never()) {
      open.timer = lane_->call_at(deadline.at(), [this, id] { expire(id); });
    }
    open_.emplace(id, std::move(open));
    (*route)->channel->start(id, method, std::move(message), deadline);
  }

  void finished(CallId id, StatusOr<Message> result) override {
    auto it = open_.find(id);
    if (it == open_.end()) return;
    Open open = std::move(it->second);
    open_.erase(it);
    --open.route->in_flight;
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
  };

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

CallId Client::call(const Target& target, Method method, Message message, Deadline deadline,
                    Done done) {
  const CallId id = core_->next_id();
  if (lane_->here()) {
    core_->start(id, target, method, std::move(message), deadline, std::move(done));
  } else {
    lane_->post([core = core_, id, target, method, message = std::move(message), deadline,
                 done = std::move(done)]() mutable {
      core->start(id, target, method, std::move(message), deadline, std::move(done));
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
