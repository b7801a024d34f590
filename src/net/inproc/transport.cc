#include "net/inproc/transport.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>

#include "base/mutex.h"
#include "net/backoff.h"

namespace starling {
namespace {

class InprocChannel;

// What tasks hold of a channel that may be gone when they run. `channel` is touched on `lane` only.
// The lane is not owned: a task that runs on it would else be the last to let go of it, and no
// thread can join itself.
struct ChannelHandle {
  std::weak_ptr<Lane> lane;
  InprocChannel* channel = nullptr;
};

// One listening server and the channels that are connected to it.
struct InprocServer {
  std::shared_ptr<Intake> intake;
  Mutex mutex;
  bool closed ABSL_GUARDED_BY(mutex) = false;
  std::vector<std::shared_ptr<ChannelHandle>> channels ABSL_GUARDED_BY(mutex);

  // False when the server has closed meanwhile.
  bool connect(std::shared_ptr<ChannelHandle> handle) {
    MutexLock lock(mutex);
    if (closed) return false;
    channels.push_back(std::move(handle));
    return true;
  }
  void disconnect(const std::shared_ptr<ChannelHandle>& handle) {
    MutexLock lock(mutex);
    std::erase(channels, handle);
  }
  // Tells the lane's handlers, unless the server has closed meanwhile: they may be gone then.
  void tell(LaneId at, const std::shared_ptr<const Peer>& peer, bool came) {
    {
      MutexLock lock(mutex);
      if (closed) return;
    }
    intake->peer(at, *peer, came);
  }
};

// The task that tells. It does not keep the server, which has the lane: see ChannelHandle.
Task told(const std::weak_ptr<InprocServer>& server, LaneId at, std::shared_ptr<const Peer> peer,
          bool came) {
  return [server, at, peer = std::move(peer), came] {
    if (const auto there = server.lock()) there->tell(at, peer, came);
  };
}

size_t message_bytes(const Message& message) {
  size_t bytes = message.meta.ByteSizeLong();
  for (const Tensor& tensor : message.tensors) bytes += tensor.bytes();
  return bytes;
}

}  // namespace

struct InprocRegistry {
  // Seeds the channels' back-off: simulations must not depend on addresses in memory.
  std::atomic<uint64_t> channels{0};
  Mutex mutex;
  std::map<std::string, std::shared_ptr<InprocServer>> servers ABSL_GUARDED_BY(mutex);

  std::shared_ptr<InprocServer> find(const std::string& name) {
    MutexLock lock(mutex);
    auto it = servers.find(name);
    return it == servers.end() ? nullptr : it->second;
  }
};

namespace {

class InprocChannel final : public Channel {
 public:
  InprocChannel(const Target& target, std::shared_ptr<Lane> lane, ChannelSink& sink,
                std::shared_ptr<InprocRegistry> registry)
      : target_(target),
        lane_(std::move(lane)),
        sink_(sink),
        registry_(std::move(registry)),
        backoff_(milliseconds(1), milliseconds(100), registry_->channels.fetch_add(1)) {}

  ~InprocChannel() override {
    *alive_ = false;
    lane_->cancel(retry_);
    disconnect();
  }

  void start(CallId id, Method method, Message message, Deadline deadline) override {
    waiting_.push_back({id, method, std::move(message), deadline});
    send_waiting();
  }

  void cancel(CallId id) override {
    if (auto it = in_flight_.find(id); it != in_flight_.end()) {
      if (auto sink = it->second.lock()) sink->cancelled.store(true, std::memory_order_relaxed);
      in_flight_.erase(it);
    }
    std::erase_if(waiting_, [id](const Waiting& w) { return w.id == id; });
  }

  Status trouble() const override {
    if (server_ != nullptr) return absl::OkStatus();
    return unavailable("no server named {} in this process", target_.address.host);
  }

  void finished(CallId id, StatusOr<Message> result) {
    if (in_flight_.erase(id) > 0) sink_.finished(id, std::move(result));
  }

