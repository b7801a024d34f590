// What only grpc++ promises: no copies of large payloads, replies pulled from memory, proofs, Unix
// sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "net/client.h"
#include "net/fast/channel.h"
#include "net/fast/shared.h"
#include "net/fast/socket.h"
#include "net/fast/transport.h"
#include "net/server.h"

namespace starling {
namespace {

const RealClock kClock;
Deadline in(Duration time) { return Deadline::in(kClock, time); }

// Answers a call with a tensor of as many bytes as the request's name says.
class Sizer final : public Handler {
 public:
  void handle(Request request, Reply reply) override {
    Message answer;
    answer.meta.set_name(request.message.meta.name());
    const int64_t bytes = std::stoll(request.message.meta.name());
    Tensor tensor = Tensor::allocate(DType::kUInt8, {bytes});
    for (int64_t i = 0; i < bytes; ++i)
      tensor.mutable_values<uint8_t>()[static_cast<size_t>(i)] = static_cast<uint8_t>(i * 7);
    answer.tensors.push_back(std::move(tensor));
    reply.send(std::move(answer));
  }
};

struct End {
  explicit End(NetOptions options)
      : network(std::move(options), Log({}, [this](std::string_view line) { note(line); }),
                metrics) {
    network.add(Protocol::kFast, std::make_unique<FastTransport>(network));
  }
  void note(std::string_view line) {
    MutexLock lock(mutex);
    log += fmt::format("{}\n", line);
  }
  std::string said() {
    MutexLock lock(mutex);
    return log;
  }
  uint64_t count(std::string_view name) { return metrics.counter(name).value(); }
  Mutex mutex;
  std::string log ABSL_GUARDED_BY(mutex);
  Metrics metrics;
  Network network;
};

class FastTest : public testing::Test {
 protected:
  void serve(NetOptions options, std::string host = "127.0.0.1") {
    client_.reset();
    server_.reset();
    server_end_ = std::make_unique<End>(std::move(options));
    LaneHandlers handlers{};
    handlers[static_cast<size_t>(Service::kPeer)] = &sizer_;
    auto server = Server::start(server_end_->network,
                                {.listen = {{.protocol = Protocol::kFast, .host = host}},
                                 .handlers = {handlers, handlers}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void connect(NetOptions options) {
    client_.reset();
    client_end_ = std::make_unique<End>(std::move(options));
    client_ =
        std::make_unique<Client>(client_end_->network, client_end_->network.make_driven_lane());
  }
  StatusOr<Message> ask(int64_t bytes, std::vector<Tensor> tensors = {}) {
    Message message;
    message.meta.set_name(std::to_string(bytes));
    message.tensors = std::move(tensors);
    return client_->call_wait({server_->addresses()[0], LaneId{1}}, Method::kPeerCall,
                              std::move(message), in(seconds(20)));
  }
  void expect_answer(const StatusOr<Message>& answer, int64_t bytes) {
    ASSERT_TRUE(answer.ok()) << answer.status();
    ASSERT_EQ(answer->tensors.size(), 1u);
    const auto values = answer->tensors[0].values<uint8_t>();
    ASSERT_EQ(values.size(), static_cast<size_t>(bytes));
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], static_cast<uint8_t>(i * 7)) << i;
  }

  Sizer sizer_;
  std::unique_ptr<End> server_end_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<End> client_end_;
  std::unique_ptr<Client> client_;
};

TEST_F(FastTest, LargeRepliesArePulledFromTheServersMemory) {
  serve({});
  connect({});
  expect_answer(ask(1 << 20), 1 << 20);
  EXPECT_EQ(client_end_->count("net.fast.pulled_bytes"), 1u << 20);
  EXPECT_LT(client_end_->count("net.fast.received_bytes"), 4096u);
}

TEST_F(FastTest, WithoutPullTheyAreSent) {
  serve({.pull = false});
  connect({});
  expect_answer(ask(1 << 20), 1 << 20);
  EXPECT_EQ(client_end_->count("net.fast.pulled_bytes"), 0u);
  EXPECT_GT(client_end_->count("net.fast.received_bytes"), 1u << 20);
}

TEST_F(FastTest, PayloadsAboveFourKilobytesAreNeverCopied) {
  for (const bool unix_sockets : {true, false}) {
    serve({.unix_sockets = unix_sockets});
    connect({.unix_sockets = unix_sockets});
    const Tensor big = Tensor::allocate(DType::kFloat32, {300, 17});
    const Tensor small = Tensor::allocate(DType::kFloat32, {3});
    for (const int64_t bytes : {5000, 60000, 100000, 3000000}) {
      expect_answer(ask(bytes, {big, small, big}), bytes);
    }
    EXPECT_EQ(client_end_->count("net.fast.copied_bytes"), 0u);
    EXPECT_EQ(server_end_->count("net.fast.copied_bytes"), 0u);
    expect_answer(ask(100), 100);
    EXPECT_EQ(server_end_->count("net.fast.copied_bytes"), 100u)
        << "small ones are, so the counter counts";
  }
}

TEST_F(FastTest, NothingOfALargePayloadIsCopiedBetweenTinyFramesEither) {
  for (const bool unix_sockets : {true, false}) {
    serve({.unix_sockets = unix_sockets});
    connect({.unix_sockets = unix_sockets});
    const Tensor big = Tensor::allocate(DType::kFloat32, {5000});
    constexpr uint64_t kTurns = 20;
    for (uint64_t turn = 0; turn < kTurns; ++turn) {
      expect_answer(ask(10), 10);
      expect_answer(ask(10), 10);
      expect_answer(ask(60000, {big}), 60000);
    }
    EXPECT_EQ(server_end_->count("net.fast.copied_bytes"), 2 * kTurns * 10);
    EXPECT_LE(client_end_->count("net.fast.copied_bytes"), 2 * kTurns * 10);
  }
}

TEST_F(FastTest, RequestsReadAheadOfALimitAreServedWhenThereIsRoom) {
  // No ping wakes the server's reader by accident.
  serve({.ping_every = seconds(600), .connection_requests_max = 1});
  connect({.ping_every = seconds(600)});
  constexpr int kCalls = 300;
  int answered = 0;
  for (int i = 0; i < kCalls; ++i) {
    Message message;
    message.meta.set_name("0");
    client_->call({server_->addresses()[0], LaneId{1}}, Method::kPeerCall, std::move(message),
                  in(seconds(60)), [&](const StatusOr<Message>& answer) {
                    EXPECT_TRUE(answer.ok()) << answer.status();
                    ++answered;
                  });
  }
  EXPECT_TRUE(client_->lane().run_until([&] { return answered == kCalls; }, in(seconds(60))));
}

TEST_F(FastTest, BothEndsProveTheToken) {
  serve({.token = "a shared secret"});
  connect({.token = "a shared secret"});
  expect_answer(ask(10), 10);
  connect({.token = "another"});
  EXPECT_EQ(ask(10).status().code(), StatusCode::kUnauthenticated);
  connect({});
  EXPECT_EQ(ask(10).status().code(), StatusCode::kUnauthenticated);
  connect({.token = "a shared secret"});
  expect_answer(ask(10), 10);
}

TEST_F(FastTest, AServerWithoutATokenListensOnLoopbackOnly) {
  serve({}, "0.0.0.0");
  EXPECT_EQ(server_->addresses()[0].host, "127.0.0.1");
  EXPECT_THAT(server_end_->said(), testing::HasSubstr("loopback_only"));
  End end{NetOptions{}};
  LaneHandlers handlers{};
  const auto server = Server::start(
      end.network,
      {.listen = {{.protocol = Protocol::kFast, .host = "10.1.2.3"}}, .handlers = {handlers}});
  EXPECT_EQ(server.status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(FastTest, WorksOverIPv6) {
  serve({.unix_sockets = false}, "::1");
  connect({});
  expect_answer(ask(100000), 100000);
}

TEST_F(FastTest, ANameIsLookedUpAgainAfterALoss) {
  // Not the spelling that needs no resolver.
  const std::string name = "LOCALHOST";
  if (!resolve(name, 1).ok()) GTEST_SKIP() << "the resolver does not know " << name;
  serve({});
  connect({});
  Address named = server_->addresses()[0];
  named.host = name;
  Message message;
  message.meta.set_name("10");
  const Target target{named, LaneId{1}};
  expect_answer(client_->call_wait(target, Method::kPeerCall, message, in(seconds(60))), 10);
  server_.reset();
  StatusOr<Message> answer = unavailable("not called");
  while (!answer.ok() && answer.status().code() == StatusCode::kUnavailable) {
    answer = client_->call_wait(target, Method::kPeerCall, message, in(milliseconds(300)));
  }
  EXPECT_EQ(answer.status().code(), StatusCode::kDeadlineExceeded) << answer.status();
  LaneHandlers handlers{};
  handlers[static_cast<size_t>(Service::kPeer)] = &sizer_;
  auto again = Server::start(
      server_end_->network,
      {.listen = {{.protocol = Protocol::kFast, .host = "127.0.0.1", .port = named.port}},
       .handlers = {handlers, handlers}});
  ASSERT_TRUE(again.ok()) << again.status();
  server_ = *std::move(again);
  expect_answer(client_->call_wait(target, Method::kPeerCall, message, in(seconds(60))), 10);
}

TEST_F(FastTest, AServerStopsThoughNobodyTurnsItsDrivenLane) {
  struct Counts final : Handler {
    void handle(Request, Reply reply) override { reply.send(Message()); }
    void on_peer(const Peer&, bool came) override { ++(came ? here : gone); }
    std::atomic<int> here{0};
    std::atomic<int> gone{0};
  } counts;
  End end{NetOptions{}};
  std::promise<std::shared_ptr<LoopLane>> made;
  std::promise<void> stopped;
  Thread owner({.name = "owner"}, [&] {
    auto lane = end.network.make_driven_lane();
    made.set_value(lane);
    EXPECT_TRUE(lane->run_until([&] { return counts.here > 0; }, in(seconds(60))));
    stopped.get_future().wait();
    bool turned = false;
    lane->post([&] { turned = true; });
    EXPECT_TRUE(lane->run_until([&] { return turned; }, in(seconds(60))));
  });
  LaneHandlers handlers{};
  handlers[static_cast<size_t>(Service::kPeer)] = &counts;
  auto server =
      Server::start(end.network, {.listen = {{.protocol = Protocol::kFast, .host = "127.0.0.1"}},
                                  .handlers = {handlers},
                                  .lanes = {made.get_future().get()}});
  ASSERT_TRUE(server.ok()) << server.status();
  Client client(end.network);
  auto answer = client.call_future({.address = (*server)->addresses()[0]}, Method::kPeerCall,
                                   Message(), in(seconds(60)));
  while (counts.here == 0) std::this_thread::yield();
  (void)(*server)->stop(Deadline(TimePoint::min()));
  server->reset();
  stopped.set_value();
  owner.join();
  EXPECT_EQ(counts.gone, 0) << "the handler may be gone by then";
  EXPECT_FALSE(answer.get().ok());
}

TEST(FastChannelTest, GoesWithoutWaitingForTheResolver) {
  struct Nobody final : ChannelSink {
    void finished(CallId, StatusOr<Message>) override { FAIL() << "nothing has ended"; }
  } nobody;
  End end{NetOptions{}};
  auto lane = end.network.make_driven_lane();
  auto shared = std::make_shared<FastShared>(end.network);
  std::promise<void> asked;
  std::promise<void> answer;
  shared->look_up = [&](const std::string&, uint16_t) {
    asked.set_value();
    answer.get_future().wait();
    return unavailable("no such host");
  };
  const Target target{.address = {.protocol = Protocol::kFast, .host = "slow.example", .port = 1}};
  auto channel = std::make_unique<FastChannel>(target, lane, *lane, nobody, shared);
  channel->start(CallId{1}, Method::kPeerCall, Message(), Deadline::never());
  asked.get_future().wait();
  channel.reset();
  answer.set_value();
  shared.reset();
  bool turned = false;
  lane->post([&] { turned = true; });
  EXPECT_TRUE(lane->run_until([&] { return turned; }, in(seconds(60))));
}

TEST_F(FastTest, AWrongLaneIsRefusedByName) {
  serve({});
  connect({});
  const auto answer = client_->call_wait({server_->addresses()[0], LaneId{7}}, Method::kPeerCall,
                                         Message(), in(seconds(20)));
  EXPECT_EQ(answer.status().code(), StatusCode::kInvalidArgument) << answer.status();
}

}  // namespace
}  // namespace starling
