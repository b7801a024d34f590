// Real processes that die, fall silent and come back.

#include "net/conformance/child.h"
#include "net/conformance/suite.h"

namespace starling::conformance {
namespace {

// What the net promises, and how much longer a loaded machine may take before a test fails.
constexpr Duration kDeathBound = seconds(1);
constexpr Duration kSilenceBound = seconds(8);
constexpr int kSlack = 3;

class Processes : public Conformance {
 protected:
  // A server in a process of its own.
  static std::unique_ptr<Child> start_server(uint16_t port, Address& address) {
    auto child = std::make_unique<Child>(
        std::vector<std::string>{"serve", GetParam().name, std::to_string(port)});
    address = {.protocol = GetParam().protocol, .host = GetParam().host};
    address.port = static_cast<uint16_t>(std::atoi(child->line().c_str()));
    return child;
  }
  // How long after `start` all of `count` calls have ended; asserts the bound with slack.
  static void expect_ends_within(const Ends& ends, size_t count, TimePoint start, Duration bound,
                                 std::string_view what) {
    ASSERT_TRUE(ends.wait(count, bound * kSlack)) << what;
    const auto took = std::chrono::duration_cast<milliseconds>(RealClock().now() - start);
    std::printf("%s, %s: %lld ms (promised: %lld)\n", GetParam().name.c_str(),
                std::string(what).c_str(), static_cast<long long>(took.count()),
                static_cast<long long>(std::chrono::duration_cast<milliseconds>(bound).count()));
  }
};

TEST_P(Processes, AKilledServerEndsItsCallsAndIsNamed) {
  World world(GetParam());
  Address address;
  auto child = start_server(0, address);
  Client client(world.network());
  Ends ends;
  for (uint64_t id = 1; id <= 20; ++id) {
    const Target target{.address = address, .lane = static_cast<LaneId>(id % 2)};
    ASSERT_TRUE(client.call_wait(target, Method::kPeerCall, ask(kEcho, id), patience()).ok());
    client.call(target, Method::kPeerCall, ask_with(kHold, id, id * 1000), patience(),
                ends.take(id));
  }
  for (uint64_t id = 1; id <= 20; ++id) {
    StatusOr<Message> count = Message();
    while (count.ok() && count->meta.header().number() == 0) {
      const Target target{.address = address, .lane = static_cast<LaneId>(id % 2)};
      count = client.call_wait(target, Method::kPeerCall, ask(kCount, 1000, id), patience());
    }
    ASSERT_TRUE(count.ok()) << count.status();
  }
  const TimePoint killed = RealClock().now();
  child->kill();
  expect_ends_within(ends, 20, killed, kDeathBound, "a killed server");
  EXPECT_EQ(ends.count_of(StatusCode::kUnavailable), 20u) << ends.at(1).status();
  EXPECT_THAT(std::string(message_of(ends.at(1).status())),
              testing::HasSubstr(address.to_string()));
}

TEST_P(Processes, AKilledServerEndsCallsThatWaitToBeWrittenToo) {
  World world(GetParam());
  Address address;
  auto child = start_server(0, address);
  Client client(world.network());
  const Target target{.address = address};
  ASSERT_TRUE(client.call_wait(target, Method::kPeerCall, ask(kEcho, 1), patience()).ok());
  child->stop();
  Ends ends;
  constexpr uint64_t kCalls = 24;
  const Tensor large = tensor_of(3, 4 << 20);
  for (uint64_t id = 0; id < kCalls; ++id) {
    Message message = ask(kEcho, id);
    message.tensors.push_back(large);
    client.call(target, Method::kPeerCall, std::move(message), patience(), ends.take(id));
  }
  // Far more than sockets hold, and nobody reads.
  EXPECT_FALSE(ends.wait(1, milliseconds(200)));
  const TimePoint killed = RealClock().now();
  child->kill();
  expect_ends_within(ends, kCalls, killed, kDeathBound, "a killed server that read nothing");
  EXPECT_EQ(ends.count_of(StatusCode::kUnavailable), kCalls);
  // Sent while nobody is there: waits for the server that comes.
  client.call(target, Method::kPeerCall, ask(kEcho, 99), patience(), ends.take(99));
  child = start_server(address.port, address);
  ASSERT_TRUE(ends.wait(kCalls + 1));
  EXPECT_TRUE(ends.at(99).ok()) << ends.at(99).status();
}

TEST_P(Processes, AKilledClientIsGoneAndItsRequestsAreCancelled) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  const Address address = server->addresses()[0];
  Child child({"call", GetParam().name, address.host, std::to_string(address.port)});
  ASSERT_EQ(child.line(), "called");
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.held() == 1; }));
  EXPECT_TRUE(parrot.gone().empty());
  child.kill();
  ASSERT_TRUE(parrot.wait_for([&] { return !parrot.gone().empty(); }));
  EXPECT_EQ(parrot.gone()[0].connection, parrot.came()[0].connection);
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.held_cancelled() == 1; }));
  parrot.release();
}