  void server_gone() {
    auto lost = std::exchange(in_flight_, {});
    disconnect();
    const auto alive = alive_;
    const Status why = unavailable("{}: the server has stopped", target_.to_string());
    for (const auto& [id, sink] : lost) {
      sink_.finished(id, why);
      if (!*alive) return;
    }
    send_waiting();
  }

 private:
  class Sink;
  struct Waiting {
    CallId id;
    Method method;
    Message message;
    Deadline deadline;
  };

  void send_waiting() {
    while (!waiting_.empty()) {
      if (!connect()) return retry_later();
      Waiting next = std::move(waiting_.front());
      waiting_.pop_front();
      send(std::move(next));
    }
  }
  void send(Waiting call);
  bool connect();
  void disconnect();
  void retry_later();
  void fail_later(CallId id, const Status& status) {
    in_flight_.emplace(id, std::weak_ptr<ReplySink>());
    lane_->post([handle = handle_, id, status] {
      if (handle->channel != nullptr) handle->channel->finished(id, status);
    });
  }

  const Target target_;
  const std::shared_ptr<Lane> lane_;
  ChannelSink& sink_;
  const std::shared_ptr<InprocRegistry> registry_;
  std::shared_ptr<InprocServer> server_;
  std::shared_ptr<ChannelHandle> handle_;
  std::shared_ptr<const Peer> peer_;
  std::shared_ptr<Meter> meter_;  // what this connection holds of the server's limits
  std::deque<Waiting> waiting_;   // bounded by the client's limit on calls in flight
  std::map<CallId, std::weak_ptr<ReplySink>> in_flight_;
  Backoff backoff_;
  TimerId retry_{};
  // The end of a call may be the end of the channel.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

class InprocChannel::Sink final : public ReplySink {
 public:
  Sink(std::shared_ptr<ChannelHandle> handle, CallId id, Ticket ticket)
      : handle_(std::move(handle)), id_(id), ticket_(std::move(ticket)) {}

  void finish(const Status& status, Message message) override {
    if (ticket_) ticket_.grow(message_bytes(message));
    StatusOr<Message> result =
        status.ok() ? StatusOr<Message>(std::move(message)) : StatusOr<Message>(status);
    // The ticket is held until the caller has its answer: replies in flight count.
    auto lane = handle_->lane.lock();
    if (lane == nullptr) return;
    lane->post([handle = handle_, id = id_, result = std::move(result),
                ticket = std::move(ticket_)]() mutable {
      if (handle->channel != nullptr) handle->channel->finished(id, std::move(result));
    });
  }

