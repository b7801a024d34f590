// How calls end when something does go wrong: deadlines, cancels, stops and restarts.

#include "net/conformance/suite.h"

namespace starling::conformance {
namespace {

Deadline soon() { return Deadline::in(RealClock(), milliseconds(100)); }

class EndsOfCalls : public Conformance {};

TEST_P(EndsOfCalls, ADeadlineThatHasPassedIsNotSent) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  auto answer = client.call_wait(world.target(*server), Method::kPeerCall, ask(kEcho, 1),
                                 Deadline(RealClock().now() - milliseconds(1)));
  EXPECT_TRUE(code_is(answer.status(), StatusCode::kDeadlineExceeded));
  ASSERT_TRUE(
      client.call_wait(world.target(*server), Method::kPeerCall, ask(kEcho, 2), patience()).ok());
  EXPECT_EQ(parrot.times(1), 0);
}

TEST_P(EndsOfCalls, TheHandlerKnowsItsCallersDeadline) {
  World world(GetParam());
  class Asks : public Handler {
    void handle(Request request, Reply reply) override {
      const Duration left = request.deadline.left(RealClock().now());
      reply.send(ask(kEcho, 1, static_cast<uint64_t>(left / milliseconds(1))));
    }
  } asks;
  auto server = world.serve(asks);
  Client client(world.network());
  constexpr uint64_t kGivenMs = 200'000;
  auto answer = client.call_wait(world.target(*server), Method::kPeerCall, ask(kEcho, 1),
                                 Deadline::in(RealClock(), milliseconds(kGivenMs)));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_GT(answer->meta.header().number(), kGivenMs / 2);
  EXPECT_LE(answer->meta.header().number(), kGivenMs);
}

TEST_P(EndsOfCalls, ADeadlineEndsTheWaitForASlowHandlerAndTellsIt) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  auto answer = client.call_wait(world.target(*server), Method::kPeerCall, ask(kHold, 1), soon());
  EXPECT_TRUE(code_is(answer.status(), StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(message_of(answer.status())), testing::HasSubstr("Peer.Call"));
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.held_cancelled() == 1; }));
}

TEST_P(EndsOfCalls, AnAnswerAfterTheDeadlineIsThrownAway) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  Ends ends;
  client.call(world.target(*server), Method::kPeerCall, ask_with(kHold, 1, 100'000), soon(),
              ends.take(1));
  ASSERT_TRUE(ends.wait(1));
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.held() == 1; }));
  parrot.release();
  for (uint64_t id = 2; id < 10; ++id) {
    auto answer = client.call_wait(world.target(*server), Method::kPeerCall,
                                   ask_with(kEcho, id, 100'000), patience());
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(is_tensor_of(answer->tensors.at(0), id, 100'000));
  }
  EXPECT_EQ(ends.times(1), 1);
}

TEST_P(EndsOfCalls, TheServerDropsARequestWhoseTimeHasPassed) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  Ends ends;
  client.call(world.target(*server), Method::kPeerCall, ask(kWait, 1), patience(), ends.take(1));
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.times(1) == 1; }));
  client.call(world.target(*server), Method::kPeerCall, ask(kEcho, 2), soon(), ends.take(2));
  ASSERT_TRUE(ends.wait(1));
  EXPECT_TRUE(code_is(ends.at(2).status(), StatusCode::kDeadlineExceeded));
  parrot.open();
  ASSERT_TRUE(
      client.call_wait(world.target(*server), Method::kPeerCall, ask(kEcho, 3), patience()).ok());
  EXPECT_EQ(parrot.times(2), 0) << "a request that nobody waits for was run";
}

TEST_P(EndsOfCalls, ThePoolDropsARequestWhoseTimeHasPassed) {
  NetOptions options = options_for(GetParam());
  options.pool_threads = 1;
  World world(GetParam(), options);
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  Ends ends;
  client.call(world.target(*server), Method::kPsSave, ask(kWait, 1), patience(), ends.take(1));
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.times(1) == 1; }));
  client.call(world.target(*server), Method::kPsSave, ask(kEcho, 2), soon(), ends.take(2));
  ASSERT_TRUE(ends.wait(1));
  // The server, which counts from the arrival, has heard by then that the caller gave up.
  ASSERT_TRUE(
      client.call_wait(world.target(*server), Method::kPeerCall, ask(kEcho, 4), patience()).ok());
  parrot.open();
  ASSERT_TRUE(
      client.call_wait(world.target(*server), Method::kPsSave, ask(kEcho, 3), patience()).ok());
  EXPECT_EQ(parrot.times(2), 0);
}

