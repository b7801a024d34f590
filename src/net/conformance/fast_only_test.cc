// What only grpc++ promises: nothing copied, lent replies, one host and many.

#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "base/rng.h"
#include "net/conformance/child.h"
#include "net/conformance/raw.h"
#include "net/conformance/suite.h"
#include "net/fast/lend.h"

namespace starling::conformance {
namespace {

const Maker kFastMaker{.name = "fast", .protocol = Protocol::kFast};

FrameHeader request_header(uint64_t id) {
  return {.kind = FrameKind::kRequest,
          .method = static_cast<uint16_t>(Method::kPeerCall),
          .request_id = id};
}

// Answers with one and the same tensor, so that a test can see who else holds it.
class Lender : public Handler {
 public:
  void handle(Request request, Reply reply) override {
    Message message = ask(kMake, request.message.meta.header().request_id());
    message.tensors.push_back(tensor);
    reply.send(std::move(message));
  }
  const Tensor tensor = tensor_of(3, 1 << 20);
};

bool wait_until(const std::function<bool()>& done) {
  const Deadline deadline = patience();
  while (!done()) {
    if (deadline.passed(RealClock().now())) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

class FastMakers : public Conformance {};

TEST_P(FastMakers, NothingAboveFourKilobytesIsCopied) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  Counter& copied = world.metrics().counter("net.fast.copied_bytes");
  for (const size_t bytes : {4097u, 5000u, 65'536u, 1'000'000u, 8u << 20}) {
    Message message = ask_with(kEcho, bytes, bytes);
    for (int i = 0; i < 100; ++i) message.tensors.push_back(tensor_of(7, 40));
    auto answer =
        client.call_wait(world.target(*server), Method::kPeerCall, std::move(message), patience());
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(is_tensor_of(answer->tensors.at(0), bytes, bytes));
  }
  EXPECT_EQ(copied.value(), 0u);
  ASSERT_TRUE(
      client
          .call_wait(world.target(*server), Method::kPeerCall, ask_with(kEcho, 1, 100), patience())
          .ok());
  EXPECT_GT(copied.value(), 0u) << "the counter counts";
}

TEST_P(FastMakers, TheHandlersTensorsShareOneReceiveBuffer) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  Ends ends;
  Message message = ask_with(kHold, 1, 100'000);
  message.tensors.push_back(tensor_of(2, 50'000));
  client.call(world.target(*server), Method::kPeerCall, std::move(message), patience(),
              ends.take(1));
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.held() == 1; }));
  const std::vector<Tensor> seen = parrot.seen();
  ASSERT_EQ(seen.size(), 2u);
  const std::byte* first = seen[0].buffer().data();
  const std::byte* second = seen[1].buffer().data();
  EXPECT_EQ(second - first, static_cast<ptrdiff_t>(payload_offset(100'000, 50'000)));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % kLargeAlignment, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second) % kLargeAlignment, 0u);
  parrot.release();
  ASSERT_TRUE(ends.wait(1));
}

TEST_P(FastMakers, LargeRepliesArePulledWhereTheProbeWorksAndElseSent) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  auto answer = client.call_wait(world.target(*server), Method::kPeerCall, ask(kMake, 1, 1 << 20),
                                 patience());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(is_tensor_of(answer->tensors.at(0), 1, 1 << 20));
  const uint64_t pulled = world.metrics().counter("net.fast.pulled_bytes").value();
  const NetOptions options = options_for(GetParam());
  EXPECT_EQ(pulled, options.unix_sockets && options.pull ? 1u << 20 : 0u);
}

INSTANTIATE_TEST_SUITE_P(All, FastMakers, testing::ValuesIn(and_wrapped(fast_makers())),
                         maker_name);

