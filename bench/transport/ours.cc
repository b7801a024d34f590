// Our own transports, used as a role uses them: a lane with a handler, a client that owns its lane.
#include <unistd.h>

#include <iostream>

#include "net/client.h"
#include "net/makers.h"
#include "net/server.h"
#include "transport/kind.h"

namespace starling::bench {
namespace {

constexpr Duration kCallTime = seconds(20);

Tensor bytes_tensor(const Buffer& buffer) {
  return *Tensor::make(DType::kUInt8, {static_cast<int64_t>(buffer.size())}, buffer);
}

Message request_of(const Ask& ask, const Buffer& payload) {
  Message message;
  v1::CallOption& call = *message.meta.mutable_call();
  call.set_command(ask.command());
  call.set_timestamp(ask.timestamp());
  message.tensors.push_back(bytes_tensor(payload));
  return message;
}

class Answerer final : public Handler {
 public:
  void handle(Request request, Reply reply) override {
    StatusOr<Message> answer = answer_to(request.message);
    if (!answer.ok()) return reply.fail(answer.status());
    reply.send(*std::move(answer));
  }

 private:
  StatusOr<Message> answer_to(const Message& request) {
    const v1::CallOption& call = request.meta.call();
    const Ask ask = Ask::unpack(call.command(), call.timestamp());
    STARLING_RETURN_IF_ERROR(ask.check());
    if (request.tensors.size() != 1) return invalid_argument("a request has one tensor");
    STARLING_ASSIGN_OR_RETURN(const uint64_t number,
                              read_stamp(request.tensors[0].buffer().bytes(), ask.request_bytes));
    const Buffer ready = memory_.take(ask.reply_bytes, ask.pieces, number);
    const size_t piece = ask.reply_bytes / ask.pieces;
    Message answer;
    answer.tensors.reserve(ask.pieces);
    for (uint32_t i = 0; i < ask.pieces; ++i) {
      answer.tensors.push_back(bytes_tensor(ready.slice(i * piece, piece)));
    }
    return answer;
  }

  ReadyMemory memory_;
};

Status check_answer(const Message& answer, const Load& load, uint64_t number) {
  if (answer.tensors.size() != load.pieces) {
    return data_loss("{} pieces came, {} were asked for", answer.tensors.size(), load.pieces);
  }
  for (const Tensor& tensor : answer.tensors) {
    STARLING_RETURN_IF_ERROR(check_stamp(tensor.buffer().bytes(), load.piece_bytes(), number));
  }
  return absl::OkStatus();
}

struct End {
  explicit End(NetOptions options) : network(make_network(std::move(options), Log(), metrics)) {}
  Metrics metrics;
  std::unique_ptr<Network> network;
};

class OurServing final : public Serving {
 public:
  static StatusOr<std::unique_ptr<Serving>> start(NetOptions options, Address listen) {
    std::unique_ptr<OurServing> serving(new OurServing(std::move(options)));
    LaneHandlers handlers{};
    handlers[static_cast<size_t>(Service::kPeer)] = &serving->answerer_;
    STARLING_ASSIGN_OR_RETURN(
        serving->server_, Server::start(*serving->end_.network,
                                        {.listen = {std::move(listen)}, .handlers = {handlers}}));
    return serving;
  }
  std::string address() const override { return server_->addresses()[0].to_string(); }
  Network& network() { return *end_.network; }

 private:
  explicit OurServing(NetOptions options) : end_(std::move(options)) {}
  Answerer answerer_;
  End end_;
  std::unique_ptr<Server> server_;
};

class OurCaller : public Caller {
 public:
  OurCaller(Network& network, Address address)
      : client_(network, network.make_driven_lane()), target_{std::move(address), LaneId{0}} {}

  Status burst(const Load& load, TimePoint until, std::vector<Duration>* times) override {
    return load.in_flight == 1 ? one_by_one(load, until, times) : many(load, until, times);
  }

 private:
  Status one_by_one(const Load& load, TimePoint until, std::vector<Duration>* times) {
    TimePoint start = clock_.now();
    while (start < until) {
      const Buffer payload = memory_.take(load.request_bytes, 1, ++number_);
      const StatusOr<Message> answer =
          client_.call_wait(target_, Method::kPeerCall, request_of(Ask::of(load), payload),
                            Deadline(start + kCallTime));
      STARLING_RETURN_IF_ERROR(answer.status());
      STARLING_RETURN_IF_ERROR(check_answer(*answer, load, number_));
      const TimePoint end = clock_.now();
      times->push_back(end - start);
      start = end;
    }
    return absl::OkStatus();
  }