TEST_P(EndsOfCalls, CancelEndsACallOnceAndTellsTheServer) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  Ends ends;
  const CallId call = client.call(world.target(*server), Method::kPeerCall, ask(kHold, 1),
                                  patience(), ends.take(1));
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.held() == 1; }));
  client.cancel(call);
  ASSERT_TRUE(ends.wait(1));
  EXPECT_TRUE(code_is(ends.at(1).status(), StatusCode::kCancelled));
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.held_cancelled() == 1; }));
  parrot.release();
  client.cancel(call);
  ASSERT_TRUE(
      client.call_wait(world.target(*server), Method::kPeerCall, ask(kEcho, 2), patience()).ok());
  EXPECT_EQ(ends.times(1), 1);
}

TEST_P(EndsOfCalls, CancelOfOneCallLeavesTheOthersAlone) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  Ends ends;
  std::vector<CallId> calls;
  constexpr uint64_t kCalls = 200;
  for (uint64_t id = 0; id < kCalls; ++id) {
    calls.push_back(client.call(world.target(*server), Method::kPeerCall,
                                ask_with(kHold, id, 50'000), patience(), ends.take(id)));
  }
  for (uint64_t id = 0; id < kCalls; id += 2) client.cancel(calls[id]);
  ASSERT_TRUE(ends.wait(kCalls / 2));
  ASSERT_TRUE(parrot.wait_for([&] {
    parrot.release();
    return ends.count() == kCalls;
  }));
  for (uint64_t id = 0; id < kCalls; ++id) {
    EXPECT_EQ(ends.times(id), 1);
    EXPECT_TRUE(
        code_is(ends.at(id).status(), id % 2 == 0 ? StatusCode::kCancelled : StatusCode::kOk));
  }
}

TEST_P(EndsOfCalls, WithoutAServerTheDeadlineEndsTheCallAndSaysWhy) {
  World world(GetParam());
  Client client(world.network());
  const Address nowhere = world.somewhere_known();
  auto answer = client.call_wait({.address = nowhere}, Method::kPeerCall, ask(kEcho, 1),
                                 Deadline::in(RealClock(), milliseconds(300)));
  EXPECT_TRUE(code_is(answer.status(), StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(message_of(answer.status())), testing::HasSubstr(nowhere.to_string()));
  // The reason stands behind the deadline.
  EXPECT_THAT(std::string(message_of(answer.status())), testing::HasSubstr("("));
}

TEST_P(EndsOfCalls, AClientMayComeBeforeItsServer) {
  World world(GetParam());
  Parrot parrot;
  Client client(world.network());
  const Address address = world.somewhere_known();
  Ends ends;
  for (uint64_t id = 1; id <= 10; ++id) {
    client.call({.address = address}, Method::kPeerCall, ask_with(kEcho, id, id * 10'000),
                patience(), ends.take(id));
  }
  EXPECT_FALSE(ends.wait(1, milliseconds(50)));
  auto server = world.serve(parrot, 1, address);
  ASSERT_TRUE(ends.wait(10));
  for (uint64_t id = 1; id <= 10; ++id) {
    auto answer = ends.at(id);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(is_tensor_of(answer->tensors.at(0), id, id * 10'000));
    EXPECT_EQ(parrot.times(id), 1);
  }
}

TEST_P(EndsOfCalls, AServerMayComeBackAtItsOldAddress) {
  World world(GetParam());
  Client client(world.network());
  Address address = world.somewhere();
  for (uint64_t life = 1; life <= 3; ++life) {
    Parrot parrot;
    auto server = world.serve(parrot, 1, address);
    address = server->addresses()[0];
    StatusOr<Message> answer = unavailable("not called");
    // Calls that were on their way when the old server went may end with UNAVAILABLE.
    for (int attempt = 0; attempt < 100 && !answer.ok(); ++attempt) {
      answer =
          client.call_wait({.address = address}, Method::kPeerCall, ask(kEcho, life), patience());
      if (!answer.ok()) {
        ASSERT_TRUE(code_is(answer.status(), StatusCode::kUnavailable));
      }
    }
    EXPECT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(parrot.times(life), 1);
    EXPECT_TRUE(server->stop(patience()).ok());
  }
}

TEST_P(EndsOfCalls, AnAddressInUseIsRefused) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  auto second = world.try_serve(parrot, 1, server->addresses()[0]);
  ASSERT_FALSE(second.ok());
  EXPECT_TRUE(second.status().code() == StatusCode::kAlreadyExists ||
              second.status().code() == StatusCode::kUnavailable)
      << second.status();
  Client client(world.network());
  EXPECT_TRUE(
      client.call_wait(world.target(*server), Method::kPeerCall, ask(kEcho, 1), patience()).ok());
}

TEST_P(EndsOfCalls, StopWaitsForWhatIsAtHandAndRefusesTheRest) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  Ends ends;
  client.call(world.target(*server), Method::kPeerCall, ask_with(kHold, 1, 100'000), patience(),
              ends.take(1));
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.held() == 1; }));
  Status stopped = internal_error("still running");
  const Target target = world.target(*server);
  {
    Thread stopper({.name = "stopper"}, [&] { stopped = server->stop(patience()); });
    // New requests are refused, or wait for the next server until their deadline.
    StatusOr<Message> refused = Message();
    for (uint64_t id = 10; refused.ok(); ++id) {
      refused = client.call_wait(target, Method::kPeerCall, ask(kEcho, id),
                                 Deadline::in(RealClock(), milliseconds(300)));
    }
    EXPECT_TRUE(refused.status().code() == StatusCode::kUnavailable ||
                refused.status().code() == StatusCode::kDeadlineExceeded)
        << refused.status();
    EXPECT_EQ(ends.count(), 0u);
    parrot.release();
  }
  EXPECT_TRUE(stopped.ok()) << stopped;
  ASSERT_TRUE(ends.wait(1));
  auto answer = ends.at(1);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(is_tensor_of(answer->tensors.at(0), 1, 100'000));
}

TEST_P(EndsOfCalls, StopCutsWhatIsNotDoneByItsDeadline) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  Ends ends;
  for (uint64_t id = 1; id <= 5; ++id) {
    client.call(world.target(*server), Method::kPeerCall, ask(kHold, id), patience(),
                ends.take(id));
  }
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.held() == 5; }));
  EXPECT_TRUE(code_is(server->stop(soon()), StatusCode::kDeadlineExceeded));
  ASSERT_TRUE(ends.wait(5));
  EXPECT_EQ(ends.count_of(StatusCode::kUnavailable), 5u) << ends.at(1).status();
  EXPECT_TRUE(server->stop(patience()).ok()) << "stop() twice is fine";
  server.reset();
  // The handler finds out too late; its answer goes nowhere.
  parrot.release();
}

