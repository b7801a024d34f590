// What a call promises when nothing goes wrong: the right answer, in order, at any size.

#include <numeric>

#include "net/conformance/suite.h"

namespace starling::conformance {
namespace {

class Calls : public Conformance {};

TEST_P(Calls, AnAnswerIsTheHandlersOwn) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  Message question = ask_with(kEcho, 7, 1000);
  question.meta.mutable_header()->set_session(0xfedcba9876543210);
  const std::string meta = question.meta.SerializeAsString();
  auto answer = client.call_wait(world.target(*server), Method::kPeerCall, question, patience());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->meta.SerializeAsString(), meta);
  ASSERT_EQ(answer->tensors.size(), 1u);
  EXPECT_TRUE(is_tensor_of(answer->tensors[0], 7, 1000));
  EXPECT_EQ(parrot.times(7), 1);
}

TEST_P(Calls, RequestsOfOneChannelStartInTheOrderSent) {
  World world(GetParam());
  // Some transports make no promise, and then say so.
  const bool ordered = (*world.network().transport(GetParam().protocol))->ordered();
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  Ends ends;
  constexpr uint64_t kCalls = 1000;
  for (uint64_t id = 1; id <= kCalls; ++id) {
    client.call(world.target(*server), Method::kPeerCall, ask_with(kEcho, id, id % 97 * 100),
                patience(), ends.take(id));
  }
  ASSERT_TRUE(ends.wait(kCalls));
  EXPECT_EQ(ends.count_of(StatusCode::kOk), kCalls);
  std::vector<uint64_t> expected(kCalls);
  std::iota(expected.begin(), expected.end(), 1);
  std::vector<uint64_t> handled = parrot.handled();
  if (!ordered) std::sort(handled.begin(), handled.end());
  EXPECT_EQ(handled, expected);
}

TEST_P(Calls, ManyInFlightAreAnsweredInAnyOrder) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  Ends ends;
  constexpr uint64_t kCalls = 900;
  for (uint64_t id = 1; id <= kCalls; ++id) {
    client.call(world.target(*server), Method::kPeerCall, ask_with(kHold, id, id), patience(),
                ends.take(id));
  }
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.held() == kCalls; }));
  // One that came last is answered first: nothing waits behind what is held.
  client.call(world.target(*server), Method::kPeerCall, ask(kEcho, 0), patience(), ends.take(0));
  ASSERT_TRUE(ends.wait(1));
  EXPECT_EQ(ends.order().front(), 0u);
  parrot.release();
  ASSERT_TRUE(ends.wait(kCalls + 1));
  for (uint64_t id = 1; id <= kCalls; ++id) {
    auto answer = ends.at(id);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->meta.header().request_id(), id);
    EXPECT_TRUE(is_tensor_of(answer->tensors.at(0), id, id));
    EXPECT_EQ(ends.times(id), 1);
  }
}

TEST_P(Calls, EverySizeArrivesWholeInBothDirections) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  uint64_t id = 0;
  for (const size_t bytes : {0u, 1u, 7u, 8u, 63u, 64u, 4031u, 4095u, 4096u, 4097u, 65'535u, 65'536u,
                             65'537u, 1'000'003u, 16u << 20}) {
    ++id;
    auto echoed = client.call_wait(world.target(*server), Method::kPeerCall,
                                   ask_with(kEcho, id, bytes), patience());
    ASSERT_TRUE(echoed.ok()) << bytes << " bytes: " << echoed.status();
    ASSERT_EQ(echoed->tensors.size(), 1u);
    EXPECT_TRUE(is_tensor_of(echoed->tensors[0], id, bytes)) << bytes << " bytes";
    ++id;
    auto made = client.call_wait(world.target(*server), Method::kPeerCall, ask(kMake, id, bytes),
                                 patience());
    ASSERT_TRUE(made.ok()) << bytes << " bytes: " << made.status();
    ASSERT_EQ(made->tensors.size(), 1u);
    EXPECT_TRUE(is_tensor_of(made->tensors[0], id, bytes)) << bytes << " bytes";
  }
}

TEST_P(Calls, AMessageWithNothingInItIsAMessage) {
  World world(GetParam());
  class Nothing : public Handler {
    void handle(Request request, Reply reply) override { reply.send(Message()); }
  } nothing;
  auto server = world.serve(nothing);
  Client client(world.network());
  auto answer = client.call_wait(world.target(*server), Method::kPeerCall, Message(), patience());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->meta.ByteSizeLong(), 0u);
  EXPECT_TRUE(answer->tensors.empty());
}