TEST(Full, AServerSleepsUntilThereIsRoom) {
  NetOptions options = options_for(kFastMaker);
  options.server_requests_max = 5;
  // Nothing else wakes its lanes.
  options.spin = Duration::zero();
  options.ping_every = options.ping_timeout = seconds(600);
  World world(kFastMaker, options);
  Parrot parrot;
  auto server = world.serve(parrot, 2);
  constexpr uint64_t kClients = 8;
  std::vector<std::unique_ptr<Client>> clients;
  for (uint64_t id = 0; id < kClients; ++id) {
    clients.push_back(std::make_unique<Client>(world.network()));
    ASSERT_TRUE(clients[id]
                    ->call_wait(world.target(*server, id % 2), Method::kPeerCall, ask(kEcho, id),
                                patience())
                    .ok());
  }
  // Each has one that is not admitted, whoever gets the five.
  Ends ends;
  for (uint64_t id = 0; id < 2 * kClients; ++id) {
    clients[id % kClients]->call(world.target(*server, id % 2), Method::kPeerCall, ask(kHold, id),
                                 patience(), ends.take(id));
  }
  ASSERT_TRUE(parrot.wait_for([&] { return parrot.held() == 5; }));
  turn(clients[0]->lane());
  for (uint32_t i = 0; i < 2; ++i) {
    auto& lane = dynamic_cast<LoopLane&>(server->lane(static_cast<LaneId>(i)));
    turn(lane);
    EXPECT_TRUE(wait_until([&] { return lane.asleep(); })) << "lane " << i;
  }
  ASSERT_TRUE(parrot.wait_for([&] {
    parrot.release();
    return ends.count() == 2 * kClients;
  }));
  EXPECT_EQ(ends.count_of(StatusCode::kOk), 2 * kClients);
}

TEST(Lent, AReplyIsKeptUntilItIsReleased) {
  World world(kFastMaker);
  Lender lender;
  auto server = world.serve(lender);
  const Address address = server->addresses()[0];
  RawPeer peer(address.host, address.port, /*local=*/true);
  ASSERT_TRUE(peer.shake_hands(kToken, /*asks_to_pull=*/true).ok());
  ASSERT_TRUE(peer.send_frame(request_header(5), ask(kMake, 5)));
  auto answer = peer.receive_frame();
  ASSERT_TRUE(answer.has_value());
  ASSERT_NE(answer->header.flags & kFlagLent, 0u);
  EXPECT_GT(lender.tensor.buffer().owners(), 1);
  ASSERT_TRUE(peer.send(encode_control({.kind = FrameKind::kRelease, .request_id = 5}).bytes()));
  EXPECT_TRUE(wait_until([&] { return lender.tensor.buffer().owners() == 1; }));
}

TEST(Lent, AReplyIsSentWhenThePullDidNotWork) {
  World world(kFastMaker);
  Lender lender;
  auto server = world.serve(lender);
  const Address address = server->addresses()[0];
  RawPeer peer(address.host, address.port, /*local=*/true);
  ASSERT_TRUE(peer.shake_hands(kToken, /*asks_to_pull=*/true).ok());
  ASSERT_TRUE(peer.send_frame(request_header(5), ask(kMake, 5)));
  auto answer = peer.receive_frame();
  ASSERT_TRUE(answer.has_value());
  ASSERT_NE(answer->header.flags & kFlagLent, 0u);
  ASSERT_TRUE(peer.send(encode_control({.kind = FrameKind::kResend, .request_id = 5}).bytes()));
  answer = peer.receive_frame();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->header.flags & kFlagLent, 0u);
  EXPECT_EQ(world.metrics().counter("net.fast.resends").value(), 1u);
  EXPECT_THAT(answer->rest, testing::HasSubstr(std::string(lender.tensor.buffer().view())));
  EXPECT_TRUE(wait_until([&] { return lender.tensor.buffer().owners() == 1; }));
}