TEST_P(EndsOfCalls, StopCutsTheOtherLanesWhileOneIsBusy) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot, 2);
  Client client(world.network());
  Ends ends;
  client.call(world.target(*server, 0), Method::kPeerCall, ask(kWait, 1), patience(), ends.take(1));
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.times(1) == 1; }));
  client.call(world.target(*server, 1), Method::kPeerCall, ask(kHold, 2), patience(), ends.take(2));
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.held() == 1; }));
  {
    Thread stopper({.name = "stopper"}, [&] {
      EXPECT_TRUE(code_is(server->stop(Deadline(TimePoint::min())), StatusCode::kDeadlineExceeded));
    });
    EXPECT_TRUE(parrot.wait_for([&] { return ends.times(2) == 1; }))
        << "waits for the handler of another lane";
    parrot.open();
  }
  EXPECT_TRUE(code_is(ends.at(2).status(), StatusCode::kUnavailable));
  ASSERT_TRUE(ends.wait(2));
  parrot.release();
}

TEST_P(EndsOfCalls, StopDoesNotStartWhatWaitsForThePool) {
  NetOptions options = options_for(GetParam());
  options.pool_threads = 1;
  World world(GetParam(), options);
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  Ends ends;
  client.call(world.target(*server), Method::kPsSave, ask(kWait, 1), patience(), ends.take(1));
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.times(1) == 1; }));
  for (uint64_t id = 2; id <= 20; ++id) {
    client.call(world.target(*server), Method::kPsSave, ask(kEcho, id), patience(), ends.take(id));
  }
  ASSERT_TRUE(
      client.call_wait(world.target(*server), Method::kPeerCall, ask(kEcho, 100), patience()).ok());
  Status stopped;
  {
    Thread stopper({.name = "stopper"}, [&] { stopped = server->stop(soon()); });
    ASSERT_TRUE(ends.wait(20)) << "calls must not wait for the handler that still runs";
    parrot.open();
  }
  EXPECT_TRUE(code_is(stopped, StatusCode::kDeadlineExceeded));
  EXPECT_EQ(parrot.handled().size(), 2u) << "requests were run after they had been cut";
}

