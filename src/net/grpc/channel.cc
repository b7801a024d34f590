#include "net/grpc/channel.h"

#include <arpa/inet.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "net/grpc/convert.h"
#include "net/grpc/safety.h"
#include "net/grpc/tuning.h"

namespace starling {
namespace {

// No server has it. A call of it that does not wait for a connection tells why there is none.
constexpr char kProbePath[] = "/starling.v1.Net/Probe";

// A server must give up before its caller does. It counts what is left from the arrival of a
// request, and gRPC rounds it up to milliseconds, so it is told a little less.
constexpr Duration kHeadStart = milliseconds(2);

Deadline before(Deadline deadline, TimePoint now) {
  if (deadline.is_never()) return deadline;
  return Deadline(deadline.at() - std::min<Duration>(kHeadStart, deadline.left(now) / 10));
}

std::string uri_of(const Address& address) {
  in_addr v4;
  if (inet_pton(AF_INET, address.host.c_str(), &v4) == 1) {
    return fmt::format("ipv4:{}:{}", address.host, address.port);
  }
  if (address.host.find(':') != std::string::npos) {
    return fmt::format("ipv6:%5B{}%5D:{}", address.host, address.port);
  }
  return fmt::format("dns:///{}:{}", address.host, address.port);
}

std::string_view state_name(grpc_connectivity_state state) {
  switch (state) {
    case GRPC_CHANNEL_IDLE:
      return "not connected";
    case GRPC_CHANNEL_CONNECTING:
      return "connecting";
    case GRPC_CHANNEL_READY:
      return "connected";
    case GRPC_CHANNEL_TRANSIENT_FAILURE:
      return "cannot connect";
    case GRPC_CHANNEL_SHUTDOWN:
      return "closed";
  }
  return "in an unknown state";
}

}  // namespace

StatusOr<std::shared_ptr<GrpcClients>> GrpcClients::start(const NetOptions& options,
                                                          BufferPool& pool) {
  STARLING_ASSIGN_OR_RETURN(auto credentials, client_credentials(options));
  return std::shared_ptr<GrpcClients>(new GrpcClients(options, pool, std::move(credentials)));
}

GrpcClients::GrpcClients(const NetOptions& options, BufferPool& pool,
                         std::shared_ptr<grpc::ChannelCredentials> credentials)
    : options_(options),
      pool_(pool),
      credentials_(std::move(credentials)),
      poller_(queue_, "grpc-client", poller_threads()) {}

GrpcClients::~GrpcClients() {
  // They were all cancelled, so gRPC ends each of them at once.
  calls_.close(Deadline::never());
  poller_.stop();
}

// What a call on another thread holds of a channel that may be gone. `channel` is the lane's.
struct GrpcChannel::Handle {
  Mutex mutex;
  std::shared_ptr<Lane> lane ABSL_GUARDED_BY(mutex);
  GrpcChannel* channel = nullptr;

  // Under the lock, so that the lane is never let go of on a thread of ours.
  void post(Task task) {
    MutexLock lock(mutex);
    if (lane != nullptr) lane->post(std::move(task));
  }
};

class GrpcChannel::Call {
 public:
  Call(GrpcChannel& channel, CallId id, std::string_view name)
      : clients_(*channel.clients_),
        channel_(channel.channel_),
        handle_(channel.handle_),
        id_(id),
        name_(fmt::format("{} {}", channel.target_.to_string(), name)),
        ended_([this](bool) { on_ended(); }),
        inside_(clients_.calls_.enter()) {
    context_.set_wait_for_ready(true);
    const NetOptions& options = clients_.options_;
    if (!options.token.empty()) context_.AddMetadata(kTokenKey, options.token);
    const Identity& me = options.identity;
    if (me.role != 0 || me.node != 0 || me.incarnation != 0) {
      context_.AddMetadata(kIdentityKey, identity_text(me));
    }
  }

  grpc::ClientContext& context() { return context_; }

  // Keeps itself alive until the end.
  static void start(const std::shared_ptr<Call>& call, grpc::GenericStub& stub,
                    const std::string& path, const grpc::ByteBuffer& body) {
    call->self_ = call;
    call->reader_ = stub.PrepareUnaryCall(&call->context_, path, body, &call->clients_.queue_);
    call->reader_->StartCall();
    call->reader_->Finish(&call->reply_, &call->status_, call->clients_.poller_.arm(call->ended_));
  }

 private:
  void on_ended() {
    const std::shared_ptr<Call> self = std::move(self_);
    // The caller's own timer is about to end a call whose time has passed, and knows what to say.
    if (!expired()) {
      handle_->post([handle = handle_, id = id_, result = result()]() mutable {
        if (handle->channel != nullptr) handle->channel->finished(id, std::move(result));
      });
    }
    reply_.Clear();
    inside_ = Gate::Pass();
  }

  bool answered() const {
    const auto& trailers = context_.GetServerTrailingMetadata();
    return trailers.find(kAnsweredKey) != trailers.end();
  }
  bool expired() const {
    return status_.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && !answered();
  }