TEST(Lent, AReplyIsForgottenWhenItsConnectionEnds) {
  World world(kFastMaker);
  Lender lender;
  auto server = world.serve(lender);
  const Address address = server->addresses()[0];
  {
    RawPeer peer(address.host, address.port, /*local=*/true);
    ASSERT_TRUE(peer.shake_hands(kToken, /*asks_to_pull=*/true).ok());
    ASSERT_TRUE(peer.send_frame(request_header(5), ask(kMake, 5)));
    ASSERT_TRUE(peer.receive_frame().has_value());
  }
  EXPECT_TRUE(wait_until([&] { return lender.tensor.buffer().owners() == 1; }));
  EXPECT_TRUE(server->stop(patience()).ok()) << "a lent reply must not hold up the stop";
}

TEST(Lent, APeerThatNeverReleasesGetsTheRestOnTheStream) {
  NetOptions options = options_for(kFastMaker);
  options.server_bytes_max = 16 << 20;
  World world(kFastMaker, options);
  Lender lender;
  auto server = world.serve(lender);
  const Address address = server->addresses()[0];
  RawPeer peer(address.host, address.port, /*local=*/true);
  ASSERT_TRUE(peer.shake_hands(kToken, /*asks_to_pull=*/true).ok());
  uint64_t lent = 0;
  for (uint64_t id = 1; id <= 40; ++id) {
    ASSERT_TRUE(peer.send_frame(request_header(id), ask(kMake, id)));
    auto answer = peer.receive_frame();
    ASSERT_TRUE(answer.has_value()) << "reply " << id;
    lent += (answer->header.flags & kFlagLent) != 0 ? 1 : 0;
  }
  EXPECT_GE(lent, 1u);
  EXPECT_LE(lent, 4u) << "a quarter of the server's bytes";
}