TEST_P(Calls, TenThousandSmallTensorsTravelInOneMessage) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  Message message = ask(kEcho, 1);
  for (size_t i = 0; i < 10'000; ++i) {
    if (i % 3 == 0) {
      message.tensors.push_back(tensor_of(i, i % 130));
    } else {
      // Of several types, so that each needs its own alignment; every seventh is empty.
      const DType dtype = i % 3 == 1 ? DType::kFloat64 : DType::kInt32;
      const auto rows = static_cast<int64_t>(i % 7);
      Tensor tensor = Tensor::allocate(dtype, {rows, 3});
      Buffer bytes = tensor.buffer();
      for (std::byte& byte : bytes.mutable_bytes()) byte = static_cast<std::byte>(i % 251);
      message.tensors.push_back(std::move(tensor));
    }
  }
  auto answer = client.call_wait(world.target(*server), Method::kPeerCall, message, patience());
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->tensors.size(), message.tensors.size());
  for (size_t i = 0; i < message.tensors.size(); ++i) {
    const Tensor& got = answer->tensors[i];
    const Tensor& sent = message.tensors[i];
    ASSERT_EQ(got.dtype(), sent.dtype()) << "tensor " << i;
    ASSERT_EQ(got.shape(), sent.shape()) << "tensor " << i;
    ASSERT_EQ(got.buffer().view(), sent.buffer().view()) << "tensor " << i;
    if (got.bytes() == 0) continue;
    const auto address = reinterpret_cast<uintptr_t>(got.buffer().data());
    ASSERT_EQ(address % dtype_bytes(got.dtype()), 0u) << "tensor " << i;
  }
}

TEST_P(Calls, AnyThreadMayAnswer) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  Ends ends;
  constexpr uint64_t kCalls = 20;
  for (uint64_t id = 1; id <= kCalls; ++id) {
    client.call(world.target(*server), Method::kPeerCall, ask_with(kThread, id, 5000), patience(),
                ends.take(id));
  }
  ASSERT_TRUE(ends.wait(kCalls));
  for (uint64_t id = 1; id <= kCalls; ++id) {
    auto answer = ends.at(id);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(is_tensor_of(answer->tensors.at(0), id, 5000));
  }
}

TEST_P(Calls, AReplyThatIsDroppedIsInternal) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  auto answer =
      client.call_wait(world.target(*server), Method::kPeerCall, ask(kDrop, 1), patience());
  EXPECT_TRUE(code_is(answer.status(), StatusCode::kInternal));
}

TEST_P(Calls, EveryCodeTravelsWithItsMessage) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  for (int code = 1; code <= 16; ++code) {
    auto answer = client.call_wait(world.target(*server), Method::kPeerCall,
                                   ask(kFail, 100, static_cast<uint64_t>(code)), patience());
    EXPECT_TRUE(code_is(answer.status(), static_cast<StatusCode>(code)));
    EXPECT_THAT(std::string(message_of(answer.status())),
                testing::HasSubstr("as request 100 asked"));
  }
}

TEST_P(Calls, TheWrongRoleIsUnimplementedAndNamesBoth) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  auto answer =
      client.call_wait(world.target(*server), Method::kHubReadSample, ask(kEcho, 1), patience());
  EXPECT_TRUE(code_is(answer.status(), StatusCode::kUnimplemented));
  EXPECT_THAT(std::string(message_of(answer.status())),
              testing::AllOf(testing::HasSubstr("Hub.ReadSample"), testing::HasSubstr("Ps")));
  EXPECT_TRUE(parrot.handled().empty());
}

TEST_P(Calls, ALaneThatTheServerDoesNotHaveIsRefused) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot, 2);
  Client client(world.network());
  auto answer =
      client.call_wait(world.target(*server, 2), Method::kPeerCall, ask(kEcho, 1), patience());
  EXPECT_TRUE(code_is(answer.status(), StatusCode::kInvalidArgument));
  EXPECT_TRUE(parrot.handled().empty());
}

TEST_P(Calls, ARequestRunsOnItsLane) {
  World world(GetParam());
  class Where : public Handler {
   public:
    void handle(Request request, Reply reply) override {
      const bool here = server.load()->lane(request.lane).here();
      reply.send(ask(kEcho, value(request.lane), here ? 1 : 0));
    }
    std::atomic<Server*> server = nullptr;
  } where;
  auto server = world.serve(where, 3);
  where.server = server.get();
  Client client(world.network());
  for (uint32_t lane = 0; lane < 3; ++lane) {
    auto answer =
        client.call_wait(world.target(*server, lane), Method::kPeerCall, ask(kEcho, 1), patience());
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->meta.header().request_id(), lane);
    EXPECT_EQ(answer->meta.header().number(), 1u) << "on another thread than lane " << lane;
  }
}

TEST_P(Calls, AHandlerThatBlocksDoesNotHoldItsLane) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  Ends ends;
  client.call(world.target(*server), Method::kPsSave, ask(kWait, 1), patience(), ends.take(1));
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.times(1) == 1; }));
  auto answer =
      client.call_wait(world.target(*server), Method::kPeerCall, ask(kEcho, 2), patience());
  EXPECT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(ends.count(), 0u);
  parrot.open();
  ASSERT_TRUE(ends.wait(1));
  EXPECT_TRUE(ends.at(1).ok());
}

