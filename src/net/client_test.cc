#include "net/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/net_testing.h"

namespace starling {
namespace {

using net_testing::FakeTransport;
using net_testing::named;
using net_testing::Told;

class ClientTest : public testing::Test {
 protected:
  explicit ClientTest(NetOptions options = {}) : network_(std::move(options), Log(), metrics_) {
    network_.add(Protocol::kFast, std::make_unique<FakeTransport>(told_));
    client_ = std::make_unique<Client>(network_, lanes_.make());
  }
  CallId call(const Target& target, Deadline deadline) {
    return client_->call(target, Method::kPeerCall, named("x"), deadline,
                         [this](StatusOr<Message> result) { ends_.push_back(result.status()); });
  }
  void step_all() {
    lanes_.run_until([] { return false; }, seconds(100));
  }
  static Target target(uint16_t port, uint32_t lane = 0) {
    return {.address = {.protocol = Protocol::kFast, .host = "peer", .port = port},
            .lane = static_cast<LaneId>(lane)};
  }
  Deadline in(Duration time) { return Deadline::in(lanes_.clock(), time); }

  Metrics metrics_;
  ManualLanes lanes_;
  Told told_;
  Network network_;
  std::vector<Status> ends_;
  std::unique_ptr<Client> client_;
};

TEST_F(ClientTest, HasOneChannelPerTarget) {
  for (int i = 0; i < 3; ++i) {
    call(target(1), in(seconds(1)));
    call(target(1, 1), in(seconds(1)));
    call(target(2), in(seconds(1)));
  }
  EXPECT_EQ(told_.open_channels, 3);
  EXPECT_EQ(told_.starts.size(), 9u);
  client_.reset();
  EXPECT_EQ(told_.open_channels, 0);
}

TEST_F(ClientTest, ADeadlineCancelsTheCallAndNamesPeerMethodAndTrouble) {
  told_.trouble = unavailable("nobody listens");
  const CallId id = call(target(7), in(seconds(1)));
  step_all();
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(
      std::string(message_of(ends_[0])),
      testing::AllOf(testing::HasSubstr("grpc++://peer:7 lane 0"), testing::HasSubstr("Peer.Call"),
                     testing::HasSubstr("nobody listens")));
  EXPECT_EQ(told_.cancels, std::vector<CallId>{id});
  told_.finish(0, Message());
  EXPECT_EQ(ends_.size(), 1u) << "an answer after the end";
}

TEST_F(ClientTest, AnAnswerStopsTheTimer) {
  call(target(7), in(seconds(1)));
  told_.finish(0, named("answer"));
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_TRUE(ends_[0].ok());
  EXPECT_FALSE(lanes_.step()) << "something is left to do";
}

TEST_F(ClientTest, ACallbackNeverRunsInsideItsCall) {
  call(target(7), Deadline(TimePoint::min()));
  call({.address = {.protocol = Protocol::kGrpc, .host = "peer"}}, in(seconds(1)));
  EXPECT_TRUE(ends_.empty());
  step_all();
  ASSERT_EQ(ends_.size(), 2u);
  EXPECT_EQ(ends_[0].code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ends_[1].code(), StatusCode::kUnimplemented);
  EXPECT_TRUE(told_.starts.empty());
}

TEST_F(ClientTest, ACallbackMayCallAgain) {
  int rounds = 0;
  std::function<void(StatusOr<Message>)> again = [&](StatusOr<Message>) {
    if (++rounds < 3) {
      client_->call(target(1), Method::kPeerCall, Message(), in(seconds(1)),
                    [&](StatusOr<Message> result) { again(std::move(result)); });
    }
  };
  again(Message());
  told_.finish(0, Message());
  told_.finish(1, Message());
  EXPECT_EQ(rounds, 3);
}

TEST_F(ClientTest, CancelEndsOnceAndAnUnknownCallIsHarmless) {
  const CallId id = call(target(1), in(seconds(1)));
  client_->cancel(id);
  client_->cancel(id);
  client_->cancel(CallId{999});
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].code(), StatusCode::kCancelled);
  EXPECT_EQ(told_.cancels.size(), 1u);
}

