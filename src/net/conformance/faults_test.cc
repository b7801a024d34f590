// Under drops, delays, repeats and cuts a call still ends once, in time, and with the truth.

#include "net/conformance/suite.h"

namespace starling::conformance {
namespace {

class Faults : public Conformance {};

TEST_P(Faults, EveryCallEndsOnceInTimeAndTrue) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot, 2);
  Client client(world.network());
  Ends ends;
  constexpr uint64_t kCalls = kSanitized ? 300 : 1000;
  const FaultOptions& faults = GetParam().faults;
  const double kept = 1 - 2 * (faults.drop_request + faults.drop_reply);
  for (uint64_t id = 1; id <= kCalls; ++id) {
    client.call(world.target(*server, static_cast<uint32_t>(id % 2)), Method::kPeerCall,
                ask_with(kEcho, id, id * 37 % 9000), Deadline::in(RealClock(), seconds(1)),
                ends.take(id));
    // Few in flight at a time, since a cut takes all of them; lost ones are not waited for.
    if (faults.cut > 0 && id % 10 == 0)
      ends.wait(static_cast<size_t>(static_cast<double>(id) * kept), milliseconds(200));
  }
  ASSERT_TRUE(ends.wait(kCalls)) << "a call waits longer than its deadline";
  uint64_t answered = 0;
  for (uint64_t id = 1; id <= kCalls; ++id) {
    ASSERT_EQ(ends.times(id), 1) << "call " << id;
    auto answer = ends.at(id);
    if (answer.ok()) {
      ++answered;
      ASSERT_EQ(answer->meta.header().request_id(), id) << "an answer to another request";
      ASSERT_TRUE(is_tensor_of(answer->tensors.at(0), id, id * 37 % 9000));
      ASSERT_GE(parrot.times(id), 1) << "answered, but never run";
    } else {
      const StatusCode code = answer.status().code();
      ASSERT_TRUE(code == StatusCode::kUnavailable || code == StatusCode::kDeadlineExceeded)
          << answer.status();
    }
    if (faults.repeat == 0) {
      ASSERT_LE(parrot.times(id), 1) << "sent twice without a fault that says so";
    }
  }
  EXPECT_GT(answered, kCalls / 25) << "the faults are rare enough for some to get through";
  if (faults.drop_request + faults.drop_reply + faults.cut > 0) {
    EXPECT_LT(answered, kCalls) << "no fault ever happened";
  } else {
    EXPECT_EQ(answered, kCalls) << "delays and repeats lose nothing";
  }
  if (faults.cut > 0) {
    EXPECT_TRUE(parrot.wait_for([&] { return !parrot.gone().empty(); }))
        << "the server never saw a connection end";
    EXPECT_GT(parrot.came().size(), 2u) << "nor another one come";
  }
}

TEST_P(Faults, ARepeatedCallGetsThroughInTheEnd) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  for (uint64_t id = 1; id <= 30; ++id) {
    StatusOr<Message> answer = unavailable("not called");
    for (int attempt = 0; attempt < 50 && !answer.ok(); ++attempt) {
      answer = client.call_wait(world.target(*server), Method::kPeerCall, ask_with(kEcho, id, 100),
                                Deadline::in(RealClock(), milliseconds(kSanitized ? 1000 : 150)));
    }
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(is_tensor_of(answer->tensors.at(0), id, 100));
  }
}

TEST_P(Faults, AClientCanGoInTheMiddleOfThem) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Ends ends;
  {
    Client client(world.network());
    for (uint64_t id = 1; id <= 100; ++id) {
      client.call(world.target(*server), Method::kPeerCall, ask(kEcho, id), patience(),
                  ends.take(id));
    }
  }
  EXPECT_EQ(ends.count(), 100u);
  for (uint64_t id = 1; id <= 100; ++id) EXPECT_EQ(ends.times(id), 1);
}

INSTANTIATE_TEST_SUITE_P(All, Faults, testing::ValuesIn(faulty_makers()), maker_name);

}  // namespace
}  // namespace starling::conformance
