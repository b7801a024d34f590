#include "net/grpc/listener.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <set>
#include <vector>

#include "base/mutex.h"
#include "net/grpc/acceptor.h"
#include "net/grpc/convert.h"
#include "net/grpc/poller.h"
#include "net/grpc/safety.h"
#include "net/grpc/tuning.h"

namespace starling {
namespace {

// Calls that may arrive at the same instant; each that comes makes room for the next.
constexpr int kWaitingCalls = 32;
// For the answers of close() to leave.
constexpr Duration kCloseTime = milliseconds(500);
// Of calls that have no deadline of their own, as the .proto says.
constexpr Duration kDefaultTime = seconds(30);

Identity identity_of(const CallMetadata& metadata, const v1::Header& header) {
  Identity identity;
  if (read_identity(metadata, &identity)) return identity;
  return {.role = static_cast<uint8_t>(header.role()),
          .node = header.role_id(),
          .incarnation = header.incarnation()};
}

}  // namespace

// Where the answer of one call goes. Outlives the call when a handler answers too late.
class GrpcListener::Sink final : public ReplySink {
 public:
  explicit Sink(Call* call) : call_(call) {}
  void finish(const Status& status, Message message) override;
  // The server goes, whatever the handler does.
  void cut();

 private:
  // Whoever takes it may, and must, end the call.
  Call* take() { return call_.exchange(nullptr, std::memory_order_acq_rel); }
  std::atomic<Call*> call_;
};

// What all calls of one server share.
class GrpcListener::Core {
 public:
  Core(std::shared_ptr<Intake> the_intake, BufferPool& the_pool, std::unique_ptr<Acceptor> acceptor)
      : intake(std::move(the_intake)), pool(the_pool), acceptor_(std::move(acceptor)) {}

  Status start();
  void close();
  void refuse_new() {
    refusing.store(true, std::memory_order_release);
    acceptor_->refuse_new();
  }
  const Address& address() const { return acceptor_->address(); }
  std::shared_ptr<Connection> connection(const std::string& peer) { return acceptor_->find(peer); }

  // Starts to wait for one more call; nothing once the server closes.
  void wait_for_call();
  void leave();
  void* arm(Tag& tag) { return poller_->arm(tag); }
  // False when the server is closing: the call must be ended at once.
  bool open(const std::shared_ptr<Sink>& sink);
  void ended(const std::shared_ptr<Sink>& sink);

  const std::shared_ptr<Intake> intake;
  BufferPool& pool;
  std::atomic<bool> refusing{false};
  grpc::AsyncGenericService service;
  std::unique_ptr<grpc::ServerCompletionQueue> queue;

 private:
  const std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<Acceptor::Sink> door_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Poller> poller_;

  Mutex mutex_;
  CondVar empty_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  size_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<std::shared_ptr<Sink>> sinks_ ABSL_GUARDED_BY(mutex_);
};

// One call, from waiting for it until gRPC has said its last word about it.
class GrpcListener::Call {
 public:
  explicit Call(Core& core)
      : core_(core),
        stream_(&context_),
        requested_([this](bool ok) { on_requested(ok); }),
        read_([this](bool ok) { on_read(ok); }),
        finished_([this](bool ok) { on_finished(); }),
        done_([this](bool ok) { on_done(); }) {}

  void wait() {
    context_.AsyncNotifyWhenDone(core_.arm(done_));
    core_.service.RequestCall(&context_, &stream_, core_.queue.get(), core_.queue.get(),
                              core_.arm(requested_));
  }

  // One of the two, from any thread, once; the call may be gone when it returns.
  void answer(const Status& status, const Message& message);
  void refuse(const Status& status);

 private:
  void on_requested(bool ok);
  void on_read(bool ok);
  void on_finished();
  void on_done();
  // The two last events may come in any order, on two threads.
  void end_one();

  Status check_call();
  Status check_room();
  Status deliver();
  Deadline deadline_of(const v1::Header& header, TimePoint now) const;

