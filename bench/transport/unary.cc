// The usual gRPC service: generated code, one unary call per exchange, tensors as proto bytes. A
// user has no way around copying into and out of the messages.
#include <grpcpp/grpcpp.h>

#include "starling/v1/peer.grpc.pb.h"
#include "transport/kind.h"
#include "transport/rpc_status.h"

namespace starling::bench {
namespace {

constexpr seconds kCallTime{20};

void set_bytes(std::span<const std::byte> bytes, v1::Tensor* out) {
  out->set_dtype(v1::DTYPE_UINT8);
  out->add_shape(static_cast<int64_t>(bytes.size()));
  out->set_data(bytes.data(), bytes.size());
}

std::span<const std::byte> bytes_of(const v1::Tensor& tensor) {
  return std::as_bytes(std::span(tensor.data()));
}

void fill_request(const Load& load, const Buffer& payload, v1::TensorMessage* request) {
  request->mutable_call()->set_command(Ask::of(load).command());
  request->mutable_call()->set_timestamp(Ask::of(load).timestamp());
  set_bytes(payload.bytes(), request->add_tensors());
}

class PeerService final : public v1::Peer::Service {
 public:
  grpc::Status Call(grpc::ServerContext*, const v1::TensorMessage* request,
                    v1::TensorMessage* reply) override {
    return to_grpc(answer(*request, reply));
  }

 private:
  Status answer(const v1::TensorMessage& request, v1::TensorMessage* reply) {
    const Ask ask = Ask::unpack(request.call().command(), request.call().timestamp());
    STARLING_RETURN_IF_ERROR(ask.check());
    if (request.tensors_size() != 1) return invalid_argument("a request has one tensor");
    STARLING_ASSIGN_OR_RETURN(const uint64_t number,
                              read_stamp(bytes_of(request.tensors(0)), ask.request_bytes));
    // One per thread that gRPC serves on: the copy below is what makes it the reply's own.
    thread_local ReadyMemory memory;
    const Buffer ready = memory.take(ask.reply_bytes, ask.pieces, number);
    const size_t piece = ask.reply_bytes / ask.pieces;
    for (uint32_t i = 0; i < ask.pieces; ++i) {
      set_bytes(ready.bytes().subspan(i * piece, piece), reply->add_tensors());
    }
    return absl::OkStatus();
  }
};

class UnaryServing final : public Serving {
 public:
  static StatusOr<std::unique_ptr<Serving>> start() {
    auto serving = std::make_unique<UnaryServing>();
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(-1).SetMaxSendMessageSize(-1);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &serving->port_);
    builder.RegisterService(&serving->service_);
    serving->server_ = builder.BuildAndStart();
    if (serving->server_ == nullptr) return unavailable("gRPC does not listen on loopback");
    return serving;
  }
  ~UnaryServing() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + seconds(1));
  }
  std::string address() const override { return fmt::format("127.0.0.1:{}", port_); }

 private:
  PeerService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class UnaryCaller final : public Caller {
 public:
  explicit UnaryCaller(const std::string& address)
      : stub_(v1::Peer::NewStub(unlimited_channel(address))) {}
  ~UnaryCaller() override {
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  Status burst(const Load& load, TimePoint until, std::vector<Duration>* times) override {
    return load.in_flight == 1 ? one_by_one(load, until, times) : many(load, until, times);
  }

 private:
  struct Open {
    grpc::ClientContext context;
    v1::TensorMessage request;
    v1::TensorMessage reply;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<v1::TensorMessage>> reader;
    uint64_t number = 0;
    TimePoint start;
  };

  static Status check(const v1::TensorMessage& reply, const Load& load, uint64_t number) {
    if (reply.tensors_size() != static_cast<int>(load.pieces)) {
      return data_loss("{} pieces came, {} were asked for", reply.tensors_size(), load.pieces);
    }
    for (const v1::Tensor& tensor : reply.tensors()) {
      STARLING_RETURN_IF_ERROR(check_stamp(bytes_of(tensor), load.piece_bytes(), number));
    }
    return absl::OkStatus();
  }

  Status one_by_one(const Load& load, TimePoint until, std::vector<Duration>* times) {
    TimePoint start = clock_.now();
    while (start < until) {
      const Buffer payload = memory_.take(load.request_bytes, 1, ++number_);
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + kCallTime);
      v1::TensorMessage request;
      v1::TensorMessage reply;
      fill_request(load, payload, &request);
      STARLING_RETURN_IF_ERROR(from_grpc(stub_->Call(&context, request, &reply)));
      STARLING_RETURN_IF_ERROR(check(reply, load, number_));
      const TimePoint end = clock_.now();
      times->push_back(end - start);
      start = end;
    }
    return absl::OkStatus();
  }

  void start_one(const Load& load) {
    auto open = std::make_unique<Open>();
    open->start = clock_.now();
    open->number = ++number_;
    open->context.set_deadline(std::chrono::system_clock::now() + kCallTime);
    fill_request(load, memory_.take(load.request_bytes, 1, open->number), &open->request);
    open->reader = stub_->AsyncCall(&open->context, open->request, &queue_);
    Open* kept = open.release();  // until its tag comes back
    kept->reader->Finish(&kept->reply, &kept->status, kept);
  }

  // One thread that waits on a completion queue: cheaper than a thread per call in flight.
  Status many(const Load& load, TimePoint until, std::vector<Duration>* times) {
    Status status;
    uint32_t open_calls = load.in_flight;
    for (uint32_t i = 0; i < load.in_flight; ++i) start_one(load);
    while (open_calls > 0) {
      void* tag;
      bool ok;
      if (!queue_.Next(&tag, &ok)) return unavailable("the completion queue has ended");
      const std::unique_ptr<Open> open(static_cast<Open*>(tag));
      --open_calls;
      status.Update(from_grpc(open->status));
      if (open->status.ok()) status.Update(check(open->reply, load, open->number));
      const TimePoint end = clock_.now();
      times->push_back(end - open->start);
      if (end < until && status.ok()) {
        ++open_calls;
        start_one(load);
      }
    }
    return status;
  }

  const RealClock clock_;
  ReadyMemory memory_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<v1::Peer::Stub> stub_;
  uint64_t number_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<Serving>> serve_unary() { return UnaryServing::start(); }
StatusOr<std::unique_ptr<Caller>> call_unary(const std::string& address) {
  return std::make_unique<UnaryCaller>(address);
}

}  // namespace starling::bench