  Status many(const Load& load, TimePoint until, std::vector<Duration>* times) {
    Status status;
    uint32_t open = 0;
    Function<void()> next = [&] {
      const TimePoint start = clock_.now();
      if (start >= until || !status.ok()) return;
      const uint64_t number = ++number_;
      const Buffer payload = memory_.take(load.request_bytes, 1, number);
      ++open;
      client_.call(target_, Method::kPeerCall, request_of(Ask::of(load), payload),
                   Deadline(start + kCallTime),
                   [&, start, number](const StatusOr<Message>& answer) {
                     --open;
                     status.Update(answer.status());
                     if (answer.ok()) status.Update(check_answer(*answer, load, number));
                     times->push_back(clock_.now() - start);
                     next();
                   });
    };
    for (uint32_t i = 0; i < load.in_flight; ++i) next();
    client_.lane().run_until([&] { return open == 0; }, Deadline::never());
    return status;
  }

  const RealClock clock_;
  ReadyMemory memory_;
  Client client_;
  const Target target_;
  uint64_t number_ = 0;
};

// The network lives as long as its client.
class RemoteCaller final : public Caller {
 public:
  RemoteCaller(NetOptions options, Address address)
      : end_(std::move(options)), caller_(*end_.network, std::move(address)) {}
  Status burst(const Load& load, TimePoint until, std::vector<Duration>* times) override {
    return caller_.burst(load, until, times);
  }

 private:
  End end_;
  OurCaller caller_;
};

class InprocCaller final : public Caller {
 public:
  InprocCaller(std::unique_ptr<Serving> serving, const Address& address)
      : serving_(std::move(serving)),
        caller_(static_cast<OurServing&>(*serving_).network(), address) {}
  Status burst(const Load& load, TimePoint until, std::vector<Duration>* times) override {
    return caller_.burst(load, until, times);
  }

 private:
  std::unique_ptr<Serving> serving_;
  OurCaller caller_;
};

const Address kLoopback{.protocol = Protocol::kFast, .host = "127.0.0.1"};

StatusOr<std::unique_ptr<Caller>> call_remote(NetOptions options, const std::string& address) {
  STARLING_ASSIGN_OR_RETURN(Address parsed, Address::parse(address));
  return std::make_unique<RemoteCaller>(std::move(options), std::move(parsed));
}

}  // namespace

StatusOr<std::unique_ptr<Serving>> serve_fast() { return OurServing::start({}, kLoopback); }
StatusOr<std::unique_ptr<Serving>> serve_fast_tcp() {
  return OurServing::start({.unix_sockets = false}, kLoopback);
}
StatusOr<std::unique_ptr<Caller>> call_fast(const std::string& address) {
  return call_remote({}, address);
}
StatusOr<std::unique_ptr<Caller>> call_fast_tcp(const std::string& address) {
  return call_remote({.unix_sockets = false}, address);
}
StatusOr<std::unique_ptr<Serving>> serve_grpc() {
  return OurServing::start({}, {.protocol = Protocol::kGrpc, .host = "127.0.0.1"});
}
StatusOr<std::unique_ptr<Caller>> call_grpc(const std::string& address) {
  return call_remote({}, address);
}

StatusOr<std::unique_ptr<Caller>> call_inproc(const std::string&) {
  const Address address{.protocol = Protocol::kInproc, .host = "bench"};
  STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Serving> serving, OurServing::start({}, address));
  return std::make_unique<InprocCaller>(std::move(serving), address);
}

Status hold_connections(const std::string& address, int count) {
  STARLING_ASSIGN_OR_RETURN(const Address parsed, Address::parse(address));
  const RealClock clock;
  const StatusOr<Load> load = find_load("8 B");
  End end{NetOptions{}};
  ReadyMemory memory;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(std::make_unique<Client>(*end.network));
    const auto number = static_cast<uint64_t>(i);
    const StatusOr<Message> answer = clients.back()->call_wait(
        {parsed, LaneId{0}}, Method::kPeerCall,
        request_of(Ask::of(*load), memory.take(load->request_bytes, 1, number)),
        Deadline::in(clock, kCallTime));
    STARLING_RETURN_IF_ERROR(answer.status());
    STARLING_RETURN_IF_ERROR(check_answer(*answer, *load, number));
  }
  std::cout << "held" << std::endl;
  char byte;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return absl::OkStatus();
}

}  // namespace starling::bench