  Core& core_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_;
  Tag requested_, read_, finished_, done_;
  grpc::ByteBuffer body_;
  const MethodInfo* method_ = nullptr;
  std::shared_ptr<Connection> connection_;
  Ticket ticket_;
  // Set before the handler has it; on_done() may come on another thread.
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Sink> sink_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> ends_left_{2};
};

void GrpcListener::Sink::finish(const Status& status, Message message) {
  if (Call* call = take()) call->answer(status, message);
}

void GrpcListener::Sink::cut() {
  if (Call* call = take()) call->refuse(unavailable("server has stopped"));
}

void GrpcListener::Call::on_requested(bool ok) {
  if (!ok) {
    // The server is closing; gRPC forgets the done tag of a call that never came.
    Core& core = core_;
    delete this;
    return core.leave();
  }
  core_.wait_for_call();
  if (Status status = check_call(); !status.ok()) return refuse(status);
  stream_.Read(&body_, core_.arm(read_));
}

Status GrpcListener::Call::check_call() {
  const NetOptions& options = core_.intake->options();
  STARLING_RETURN_IF_ERROR(check_token(options, context_.client_metadata()));
  connection_ = core_.connection(context_.peer());
  connection_->prove();
  if (core_.refusing.load(std::memory_order_acquire)) return unavailable("server is stopping");
  method_ = find_method(std::string_view(context_.method()));
  if (method_ == nullptr) {
    return unimplemented("unknown method {} called on a {}", context_.method(),
                         service_name(core_.intake->role()));
  }
  return absl::OkStatus();
}

void GrpcListener::Call::on_read(bool ok) {
  if (!ok) return refuse(invalid_argument("{}: the call ended before its message", method_->name));
  if (Status status = check_room(); !status.ok()) return refuse(status);
  if (Status status = deliver(); !status.ok()) return refuse(status);
}

Status GrpcListener::Call::check_room() {
  const size_t bytes = body_.Length();
  const size_t held = connection_->meter()->bytes.load(std::memory_order_relaxed);
  const size_t limit = core_.intake->options().connection_bytes_max;
  // A connection that holds nothing may send any legal message.
  if (held > 0 && held + bytes > limit) {
    return resource_exhausted("{}: the connection has {} bytes in flight (limit {})", method_->name,
                              held, limit);
  }
  ticket_ = core_.intake->admit(bytes, connection_->meter());
  return ticket_ ? absl::OkStatus() : core_.intake->over_limit();
}

Deadline GrpcListener::Call::deadline_of(const v1::Header& header, TimePoint now) const {
  Deadline deadline = from_grpc(context_.raw_deadline(), now);
  if (header.deadline_us() != 0) {
    constexpr uint64_t kYearUs = uint64_t{365} * 24 * 3600 * 1'000'000;
    const microseconds left(static_cast<int64_t>(std::min(header.deadline_us(), kYearUs)));
    deadline = std::min(deadline, Deadline(now + left));
  }
  return deadline.is_never() ? Deadline(now + kDefaultTime) : deadline;
}

// On error the caller refuses the call; otherwise it belongs to the lane from here on.
Status GrpcListener::Call::deliver() {
  Intake& intake = *core_.intake;
  STARLING_ASSIGN_OR_RETURN(Message message, from_body(body_, intake.options(), core_.pool));
  body_.Clear();
  const v1::Header& header = message.meta.header();
  if (header.lane() >= intake.lanes()) {
    return invalid_argument("{}: lane {} does not exist, the server has {} lanes", method_->name,
                            header.lane(), intake.lanes());
  }
  const LaneId at{header.lane()};
  const std::shared_ptr<Lane>& lane = intake.lane(at);
  auto sink = std::make_shared<Sink>(this);
  if (!core_.open(sink)) return unavailable("server is stopping");
  Request request{.method = method_->method,
                  .lane = at,
                  .message = {},
                  .deadline = deadline_of(header, lane->clock().now()),
                  .peer = connection_->visit(at, identity_of(context_.client_metadata(), header))};
  request.message = std::move(message);
  {
    MutexLock lock(mutex_);
    sink->cancelled.store(cancelled_, std::memory_order_relaxed);
    sink_ = sink;
  }
  lane->post([intake = core_.intake, request = std::move(request),
              reply = Reply(std::move(sink))]() mutable {
    if (reply.cancelled()) return reply.fail(cancelled("the caller gave up before it was run"));
    intake->accept(std::move(request), std::move(reply));
  });
  return absl::OkStatus();
}

void GrpcListener::Call::refuse(const Status& status) {
  stream_.Finish(to_grpc(status), core_.arm(finished_));
}

void GrpcListener::Call::answer(const Status& status, const Message& message) {
  if (!status.ok()) {
    // Unavailable is said of the server itself, so its name belongs to it.
    if (status.code() != StatusCode::kUnavailable) context_.AddTrailingMetadata(kAnsweredKey, "1");
    return refuse(status);
  }
  const grpc::ByteBuffer body = to_body(message);
  const size_t bytes = body.Length();
  const size_t limit = core_.intake->options().message_bytes_max;
  if (bytes > limit) {
    return refuse(resource_exhausted("{}: reply of {} bytes is above the limit of {}",
                                     method_->name, bytes, limit));
  }
  ticket_.grow(bytes);
  stream_.WriteAndFinish(body, grpc::WriteOptions(), grpc::Status::OK, core_.arm(finished_));
}

void GrpcListener::Call::on_finished() { end_one(); }

void GrpcListener::Call::on_done() {
  if (context_.IsCancelled()) {
    MutexLock lock(mutex_);
    cancelled_ = true;
    if (sink_ != nullptr) sink_->cancelled.store(true, std::memory_order_relaxed);
  }
  end_one();
}

void GrpcListener::Call::end_one() {
  if (ends_left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  std::shared_ptr<Sink> sink;
  {
    MutexLock lock(mutex_);
    sink = std::move(sink_);
  }
  if (sink != nullptr) core_.ended(sink);
  Core& core = core_;
  // The ticket goes back with the call, before the server may be gone.
  delete this;
  core.leave();
}

Status GrpcListener::Core::start() {
  const NetOptions& options = intake->options();
  STARLING_ASSIGN_OR_RETURN(auto credentials, server_credentials(options));
  grpc::ServerBuilder builder;
  tune_server(options, builder);
  builder.RegisterAsyncGenericService(&service);
  queue = builder.AddCompletionQueue();
  door_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      std::move(credentials));
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    Poller(*queue, "grpc-server", 1).stop();
    return invalid_argument("{}: gRPC refuses to start; the certificate or key may be broken",
                            address().to_string());
  }
  poller_ = std::make_unique<Poller>(*queue, "grpc-server", poller_threads());
  for (int i = 0; i < kWaitingCalls; ++i) wait_for_call();
  acceptor_->start(*door_);
  return absl::OkStatus();
}