TEST_P(Processes, AKilledServerMayComeBackOnItsPortAndSeesNothingTwice) {
  World world(GetParam());
  Address address;
  auto child = start_server(0, address);
  Client client(world.network());
  Ends ends;
  client.call({.address = address}, Method::kPeerCall, ask(kHold, 7), patience(), ends.take(7));
  ASSERT_TRUE(
      client.call_wait({.address = address}, Method::kPeerCall, ask(kEcho, 1), patience()).ok());
  child->kill();
  ASSERT_TRUE(ends.wait(1));
  EXPECT_TRUE(code_is(ends.at(7).status(), StatusCode::kUnavailable));
  // Sent while nobody is there: waits for the server that comes.
  client.call({.address = address}, Method::kPeerCall, ask(kEcho, 8), patience(), ends.take(8));
  child = start_server(address.port, address);
  ASSERT_NE(address.port, 0);
  ASSERT_TRUE(ends.wait(2));
  EXPECT_TRUE(ends.at(8).ok()) << ends.at(8).status();
  auto count =
      client.call_wait({.address = address}, Method::kPeerCall, ask(kCount, 9, 7), patience());
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(count->meta.header().number(), 0u) << "a request that was in flight was sent again";
}

// Silence takes seconds to be noticed, so only makers that differ in how they notice it.
class SilentProcesses : public Processes {};

TEST_P(SilentProcesses, AStoppedServerIsTakenForDeadAndFoundAgain) {
  World world(GetParam());
  Address address;
  auto child = start_server(0, address);
  Client client(world.network());
  ASSERT_TRUE(
      client.call_wait({.address = address}, Method::kPeerCall, ask(kEcho, 1), patience()).ok());
  Ends ends;
  client.call({.address = address}, Method::kPeerCall, ask(kHold, 2), patience(), ends.take(2));
  const TimePoint stopped = RealClock().now();
  child->stop();
  client.call({.address = address}, Method::kPeerCall, ask(kEcho, 3), patience(), ends.take(3));
  expect_ends_within(ends, 2, stopped, kSilenceBound, "a stopped server");
  EXPECT_TRUE(code_is(ends.at(2).status(), StatusCode::kUnavailable));
  EXPECT_TRUE(code_is(ends.at(3).status(), StatusCode::kUnavailable));
  child->go_on();
  StatusOr<Message> answer = unavailable("not called");
  for (int attempt = 0; attempt < 20 && !answer.ok(); ++attempt) {
    answer = client.call_wait({.address = address}, Method::kPeerCall, ask(kEcho, 4), patience());
  }
  EXPECT_TRUE(answer.ok()) << answer.status();
}

TEST_P(SilentProcesses, ASlowServerThatLivesIsNotTakenForDead) {
  NetOptions options = options_for(GetParam());
  options.ping_every = milliseconds(100);
  options.ping_timeout = milliseconds(400);
  World world(GetParam(), options);
  Address address;
  auto child = start_server(0, address);
  Client client(world.network());
  auto answer = client.call_wait({.address = address}, Method::kPeerCall, ask(kHold, 1),
                                 Deadline::in(RealClock(), milliseconds(2000)));
  EXPECT_TRUE(code_is(answer.status(), StatusCode::kDeadlineExceeded));
}

TEST_P(SilentProcesses, AHandlerThatHoldsItsLaneIsNotTakenForDead) {
  NetOptions options = options_for(GetParam());
  options.ping_every = milliseconds(250);
  options.ping_timeout = milliseconds(1000);
  World world(GetParam(), options);
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  Ends ends;
  client.call(world.target(*server), Method::kPeerCall, ask(kWait, 1), patience(), ends.take(1));
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.times(1) == 1; }));
  // Sent while the lane reads nothing.
  client.call(world.target(*server), Method::kPeerCall, ask(kEcho, 2), patience(), ends.take(2));
  EXPECT_FALSE(ends.wait(1, milliseconds(3000)));
  parrot.open();
  ASSERT_TRUE(ends.wait(2));
  EXPECT_EQ(ends.count_of(StatusCode::kOk), 2u) << ends.at(1).status();
}

// The wrapper does not change how silence is noticed, so the slow builds wait for it once.
std::vector<Maker> and_wrapped_in_release(const std::vector<Maker>& makers) {
  return kSanitized ? makers : and_wrapped(makers);
}

INSTANTIATE_TEST_SUITE_P(All, SilentProcesses,
                         testing::ValuesIn(and_wrapped_in_release(distinct_remote_makers())),
                         maker_name);

INSTANTIATE_TEST_SUITE_P(All, Processes, testing::ValuesIn(and_wrapped(bare_remote_makers())),
                         maker_name);

// The proxy speaks TCP on 127.0.0.1, which every remote maker can be made to use.
class SilentNetwork : public Processes {};

TEST_P(SilentNetwork, CallsIntoItEndInTime) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Proxy proxy(server->addresses()[0].port);
  Client client(world.network());
  const Target target{
      .address = {.protocol = GetParam().protocol, .host = "127.0.0.1", .port = proxy.port()}};
  ASSERT_TRUE(client.call_wait(target, Method::kPeerCall, ask(kEcho, 1), patience()).ok());
  Ends ends;
  client.call(target, Method::kPeerCall, ask(kHold, 2), patience(), ends.take(2));
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.held() == 1; }));
  const TimePoint silent = RealClock().now();
  proxy.swallow();
  client.call(target, Method::kPeerCall, ask_with(kEcho, 3, 1 << 20), patience(), ends.take(3));
  expect_ends_within(ends, 2, silent, kSilenceBound, "a silent network");
  EXPECT_TRUE(code_is(ends.at(2).status(), StatusCode::kUnavailable));
  EXPECT_TRUE(code_is(ends.at(3).status(), StatusCode::kUnavailable));
  EXPECT_EQ(parrot.times(3), 0);
  parrot.release();
}

INSTANTIATE_TEST_SUITE_P(All, SilentNetwork,
                         testing::ValuesIn(and_wrapped_in_release(ipv4_makers())), maker_name);

}  // namespace
}  // namespace starling::conformance