TEST_P(Calls, ASlowHandlerHoldsOnlyItsOwnLane) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot, 2);
  Client client(world.network());
  Ends ends;
  client.call(world.target(*server, 0), Method::kPeerCall, ask(kWait, 1), patience(), ends.take(1));
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.times(1) == 1; }));
  client.call(world.target(*server, 0), Method::kPeerCall, ask(kEcho, 2), patience(), ends.take(2));
  auto answer =
      client.call_wait(world.target(*server, 1), Method::kPeerCall, ask(kEcho, 3), patience());
  EXPECT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(parrot.times(2), 0);
  parrot.open();
  ASSERT_TRUE(ends.wait(2));
  EXPECT_TRUE(ends.at(2).ok());
}

TEST_P(Calls, ASlowReaderGetsEverythingAndHoldsNobodyUp) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client slow(world.network(), world.network().make_lane("slow", 0));
  Client quick(world.network());
  Ends ends;
  constexpr uint64_t kCalls = kSanitized ? 16 : 64;
  constexpr size_t kBytes = 1 << 20;
  for (uint64_t id = 1; id <= kCalls; ++id) {
    slow.call(world.target(*server), Method::kPeerCall, ask_with(kHold, id, kBytes), patience(),
              ends.take(id));
  }
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.held() == kCalls; }));
  std::promise<void> reads_no_more;
  std::promise<void> reads_again;
  slow.lane().post([&reads_no_more, reads = reads_again.get_future()] {
    reads_no_more.set_value();
    reads.wait();
  });
  reads_no_more.get_future().wait();
  parrot.release();  // far more than a socket holds
  for (uint64_t id = 1; id <= 20; ++id) {
    auto answer = quick.call_wait(world.target(*server), Method::kPeerCall,
                                  ask(kMake, 1000 + id, kBytes), patience());
    ASSERT_TRUE(answer.ok()) << answer.status();
  }
  EXPECT_EQ(ends.count(), 0u);
  reads_again.set_value();
  ASSERT_TRUE(ends.wait(kCalls));
  for (uint64_t id = 1; id <= kCalls; ++id) {
    auto answer = ends.at(id);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(is_tensor_of(answer->tensors.at(0), id, kBytes));
  }
}

TEST_P(Calls, ADrivenLaneWaitsForItsOwnCalls) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  auto lane = world.network().make_driven_lane();
  Client client(world.network(), lane);
  for (uint64_t id = 1; id <= 50; ++id) {
    auto answer = client.call_wait(world.target(*server), Method::kPeerCall,
                                   ask_with(kEcho, id, 10'000), patience());
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(is_tensor_of(answer->tensors.at(0), id, 10'000));
  }
  int ended = 0;
  for (uint64_t id = 100; id < 110; ++id) {
    client.call(world.target(*server), Method::kPeerCall, ask(kEcho, id), patience(),
                [&](StatusOr<Message> answer) { ended += answer.ok() ? 1 : 0; });
  }
  EXPECT_EQ(ended, 0) << "a callback ran before its lane was turned";
  EXPECT_TRUE(lane->run_until([&] { return ended == 10; }, patience()));
}

TEST_P(Calls, ManyThreadsShareTheBackgroundLane) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot, 2);
  Client client(world.network());
  std::atomic<uint64_t> right{0};
  constexpr uint64_t kThreads = 8;
  constexpr uint64_t kCalls = kSanitized ? 50 : 200;
  {
    std::vector<Thread> threads;
    for (uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back(ThreadOptions{.name = "caller"}, [&, t] {
        for (uint64_t i = 0; i < kCalls; ++i) {
          const uint64_t id = t * 1000 + i;
          auto answer =
              client.call_wait(world.target(*server, static_cast<uint32_t>(id % 2)),
                               Method::kPeerCall, ask_with(kEcho, id, id % 5000), patience());
          if (answer.ok() && is_tensor_of(answer->tensors.at(0), id, id % 5000)) ++right;
        }
      });
    }
  }
  EXPECT_EQ(right.load(), kThreads * kCalls);
}

TEST_P(Calls, PeersThatComeAndGoAreEventsOfTheirLane) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  {
    Client client(world.network());
    ASSERT_TRUE(
        client.call_wait(world.target(*server), Method::kPeerCall, ask(kEcho, 1), patience()).ok());
    ASSERT_TRUE(parrot.wait_for([&] { return !parrot.came().empty(); }));
    EXPECT_TRUE(parrot.gone().empty());
  }
  ASSERT_TRUE(parrot.wait_for([&] { return !parrot.gone().empty(); }));
  EXPECT_EQ(parrot.came()[0].connection, parrot.gone()[0].connection);
  EXPECT_EQ(parrot.came()[0].protocol, GetParam().protocol);
}

STARLING_OVER_ALL_MAKERS(Calls);

}  // namespace
}  // namespace starling::conformance