TEST(Lent, AGenerationThatHasChangedIsNoticed) {
  LendTable table;
  const Tensor tensor = tensor_of(9, 10'000);
  Message message;
  message.tensors.push_back(tensor);
  LendBlock block = table.lend(1, message, Ticket());
  block.pieces = {{.address = reinterpret_cast<uint64_t>(tensor.buffer().data()), .bytes = 10'000}};
  Buffer payload = Buffer::allocate(10'000);
  const std::vector<uint64_t> offsets = {0};
  EXPECT_TRUE(pull(::getpid(), block, offsets, payload).ok());
  EXPECT_EQ(payload.view(), tensor.buffer().view());
  EXPECT_TRUE(table.release(1));
  EXPECT_TRUE(code_is(pull(::getpid(), block, offsets, payload), StatusCode::kAborted));
  // The next lend may use the same word, but never the same generation.
  LendBlock next = table.lend(2, message, Ticket());
  EXPECT_NE(next.generation, block.generation);
  EXPECT_TRUE(code_is(pull(::getpid(), block, offsets, payload), StatusCode::kAborted));
}

TEST(Lent, PiecesGoToTheirPlacesWhereverTheyLie) {
  // Behind one another, with gaps, backwards and twice: as tensors may be slices of one buffer.
  const Tensor memory = tensor_of(3, 100'000);
  const std::span<const std::byte> bytes = memory.buffer().bytes();
  Message message;
  message.tensors.push_back(memory);
  Rng rng(7, 0, 0);
  for (int round = 0; round < 50; ++round) {
    LendTable table;
    LendBlock block = table.lend(1, message, Ticket());
    std::vector<uint64_t> offsets;
    std::string expected;
    uint64_t from = 0;
    block.pieces.resize(1 + rng.below(1500));
    for (LendPiece& piece : block.pieces) {
      const uint64_t count = 1 + rng.below(60);
      if (rng.below(8) == 0 || from + count > bytes.size()) from = rng.below(bytes.size() - 60);
      piece = {.address = reinterpret_cast<uint64_t>(bytes.data()) + from, .bytes = count};
      expected.append(rng.below(3), '\0');
      offsets.push_back(expected.size());
      expected += memory.buffer().view().substr(from, count);
      from += count;
    }
    Buffer payload = Buffer::allocate(expected.size());
    std::memset(payload.mutable_data(), 0, payload.size());
    ASSERT_TRUE(pull(::getpid(), block, offsets, payload).ok());
    ASSERT_EQ(payload.view(), expected) << "round " << round;
  }
}

TEST(Lent, ManyPiecesArePulledInTheirOrder) {
  World world(kFastMaker);
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  Message message = ask(kEcho, 1);
  for (uint64_t i = 0; i < 3000; ++i) message.tensors.push_back(tensor_of(i, 100 + i % 50));
  auto answer =
      client.call_wait(world.target(*server), Method::kPeerCall, std::move(message), patience());
  ASSERT_TRUE(answer.ok()) << answer.status();
  for (uint64_t i = 0; i < 3000; ++i) {
    ASSERT_TRUE(is_tensor_of(answer->tensors.at(i), i, 100 + i % 50)) << "tensor " << i;
  }
  EXPECT_GT(world.metrics().counter("net.fast.pulled_bytes").value(), 0u);
}

TEST(Lent, RepliesOfAnotherProcessArePulled) {
  World world(kFastMaker);
  Child child({"serve", "fast", "0"});
  const Address address{.protocol = Protocol::kFast,
                        .host = "127.0.0.1",
                        .port = static_cast<uint16_t>(std::atoi(child.line().c_str()))};
  Client client(world.network());
  for (uint64_t id = 1; id <= 20; ++id) {
    auto answer = client.call_wait({.address = address}, Method::kPeerCall, ask(kMake, id, 300'000),
                                   patience());
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(is_tensor_of(answer->tensors.at(0), id, 300'000));
  }
  EXPECT_EQ(world.metrics().counter("net.fast.pulled_bytes").value(), 20u * 300'000);
}

TEST(Silence, APartOfALargeReplyBreaksIt) {
  NetOptions options{.ping_every = milliseconds(100), .ping_timeout = milliseconds(500)};
  options.token = kToken;
  options.unix_sockets = false;
  World world(kFastMaker, options);
  Parrot parrot;
  auto server = world.serve(parrot);
  Proxy proxy(server->addresses()[0].port);
  proxy.slow_down();
  Client client(world.network());
  // Takes several seconds, and no other frame comes before it is whole.
  constexpr size_t kBytes = 8 << 20;
  auto answer = client.call_wait(
      {.address = {.protocol = Protocol::kFast, .host = "127.0.0.1", .port = proxy.port()}},
      Method::kPeerCall, ask(kMake, 1, kBytes), patience());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(is_tensor_of(answer->tensors.at(0), 1, kBytes));
}

TEST(UnixSocket, OfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only the superuser can become somebody else";
  World world(kFastMaker);
  Parrot parrot;
  auto server = world.serve(parrot);
  const Address address = server->addresses()[0];
  StatusOr<ServerHello> hello = internal_error("not connected");
  Thread stranger({.name = "stranger"}, [&] {
    // Of this thread alone: the library's call would change them all.
    constexpr int kNobody = 65534;
    ASSERT_EQ(::syscall(SYS_setresuid, kNobody, kNobody, kNobody), 0);
    RawPeer peer(address.host, address.port, /*local=*/true);
    hello = peer.shake_hands(kToken);
  });
  stranger.join();
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_EQ(hello->status, static_cast<uint32_t>(StatusCode::kPermissionDenied));
  EXPECT_TRUE(parrot.came().empty());
}

TEST(UnixSocket, IsUsedOnOneHostAndTcpWhereThereIsNone) {
  World world(kFastMaker);
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  ASSERT_TRUE(
      client.call_wait(world.target(*server), Method::kPeerCall, ask(kEcho, 1), patience()).ok());
  EXPECT_THAT(parrot.came().at(0).address, testing::HasSubstr("unix"));
  NetOptions options = options_for(kFastMaker);
  options.unix_sockets = false;
  World other(kFastMaker, options);
  Client over_tcp(other.network());
  ASSERT_TRUE(
      over_tcp.call_wait(world.target(*server), Method::kPeerCall, ask(kEcho, 2), patience()).ok());
  EXPECT_THAT(parrot.came().back().address, testing::HasSubstr("127.0.0.1:"));
}

}  // namespace
}  // namespace starling::conformance