TEST_P(EndsOfCalls, StopUnderLoadEndsEveryCallOnce) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot, 2);
  const Target targets[] = {world.target(*server, 0), world.target(*server, 1)};
  Client client(world.network());
  Ends ends;
  std::atomic<bool> enough{false};
  std::atomic<uint64_t> sent{0};
  {
    std::vector<Thread> callers;
    for (int t = 0; t < 4; ++t) {
      callers.emplace_back(ThreadOptions{.name = "caller"}, [&] {
        while (!enough) {
          const uint64_t id = ++sent;
          client.call(targets[id % 2], Method::kPeerCall, ask_with(kEcho, id, id % 20'000),
                      Deadline::in(RealClock(), seconds(1)), ends.take(id));
          if (id > 256) ends.wait(id - 256, milliseconds(100));
        }
      });
    }
    ASSERT_TRUE(ends.wait(200));
    EXPECT_TRUE(server->stop(patience()).ok());
    server.reset();
    enough = true;
  }
  ASSERT_TRUE(ends.wait(sent));
  for (uint64_t id = 1; id <= sent; ++id) {
    ASSERT_EQ(ends.times(id), 1) << "call " << id;
    auto answer = ends.at(id);
    if (answer.ok()) {
      ASSERT_TRUE(is_tensor_of(answer->tensors.at(0), id, id % 20'000));
      ASSERT_EQ(parrot.times(id), 1);
    } else {
      const StatusCode code = answer.status().code();
      ASSERT_TRUE(code == StatusCode::kUnavailable || code == StatusCode::kDeadlineExceeded ||
                  code == StatusCode::kResourceExhausted)
          << answer.status();
    }
  }
}

TEST_P(EndsOfCalls, AClientThatGoesEndsItsCalls) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Ends ends;
  {
    Client client(world.network());
    for (uint64_t id = 1; id <= 50; ++id) {
      client.call(world.target(*server), Method::kPeerCall, ask_with(kHold, id, 1000), patience(),
                  ends.take(id));
    }
    ASSERT_TRUE(parrot.wait_for([&] { return parrot.held() == 50; }));
  }
  EXPECT_EQ(ends.count(), 50u) << "all before the destructor returns";
  EXPECT_EQ(ends.count_of(StatusCode::kCancelled), 50u);
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.held_cancelled() == 50; }));
  parrot.release();
  for (uint64_t id = 1; id <= 50; ++id) EXPECT_EQ(ends.times(id), 1);
}

TEST_P(EndsOfCalls, AClientMayGoInTheEndOfALostCall) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  const Target target = world.target(*server);
  auto client = std::make_unique<Client>(world.network());
  Ends ends;
  for (uint64_t id = 1; id <= 10; ++id) {
    client->call(target, Method::kPeerCall, ask(kHold, id), patience(),
                 [&, done = ends.take(id)](StatusOr<Message> result) mutable {
                   // On the client's lane, inside of what tells the others.
                   const auto last = std::move(client);
                   done(std::move(result));
                 });
  }
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.held() == 10; }));
  server.reset();
  ASSERT_TRUE(ends.wait(10));
  EXPECT_EQ(ends.count_of(StatusCode::kUnavailable), 1u);
  EXPECT_EQ(ends.count_of(StatusCode::kCancelled), 9u);
  parrot.release();
}

TEST_P(EndsOfCalls, AServerThatGoesEndsTheCallsThatItsHandlerHolds) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  const Target target = world.target(*server);
  Client client(world.network());
  Ends ends;
  for (uint64_t id = 1; id <= 50; ++id) {
    client.call(target, Method::kPeerCall, ask(kHold, id), patience(), ends.take(id));
  }
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.held() == 50; }));
  server.reset();
  ASSERT_TRUE(ends.wait(50));
  EXPECT_EQ(ends.count_of(StatusCode::kUnavailable), 50u) << ends.at(1).status();
  EXPECT_THAT(std::string(message_of(ends.at(1).status())),
              testing::HasSubstr(target.address.to_string()));
  parrot.release();
}

TEST_P(EndsOfCalls, TheNetNeverSendsARequestTwice) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  const Target target = world.target(*server);
  Client client(world.network());
  Ends ends;
  for (uint64_t id = 1; id <= 20; ++id) {
    client.call(target, Method::kPeerCall, ask(kHold, id), patience(), ends.take(id));
  }
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.held() == 20; }));
  server.reset();
  // The same handler at the same address would see a second copy.
  server = world.serve(parrot, 1, target.address);
  ASSERT_TRUE(ends.wait(20));
  EXPECT_EQ(ends.count_of(StatusCode::kUnavailable), 20u);
  StatusOr<Message> answer = unavailable("not called");
  for (int attempt = 0; attempt < 100 && !answer.ok(); ++attempt) {
    answer = client.call_wait(target, Method::kPeerCall, ask(kEcho, 100), patience());
  }
  EXPECT_TRUE(answer.ok()) << answer.status();
  for (uint64_t id = 1; id <= 20; ++id) EXPECT_EQ(parrot.times(id), 1) << "call " << id;
}

STARLING_OVER_ALL_MAKERS(EndsOfCalls);

}  // namespace
}  // namespace starling::conformance