TEST_F(ClientTest, GoingEndsCallsInTheOrderTheyWereMade) {
  std::vector<uint64_t> order;
  for (uint64_t i = 0; i < 100; ++i) {
    client_->call(target(static_cast<uint16_t>(i % 3)), Method::kPeerCall, Message(),
                  Deadline::never(), [&order, i](StatusOr<Message> result) {
                    EXPECT_EQ(result.status().code(), StatusCode::kCancelled);
                    order.push_back(i);
                  });
  }
  client_.reset();
  ASSERT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

class SmallClient : public ClientTest {
 protected:
  SmallClient() : ClientTest({.client_bytes_max = 4096}) {}
  void call_with(size_t bytes) {
    Message message = named("x");
    message.tensors.push_back(
        *Tensor::make(DType::kUInt8, {static_cast<int64_t>(bytes)}, Buffer::allocate(bytes)));
    client_->call(target(static_cast<uint16_t>(told_.starts.size())), Method::kPeerCall,
                  std::move(message), in(seconds(1)),
                  [this](StatusOr<Message> result) { ends_.push_back(result.status()); });
  }
};

TEST_F(SmallClient, BytesInFlightAreBoundedOverAllTargetsAndFreeUp) {
  call_with(1500);
  call_with(1500);
  call_with(1500);
  EXPECT_EQ(told_.starts.size(), 2u);
  EXPECT_TRUE(ends_.empty()) << "not inside of the call";
  lanes_.step();
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(message_of(ends_[0])), testing::HasSubstr("client_bytes_max (4096)"));
  told_.finish(0, Message());
  call_with(1500);
  EXPECT_EQ(told_.starts.size(), 3u);
}

TEST_F(SmallClient, AnEndOfAnySortMakesRoom) {
  call(target(1), Deadline(TimePoint::min()));  // refused before it was sent
  client_->cancel(call(target(1), in(seconds(1))));
  call_with(3500);
  EXPECT_EQ(told_.starts.size(), 2u);
  step_all();  // the deadline
  call_with(3500);
  EXPECT_EQ(told_.starts.size(), 3u);
  call_with(5000);
  lanes_.step();
  EXPECT_EQ(ends_.back().code(), StatusCode::kResourceExhausted) << "above the limit by itself";
}

class NarrowClient : public ClientTest {
 protected:
  NarrowClient() : ClientTest({.connection_requests_max = 2}) {}
};

TEST_F(NarrowClient, TheLimitIsPerTargetAndFreesUp) {
  for (int i = 0; i < 3; ++i) call(target(1), in(seconds(1)));
  call(target(2), in(seconds(1)));
  EXPECT_EQ(told_.starts.size(), 3u);
  lanes_.step();
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].code(), StatusCode::kResourceExhausted);
  told_.finish(0, Message());
  call(target(1), in(seconds(1)));
  EXPECT_EQ(told_.starts.size(), 4u);
}

class ClientOfFewChannels : public ClientTest {
 protected:
  ClientOfFewChannels() : ClientTest({.client_channels_max = 2}) {}
};

TEST_F(ClientOfFewChannels, LetsGoOfTheOneThatWasIdleLongest) {
  call(target(1), in(seconds(1)));
  call(target(2), in(seconds(1)));
  told_.finish(0, Message());
  told_.finish(1, Message());
  call(target(1), in(seconds(1)));
  told_.finish(2, Message());
  call(target(3), in(seconds(1)));
  lanes_.step();
  EXPECT_EQ(told_.open_channels, 2);
  call(target(1), in(seconds(1)));
  EXPECT_EQ(told_.opened, 3) << "the channel to 1 was used last and must have stayed";
  told_.finish(3, Message());
  told_.finish(4, Message());
  call(target(2), in(seconds(1)));
  EXPECT_EQ(told_.opened, 4) << "the channel to 2 must have gone";
  EXPECT_EQ(ends_.size(), 5u);
}

TEST_F(ClientOfFewChannels, NeverLetsGoOfOneWithCallsInFlight) {
  call(target(1), in(seconds(1)));
  call(target(2), in(seconds(1)));
  call(target(3), in(seconds(1)));
  lanes_.step();
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].code(), StatusCode::kResourceExhausted);
  told_.finish(0, Message());
  told_.finish(1, Message());
  EXPECT_EQ(ends_.size(), 3u);
}

TEST_F(ClientOfFewChannels, TheEndOfACallMayRetireTheChannelThatTellsIt) {
  call(target(2), in(seconds(1)));
  client_->call(target(1), Method::kPeerCall, Message(), in(seconds(1)),
                [&](const StatusOr<Message>&) {
                  call(target(3), in(seconds(1)));
                  EXPECT_EQ(told_.open_channels, 3) << "it is still telling";
                });
  told_.finish(1, Message());
  lanes_.step();
  EXPECT_EQ(told_.open_channels, 2);
}

TEST(ClientOfAStoppedLane, GetsCancelledInsteadOfWaitingForEver) {
  Metrics metrics;
  Told told;
  Network network(NetOptions(), Log(), metrics);
  network.add(Protocol::kFast, std::make_unique<FakeTransport>(told));
  auto lane = network.make_lane("stopped", 0);
  Client client(network, lane);
  lane->stop();
  auto answer = client.call_wait({.address = {.protocol = Protocol::kFast, .host = "peer"}},
                                 Method::kPeerCall, Message(), Deadline::never());
  EXPECT_EQ(answer.status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace starling
