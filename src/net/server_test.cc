#include "net/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "net/client.h"
#include "net/inproc/transport.h"
#include "net/intake.h"
#include "net/net_testing.h"

namespace starling {
namespace {

using net_testing::named;

class Recorder : public ReplySink {
 public:
  void finish(const Status& status, Message message) override {
    ++times;
    last = status;
    told = status_of(message);
    name = message.meta.name();
  }
  int times = 0;
  Status last;
  Status told;  // in the message
  std::string name;
};

TEST(Reply, AnswersOnce) {
  auto sink = std::make_shared<Recorder>();
  {
    Reply reply(sink);
    reply.send(named("answer"));
    EXPECT_FALSE(static_cast<bool>(reply));
    reply.fail(internal_error("too late"));
    reply.send(named("too late"));
  }
  EXPECT_EQ(sink->times, 1);
  EXPECT_EQ(sink->name, "answer");
}

TEST(Reply, DroppedIsInternal) {
  auto sink = std::make_shared<Recorder>();
  { const Reply reply(sink); }
  EXPECT_EQ(sink->times, 1);
  EXPECT_EQ(sink->last.code(), StatusCode::kInternal);
}

TEST(Reply, AssigningOverItDropsIt) {
  auto first = std::make_shared<Recorder>();
  auto second = std::make_shared<Recorder>();
  Reply reply(first);
  reply = Reply(second);
  EXPECT_EQ(first->last.code(), StatusCode::kInternal);
  EXPECT_EQ(second->times, 0);
  reply.send(Message());
  EXPECT_TRUE(reply.cancelled()) << "nobody waits any more";
}

TEST(Reply, KnowsThatItsCallerGaveUp) {
  auto sink = std::make_shared<Recorder>();
  Reply reply(sink);
  EXPECT_FALSE(reply.cancelled());
  sink->cancelled = true;
  EXPECT_TRUE(reply.cancelled());
}

// Limits, without any transport.
class IntakeTest : public testing::Test {
 protected:
  IntakeTest() {
    options_.server_bytes_max = 100'000;
    options_.server_requests_max = 10;
    ServerOptions server;
    server.handlers = {LaneHandlers{}};
    server.lanes = {lanes_.make()};
    intake_ = std::make_shared<Intake>(options_, std::move(server), Log(), metrics_);
  }
  NetOptions options_;
  Metrics metrics_;
  ManualLanes lanes_;
  std::shared_ptr<Intake> intake_;
};

TEST_F(IntakeTest, TicketsGiveBackWhatTheyTook) {
  {
    Ticket a = intake_->admit(60'000);
    EXPECT_TRUE(a);
    a.grow(5000);
    EXPECT_EQ(intake_->bytes_in_flight(), 65'000u);
    Ticket b = std::move(a);
    EXPECT_EQ(intake_->in_flight(), 1u);
    b = intake_->admit(1000);
    EXPECT_EQ(intake_->bytes_in_flight(), 1000u);
  }
  EXPECT_EQ(intake_->bytes_in_flight(), 0u);
  EXPECT_EQ(intake_->in_flight(), 0u);
}

TEST_F(IntakeTest, OverTheLimitsNothingIsAdmittedAndNothingLeaks) {
  std::vector<Ticket> tickets;
  while (Ticket ticket = intake_->admit(1000)) tickets.push_back(std::move(ticket));
  EXPECT_EQ(tickets.size(), 10u);
  EXPECT_EQ(intake_->over_limit().code(), StatusCode::kResourceExhausted);
  tickets.clear();
  Ticket large = intake_->admit(90'000);
  EXPECT_TRUE(large);
  EXPECT_FALSE(intake_->admit(20'000));
  EXPECT_TRUE(intake_->admit(5000));
  EXPECT_EQ(intake_->bytes_in_flight(), 90'000u);
}

TEST_F(IntakeTest, AnIdleServerTakesAMessageAboveItsLimit) {
  EXPECT_TRUE(intake_->admit(200'000));
  EXPECT_EQ(intake_->bytes_in_flight(), 0u);
}

TEST_F(IntakeTest, NearTheLimitTheGreedyAreTurnedAwayFirst) {
  auto greedy = std::make_shared<Meter>();
  auto modest = std::make_shared<Meter>();
  const Ticket held = intake_->admit(80'000, greedy);
  EXPECT_EQ(greedy->bytes, 80'000u);
  EXPECT_FALSE(intake_->admit(1000, greedy));
  EXPECT_TRUE(intake_->admit(1000, modest));
  EXPECT_EQ(modest->bytes, 0u);
  EXPECT_EQ(greedy->requests, 1u);
}

TEST_F(IntakeTest, WhatIsLentIsCountedApart) {
  auto meter = std::make_shared<Meter>();
  Ticket ticket = intake_->admit(1000, meter);
  ticket.grow(9000);
  EXPECT_TRUE(ticket.lend());
  EXPECT_EQ(intake_->bytes_in_flight(), 0u);
  EXPECT_EQ(meter->bytes, 0u);
  EXPECT_EQ(meter->requests, 0u);
  EXPECT_EQ(intake_->in_flight(), 1u) << "a stop still waits for it";
  Ticket second = intake_->admit(20'000, meter);
  EXPECT_FALSE(second.lend()) << "a quarter of 100,000 bytes at most";
  EXPECT_EQ(meter->bytes, 20'000u);
  ticket = Ticket();
  EXPECT_TRUE(second.lend());
  second = Ticket();
  EXPECT_EQ(intake_->in_flight(), 0u);
}

TEST_F(IntakeTest, WhoWaitsForRoomIsToldOnce) {
  int told = 0;
  intake_->on_room([&told] { ++told; });
  { const Ticket ticket = intake_->admit(1); }
  EXPECT_EQ(told, 0) << "nobody waits";
  Ticket a = intake_->admit(1);
  Ticket b = intake_->admit(1);
  intake_->wait_for_room();
  a = Ticket();
  b = Ticket();
  EXPECT_EQ(told, 1);
}

TEST_F(IntakeTest, ARefusalIsNoRoomForThoseWhoWait) {
  int told = 0;
  intake_->on_room([&told] { ++told; });
  const auto refused = [&](size_t bytes) {
    intake_->wait_for_room();
    const bool admitted = static_cast<bool>(intake_->admit(bytes));
    return !admitted && told == 0;
  };
  std::vector<Ticket> tickets;
  while (Ticket ticket = intake_->admit(1000)) tickets.push_back(std::move(ticket));
  EXPECT_TRUE(refused(1)) << "by the number of requests";
  tickets.clear();
  EXPECT_EQ(std::exchange(told, 0), 1);
  const Ticket large = intake_->admit(90'000);
  EXPECT_TRUE(refused(20'000)) << "by their bytes";
  EXPECT_EQ(intake_->in_flight(), 1u);
  EXPECT_EQ(intake_->bytes_in_flight(), 90'000u);
}

TEST_F(IntakeTest, RefusalsOnManyThreadsDoNotRefuseEachOther) {
  // Room for one of them more, which somebody must get, however the others are turned away.
  for (int round = 0; round < 200; ++round) {
    const Ticket most = intake_->admit(60'000);
    std::atomic<int> admitted{0};
    std::vector<Ticket> tickets(4);
    {
      std::vector<Thread> threads;
      for (Ticket& ticket : tickets) {
        threads.emplace_back(ThreadOptions{.name = "caller"}, [&] {
          ticket = intake_->admit(30'000);
          if (ticket) ++admitted;
        });
      }
    }
    ASSERT_EQ(admitted, 1) << "round " << round;
  }
  EXPECT_EQ(intake_->in_flight(), 0u);
}

TEST_F(IntakeTest, AStoppingServerRefusesBeforeItLooks) {
  intake_->refuse_new();
  auto sink = std::make_shared<Recorder>();
  intake_->accept({.method = Method::kPeerCall}, Reply(sink));
  EXPECT_EQ(sink->last.code(), StatusCode::kUnavailable);
}

TEST_F(IntakeTest, ARoleWithoutTheServiceNamesBoth) {
  auto sink = std::make_shared<Recorder>();
  intake_->accept({.method = Method::kPsPull}, Reply(sink));
  EXPECT_EQ(sink->last.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(message_of(sink->last)),
              testing::AllOf(testing::HasSubstr("Ps.Pull"), testing::HasSubstr("Peer")));
}

TEST(IntakePool, DropsARequestThatItsCallerGaveUp) {
  struct Saver : Handler {
    void handle(Request request, Reply reply) override {
      if (request.message.meta.name() == "first") {
        begun.set_value();
        go_on.get_future().wait();
      }
      ++handled;
      reply.send(Message());
    }
    bool blocks(Method) const override { return true; }
    std::promise<void> begun;
    std::promise<void> go_on;
    std::atomic<int> handled{0};
  } saver;
  Metrics metrics;
  ManualLanes lanes;
  ServerOptions server;
  server.handlers = {LaneHandlers{}};
  server.handlers[0][static_cast<size_t>(Service::kPs)] = &saver;
  server.lanes = {lanes.make()};
  NetOptions options;
  options.pool_threads = 1;
  auto intake = std::make_shared<Intake>(options, std::move(server), Log(), metrics);
  intake->accept({.method = Method::kPsSave, .message = named("first")},
                 Reply(std::make_shared<Recorder>()));
  saver.begun.get_future().wait();
  auto second = std::make_shared<Recorder>();
  intake->accept({.method = Method::kPsSave, .message = named("second")}, Reply(second));
  std::promise<void> answered;
  struct Last : ReplySink {
    explicit Last(std::promise<void>& answered) : answered_(answered) {}
    void finish(const Status&, Message) override { answered_.set_value(); }
    std::promise<void>& answered_;
  };
  intake->accept({.method = Method::kPsSave, .message = named("third")},
                 Reply(std::make_shared<Last>(answered)));
  second->cancelled = true;
  saver.go_on.set_value();
  answered.get_future().wait();
  EXPECT_EQ(second->last.code(), StatusCode::kCancelled);
  EXPECT_EQ(saver.handled, 2);
}

class Nothing : public Handler {
  void handle(Request, Reply reply) override { reply.send(Message()); }
};

TEST_F(IntakeTest, TheOptionOfAnotherRpcIsRefusedBeforeTheHandlerSeesIt) {
  Nothing nothing;
  LaneHandlers handlers{};
  handlers[static_cast<size_t>(Service::kPeer)] = &nothing;
  ServerOptions server;
  server.handlers = {handlers};
  server.lanes = {lanes_.make()};
  Intake intake(options_, std::move(server), Log(), metrics_);
  auto sink = std::make_shared<Recorder>();
  Request request{.method = Method::kPeerCall};
  request.message.meta.mutable_pull();
  intake.accept(std::move(request), Reply(sink));
  EXPECT_TRUE(sink->last.ok()) << "the refusal is in the reply";
  EXPECT_EQ(message_of(sink->told), "Peer.Call: the request carries pull, not call");
}

TEST(ServerStart, RefusesWhatMakesNoSense) {
  Metrics metrics;
  Network network(NetOptions(), Log(), metrics);
  network.add(Protocol::kInproc, std::make_unique<InprocTransport>());
  Nothing nothing;
  LaneHandlers handlers{};
  handlers[static_cast<size_t>(Service::kPeer)] = &nothing;
  const Address address{.protocol = Protocol::kInproc, .host = "server"};
  const auto code = [&](ServerOptions options) {
    return Server::start(network, std::move(options)).status().code();
  };
  EXPECT_EQ(code({.listen = {address}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.handlers = {handlers}}), StatusCode::kInvalidArgument);
  ManualLanes lanes;
  EXPECT_EQ(
      code({.listen = {address}, .handlers = {handlers}, .lanes = {lanes.make(), lanes.make()}}),
      StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.listen = {{.protocol = Protocol::kFast, .host = "127.0.0.1"}},
                  .handlers = {handlers}}),
            StatusCode::kUnimplemented);
  EXPECT_EQ(code({.listen = {address}, .handlers = {handlers}}), StatusCode::kOk);
  Network wrong({.pool_threads = 0}, Log(), metrics);
  EXPECT_EQ(Server::start(wrong, {.listen = {address}, .handlers = {handlers}}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(ServerStart, KnowsItsAddresses) {
  Metrics metrics;
  Network network(NetOptions(), Log(), metrics);
  network.add(Protocol::kInproc, std::make_unique<InprocTransport>());
  Nothing nothing;
  LaneHandlers handlers{};
  handlers[static_cast<size_t>(Service::kPeer)] = &nothing;
  auto server = Server::start(
      network, {.listen = {{.protocol = Protocol::kInproc, .host = "me"}}, .handlers = {handlers}});
  ASSERT_TRUE(server.ok());
  EXPECT_EQ((*server)->address(Protocol::kInproc)->host, "me");
  EXPECT_EQ((*server)->address(Protocol::kGrpc).status().code(), StatusCode::kInvalidArgument);
}

class ServerOnGivenLanes : public testing::Test {
 protected:
  // Says when it has begun, and goes on when it is told to.
  class Slow : public Handler {
   public:
    void handle(Request, Reply reply) override {
      begun.set_value();
      go_on.get_future().wait();
      ended = true;
      reply.send(Message());
    }
    std::promise<void> begun, go_on;
    std::atomic<bool> ended{false};
  };

  ServerOnGivenLanes() : network_(NetOptions(), Log(), metrics_) {
    network_.add(Protocol::kInproc, std::make_unique<InprocTransport>());
    lane_ = network_.make_lane("given", 0);
    LaneHandlers handlers{};
    handlers[static_cast<size_t>(Service::kPeer)] = &slow_;
    server_ = *Server::start(network_, {.listen = {{.protocol = Protocol::kInproc, .host = "me"}},
                                        .handlers = {handlers},
                                        .lanes = {lane_}});
  }

  Metrics metrics_;
  Network network_;
  Slow slow_;
  std::shared_ptr<LoopLane> lane_;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerOnGivenLanes, LeavesThemRunning) {
  EXPECT_TRUE(server_->stop(Deadline::never()).ok());
  server_.reset();
  std::promise<void> ran;
  lane_->post([&] { ran.set_value(); });
  EXPECT_EQ(ran.get_future().wait_for(seconds(60)), std::future_status::ready);
}

TEST_F(ServerOnGivenLanes, HasLeftTheHandlersWhenItHasStopped) {
  Client client(network_);
  auto answer = client.call_future({.address = server_->addresses()[0]}, Method::kPeerCall,
                                   Message(), Deadline::in(RealClock(), seconds(60)));
  slow_.begun.get_future().wait();
  auto stopped = std::async(std::launch::async, [&] {
    (void)server_->stop(Deadline(TimePoint::min()));
    return slow_.ended.load();
  });
  EXPECT_EQ(stopped.wait_for(milliseconds(50)), std::future_status::timeout);
  slow_.go_on.set_value();
  EXPECT_TRUE(stopped.get()) << "stopped while the handler ran";
  EXPECT_EQ(answer.get().status().code(), StatusCode::kUnavailable) << "it was cut";
}

// Its thread would else be the last to let go of it, and no thread can join itself.
TEST_F(ServerOnGivenLanes, AreNotKeptByWhatIsPostedToThem) {
  auto client = std::make_unique<Client>(network_, network_.make_driven_lane());
  slow_.go_on.set_value();
  ASSERT_TRUE(client
                  ->call_wait({.address = server_->addresses()[0]}, Method::kPeerCall, Message(),
                              Deadline::in(RealClock(), seconds(60)))
                  .ok());
  EXPECT_TRUE(server_->stop(Deadline::never()).ok());
  server_.reset();
  std::promise<void> busy;
  std::promise<void> go_on;
  std::future<void> is_busy = busy.get_future();
  lane_->post([busy = std::move(busy), gone_on = go_on.get_future()]() mutable {
    busy.set_value();
    gone_on.wait();
  });
  is_busy.wait();
  client.reset();  // tells the lane that it went
  EXPECT_EQ(lane_.use_count(), 1);
  go_on.set_value();
}

// Every method of the Hub, each with its own overload.
struct HubAnswers {
  template <Method M>
  void on(MethodTag<M> tag, Request, Reply reply) {
    reply.send(named(std::string(tag.info().name)));
  }
};

TEST(ServiceHandler, DispatchesToTheOverloadOfTheMethod) {
  HubAnswers answers;
  ServiceHandler<Service::kHub, HubAnswers> handler(answers);
  for (const Method method : {Method::kHubStartSample, Method::kHubExchange}) {
    auto sink = std::make_shared<Recorder>();
    handler.handle({.method = method}, Reply(sink));
    EXPECT_EQ(sink->name, info_of(method).name);
  }
}

}  // namespace
}  // namespace starling