void GrpcListener::Core::wait_for_call() {
  {
    MutexLock lock(mutex_);
    if (closing_) return;
    ++calls_;
  }
  (new Call(*this))->wait();
}

void GrpcListener::Core::leave() {
  MutexLock lock(mutex_);
  if (--calls_ == 0) empty_.notify_all();
}

bool GrpcListener::Core::open(const std::shared_ptr<Sink>& sink) {
  MutexLock lock(mutex_);
  if (closing_) return false;
  sinks_.insert(sink);
  return true;
}

void GrpcListener::Core::ended(const std::shared_ptr<Sink>& sink) {
  MutexLock lock(mutex_);
  sinks_.erase(sink);
}

void GrpcListener::Core::close() {
  refusing.store(true, std::memory_order_release);
  std::set<std::shared_ptr<Sink>> open;
  {
    MutexLock lock(mutex_);
    if (std::exchange(closing_, true)) return;
    open = sinks_;
  }
  acceptor_->stop();
  if (server_ == nullptr) return;
  for (const auto& sink : open) sink->cut();
  server_->Shutdown(std::chrono::system_clock::now() + kCloseTime);
  {
    // Every call has been cut by now, so its last tags are on their way.
    MutexLock lock(mutex_);
    while (calls_ > 0) empty_.wait(mutex_, Deadline::never());
  }
  poller_->stop();
  server_.reset();
  door_.reset();
}

GrpcListener::GrpcListener(std::unique_ptr<Core> core) : core_(std::move(core)) {}
GrpcListener::~GrpcListener() { close(); }

StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::start(const Address& address,
                                                            std::shared_ptr<Intake> intake,
                                                            BufferPool& pool) {
  STARLING_ASSIGN_OR_RETURN(const Address safe,
                            safe_address(address, intake->options(), intake->log()));
  STARLING_ASSIGN_OR_RETURN(auto acceptor, Acceptor::listen(safe, intake));
  auto core = std::make_unique<Core>(std::move(intake), pool, std::move(acceptor));
  STARLING_RETURN_IF_ERROR(core->start());
  return std::unique_ptr<GrpcListener>(new GrpcListener(std::move(core)));
}

Address GrpcListener::address() const { return core_->address(); }
void GrpcListener::refuse_new() { core_->refuse_new(); }
void GrpcListener::close() { core_->close(); }

}  // namespace starling