 private:
  const std::shared_ptr<ChannelHandle> handle_;
  const CallId id_;
  Ticket ticket_;
};

bool InprocChannel::connect() {
  if (server_ != nullptr) return true;
  auto server = registry_->find(target_.address.host);
  if (server == nullptr) return false;
  auto handle = std::make_shared<ChannelHandle>(ChannelHandle{lane_, this});
  if (!server->connect(handle)) return false;
  server_ = std::move(server);
  handle_ = std::move(handle);
  backoff_.reset();
  meter_ = std::make_shared<Meter>();
  Intake& intake = *server_->intake;
  peer_ = std::make_shared<Peer>(Peer{.protocol = Protocol::kInproc,
                                      .address = "inproc",
                                      .identity = intake.options().identity,
                                      .connection = intake.next_connection()});
  if (value(target_.lane) < intake.lanes()) {
    intake.lane(target_.lane)->post(told(server_, target_.lane, peer_, true));
  }
  return true;
}

void InprocChannel::disconnect() {
  if (server_ == nullptr) return;
  handle_->channel = nullptr;
  server_->disconnect(handle_);
  if (value(target_.lane) < server_->intake->lanes()) {
    server_->intake->lane(target_.lane)->post(told(server_, target_.lane, peer_, false));
  }
  server_.reset();
}

void InprocChannel::retry_later() {
  lane_->cancel(retry_);
  retry_ = lane_->call_at(lane_->clock().now() + backoff_.next(), [this] {
    retry_ = TimerId{};
    send_waiting();
  });
}

void InprocChannel::send(Waiting call) {
  Intake& intake = *server_->intake;
  if (value(target_.lane) >= intake.lanes()) {
    return fail_later(call.id, invalid_argument("{}: the server has {} lanes", target_.to_string(),
                                                intake.lanes()));
  }
  const size_t bytes = message_bytes(call.message);
  if (bytes > intake.options().message_bytes_max) {
    return fail_later(call.id, resource_exhausted(
                                   "{}: message of {} bytes is above the limit of {}",
                                   target_.to_string(), bytes, intake.options().message_bytes_max));
  }
  const size_t held = meter_->bytes.load(std::memory_order_relaxed);
  if (held > 0 && held + bytes > intake.options().connection_bytes_max) {
    return fail_later(
        call.id,
        resource_exhausted("{}: {} bytes are in flight already, the limit is {}",
                           target_.to_string(), held, intake.options().connection_bytes_max));
  }
  Ticket ticket = intake.admit(bytes, meter_);
  if (!ticket) return fail_later(call.id, intake.over_limit());
  auto sink = std::make_shared<Sink>(handle_, call.id, std::move(ticket));
  in_flight_.emplace(call.id, sink);
  Request request{.method = call.method,
                  .lane = target_.lane,
                  .message = std::move(call.message),
                  .deadline = call.deadline,
                  .peer = peer_};
  intake.lane(target_.lane)
      ->post([intake = server_->intake, request = std::move(request),
              reply = Reply(std::move(sink))]() mutable {
        if (reply.cancelled()) return reply.fail(cancelled("the caller gave up before it was run"));
        intake->accept(std::move(request), std::move(reply));
      });
}

class InprocListener final : public Listener {
 public:
  InprocListener(Address address, std::shared_ptr<InprocServer> server,
                 std::shared_ptr<InprocRegistry> registry)
      : address_(std::move(address)), server_(std::move(server)), registry_(std::move(registry)) {}
  ~InprocListener() override { close(); }

  Address address() const override { return address_; }

  void refuse_new() override {
    MutexLock lock(registry_->mutex);
    auto it = registry_->servers.find(address_.host);
    if (it != registry_->servers.end() && it->second == server_) registry_->servers.erase(it);
  }

  void close() override {
    refuse_new();
    std::vector<std::shared_ptr<ChannelHandle>> channels;
    {
      MutexLock lock(server_->mutex);
      server_->closed = true;
      channels.swap(server_->channels);
    }
    for (const auto& handle : channels) {
      auto lane = handle->lane.lock();
      if (lane == nullptr) continue;
      lane->post([handle] {
        if (handle->channel != nullptr) handle->channel->server_gone();
      });
    }
  }

 private:
  const Address address_;
  const std::shared_ptr<InprocServer> server_;
  const std::shared_ptr<InprocRegistry> registry_;
};

}  // namespace

InprocTransport::InprocTransport() : registry_(std::make_shared<InprocRegistry>()) {}
InprocTransport::~InprocTransport() = default;

StatusOr<std::unique_ptr<Listener>> InprocTransport::listen(const Address& address,
                                                            std::shared_ptr<Intake> intake) {
  auto server = std::make_shared<InprocServer>();
  server->intake = std::move(intake);
  MutexLock lock(registry_->mutex);
  if (!registry_->servers.emplace(address.host, server).second) {
    return already_exists("{}: a server of that name is listening", address.to_string());
  }
  return std::make_unique<InprocListener>(address, std::move(server), registry_);
}

StatusOr<std::unique_ptr<Channel>> InprocTransport::open(const Target& target,
                                                         std::shared_ptr<Lane> lane,
                                                         ChannelSink& sink) {
  return std::make_unique<InprocChannel>(target, std::move(lane), sink, registry_);
}

}  // namespace starling