  StatusOr<Message> result() {
    if (status_.ok()) {
      StatusOr<Message> message = from_body(reply_, clients_.options_, clients_.pool_);
      if (message.ok()) return message;
      return with_context(message.status(), name_);
    }
    if (answered()) return from_grpc(status_);
    const Status status = with_context(from_grpc(status_), name_);
    // gRPC's names for a stream that the other end has dropped.
    const bool dropped = status_.error_code() == grpc::StatusCode::CANCELLED ||
                         (status_.error_code() == grpc::StatusCode::UNKNOWN &&
                          status_.error_message() == "Stream removed");
    return dropped ? Status(StatusCode::kUnavailable, status.message()) : status;
  }

  GrpcClients& clients_;
  // The context has it too, but lets go of it inside of gRPC, where the thread sanitizer does not
  // see the count: whoever is last must be one of ours.
  const std::shared_ptr<grpc::Channel> channel_;
  const std::shared_ptr<Handle> handle_;
  const CallId id_;
  const std::string name_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader_;
  grpc::ByteBuffer reply_;
  grpc::Status status_;
  Tag ended_;
  Gate::Pass inside_;
  std::shared_ptr<Call> self_;
};

GrpcChannel::GrpcChannel(const Target& target, std::shared_ptr<Lane> lane, ChannelSink& sink,
                         std::shared_ptr<GrpcClients> clients)
    : target_(target),
      lane_(std::move(lane)),
      sink_(sink),
      clients_(std::move(clients)),
      channel_(grpc::CreateCustomChannel(uri_of(target.address), clients_->credentials_,
                                         client_arguments(clients_->options_))),
      stub_(channel_),
      handle_(std::make_shared<Handle>()),
      backoff_(clients_->options_.backoff_min, clients_->options_.backoff_max,
               reinterpret_cast<uintptr_t>(this)) {
  handle_->channel = this;
  MutexLock lock(handle_->mutex);
  handle_->lane = lane_;
}

GrpcChannel::~GrpcChannel() {
  lane_->cancel(timer_);
  handle_->channel = nullptr;
  {
    MutexLock lock(handle_->mutex);
    handle_->lane.reset();
  }
  for (const auto& [id, call] : calls_) call->context().TryCancel();
  if (probe_ != nullptr) probe_->context().TryCancel();
}

void GrpcChannel::start(CallId id, Method method, Message message, Deadline deadline) {
  const MethodInfo& info = info_of(method);
  if (value(target_.lane) != message.meta.header().lane()) {
    message.meta.mutable_header()->set_lane(value(target_.lane));
  }
  const grpc::ByteBuffer body = to_body(message);
  const size_t limit = clients_->options_.message_bytes_max;
  if (const size_t bytes = body.Length(); bytes > limit) {
    return fail_later(id, resource_exhausted("{}: message of {} bytes is above the limit of {}",
                                             target_.to_string(), bytes, limit));
  }
  auto call = std::make_shared<Call>(*this, id, info.name);
  const TimePoint now = lane_->clock().now();
  call->context().set_deadline(to_grpc(before(deadline, now), now));
  calls_.emplace(id, call);
  Call::start(call, stub_, std::string(info.path), body);
  watch_connection();
}

void GrpcChannel::cancel(CallId id) {
  auto it = calls_.find(id);
  if (it == calls_.end()) return;
  if (it->second != nullptr) it->second->context().TryCancel();
  calls_.erase(it);
}

Status GrpcChannel::trouble() const {
  const grpc_connectivity_state state = channel_->GetState(false);
  if (state == GRPC_CHANNEL_READY) return absl::OkStatus();
  if (last_error_.empty()) return unavailable("{}: {}", target_.to_string(), state_name(state));
  return unavailable("{}: {}: {}", target_.to_string(), state_name(state), last_error_);
}

void GrpcChannel::finished(CallId id, StatusOr<Message> result) {
  if (id == CallId{}) {
    probe_.reset();
    last_error_ = message_of(result.status());
    return;
  }
  if (calls_.erase(id) > 0) sink_.finished(id, std::move(result));
}

void GrpcChannel::fail_later(CallId id, Status status) {
  calls_.emplace(id, nullptr);
  handle_->post([handle = handle_, id, status = std::move(status)] {
    if (handle->channel != nullptr) handle->channel->finished(id, status);
  });
}

void GrpcChannel::watch_connection() {
  if (timer_ != TimerId{}) return;
  timer_ = lane_->call_at(lane_->clock().now() + backoff_.next(), [this] {
    timer_ = TimerId{};
    look_at_connection();
  });
}

void GrpcChannel::look_at_connection() {
  const grpc_connectivity_state state = channel_->GetState(!calls_.empty());
  if (state == GRPC_CHANNEL_READY || calls_.empty()) {
    backoff_.reset();
    last_error_.clear();
    return;
  }
  if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) {
    if (probe_ == nullptr) {
      probe_ = std::make_shared<Call>(*this, CallId{}, "connection");
      probe_->context().set_wait_for_ready(false);
      Call::start(probe_, stub_, kProbePath, to_body(Message()));
    }
    // gRPC waits at least 100 ms between attempts, whatever its settings say.
    grpc::experimental::ChannelResetConnectionBackoff(channel_.get());
  }
  watch_connection();
}

}  // namespace starling
