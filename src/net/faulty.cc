#include "net/faulty.h"

#include <map>
#include <vector>

#include "base/check.h"

namespace starling {
namespace {

// Calls of the client ("outer") are sent under numbers of our own ("inner"), so that one can be
// sent twice.
class FaultyChannel final : public Channel, public ChannelSink {
 public:
  FaultyChannel(Transport& transport, FaultOptions options, uint64_t number, const Target& target,
                std::shared_ptr<Lane> lane, ChannelSink& sink)
      : transport_(transport),
        options_(options),
        target_(target),
        lane_(std::move(lane)),
        sink_(sink),
        rng_(options.seed, number, 0) {}
  ~FaultyChannel() override {
    *alive_ = false;
    inner_.reset();
  }

  // Takes the place of the channel that was there, whose connection ends with it.
  Status open() {
    STARLING_ASSIGN_OR_RETURN(inner_, transport_.open(target_, lane_, *this));
    return absl::OkStatus();
  }

  void start(CallId outer, Method method, Message message, Deadline deadline) override {
    Call& call = calls_[outer];
    if (happens(options_.cut)) return later(Duration::zero(), [this] { cut(); });
    if (happens(options_.drop_request)) return;
    const bool twice = happens(options_.repeat);
    Message copy = twice ? message : Message();
    send(outer, call, method, std::move(message), deadline);
    if (twice) send(outer, call, method, std::move(copy), deadline);
  }

  void cancel(CallId outer) override {
    auto it = calls_.find(outer);
    if (it == calls_.end()) return;
    const std::vector<CallId> inner = std::move(it->second.inner);
    calls_.erase(it);
    for (const CallId id : inner) {
      if (outer_of_.erase(id) > 0) inner_->cancel(id);
    }
  }

  Status trouble() const override { return inner_->trouble(); }

  void finished(CallId inner, StatusOr<Message> result) override {
    auto it = outer_of_.find(inner);
    if (it == outer_of_.end()) return;
    const CallId outer = it->second;
    outer_of_.erase(it);
    // Unavailable is no reply: the other end has gone, and nothing is on its way that could be
    // lost.
    const bool answered = result.status().code() != StatusCode::kUnavailable;
    if (answered && happens(options_.drop_reply)) return;
    const Duration delay = draw_delay();
    if (delay == Duration::zero()) return end(outer, std::move(result));
    later(delay,
          [this, outer, result = std::move(result)]() mutable { end(outer, std::move(result)); });
  }

 private:
  struct Call {
    std::vector<CallId> inner;
  };

  bool happens(double rate) { return rate > 0 && rng_.uniform() < rate; }
  Duration draw_delay() {
    if (!happens(options_.delay)) return Duration::zero();
    return Duration(
        1 + static_cast<int64_t>(rng_.below(static_cast<uint64_t>(options_.delay_max.count()))));
  }

  void later(Duration delay, Task task) {
    lane_->call_at(lane_->clock().now() + delay,
                   [alive = alive_, task = std::move(task)]() mutable {
                     if (*alive) task();
                   });
  }

  void send(CallId outer, Call& call, Method method, Message message, Deadline deadline) {
    const auto inner = static_cast<CallId>(++ids_);
    call.inner.push_back(inner);
    outer_of_.emplace(inner, outer);
    const Duration delay = draw_delay();
    if (delay == Duration::zero())
      return inner_->start(inner, method, std::move(message), deadline);
    later(delay, [this, inner, method, message = std::move(message), deadline]() mutable {
      if (outer_of_.contains(inner)) inner_->start(inner, method, std::move(message), deadline);
    });
  }

  void end(CallId outer, StatusOr<Message> result) {
    if (!calls_.contains(outer)) return;
    cancel(outer);
    sink_.finished(outer, std::move(result));
  }

  void cut() {
    std::vector<CallId> all;
    all.reserve(calls_.size());
    for (const auto& [outer, call] : calls_) all.push_back(outer);
    // First, so that a caller that tries again inside of its end finds the new one.
    const Status opened = open();
    STARLING_CHECK(opened.ok(), "a channel that could be opened once can be opened again");
    const auto alive = alive_;
    const Status why = unavailable("{}: the connection was cut on purpose", target_.to_string());
    for (const CallId outer : all) {
      end(outer, why);
      if (!*alive) return;  // the end of a call may be the end of the channel
    }
  }

  Transport& transport_;
  const FaultOptions options_;
  const Target target_;
  const std::shared_ptr<Lane> lane_;
  ChannelSink& sink_;
  std::unique_ptr<Channel> inner_;
  Rng rng_;
  uint64_t ids_ = 0;
  std::map<CallId, Call> calls_;
  std::map<CallId, CallId> outer_of_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace

FaultyTransport::FaultyTransport(std::unique_ptr<Transport> inner, FaultOptions options)
    : inner_(std::move(inner)), options_(options) {}

StatusOr<std::unique_ptr<Listener>> FaultyTransport::listen(const Address& address,
                                                            std::shared_ptr<Intake> intake) {
  return inner_->listen(address, std::move(intake));
}

StatusOr<std::unique_ptr<Channel>> FaultyTransport::open(const Target& target,
                                                         std::shared_ptr<Lane> lane,
                                                         ChannelSink& sink) {
  auto channel = std::make_unique<FaultyChannel>(*inner_, options_,
                                                 channels_.fetch_add(1, std::memory_order_relaxed),
                                                 target, std::move(lane), sink);
  STARLING_RETURN_IF_ERROR(channel->open());
  return channel;
}

bool FaultyTransport::ordered() const {
  return inner_->ordered() && options_.delay == 0 && options_.repeat == 0;
}

}  // namespace starling
