// Ends that lie, stammer or say nothing: they are refused, and nobody else notices.

#include <unistd.h>

#include "net/conformance/raw.h"
#include "net/conformance/suite.h"
#include "net/fast/proof.h"

namespace starling::conformance {
namespace {

FrameHeader request_header(uint64_t id) {
  return {.kind = FrameKind::kRequest,
          .method = static_cast<uint16_t>(Method::kPeerCall),
          .request_id = id};
}

// Over every remote maker: what any server must survive.
class Hostile : public Conformance {
 protected:
  // The server still answers an honest client.
  static void expect_well(World& world, const Server& server) {
    Client client(world.network());
    auto answer = client.call_wait(world.target(server), Method::kPeerCall,
                                   ask_with(kEcho, 1, 10'000), patience());
    EXPECT_TRUE(answer.ok()) << answer.status();
  }
};

TEST_P(Hostile, GarbageIsNobodysHello) {
  NetOptions options = options_for(GetParam());
  options.handshake_timeout = milliseconds(500);
  World world(GetParam(), options);
  Parrot parrot;
  auto server = world.serve(parrot);
  const Address address = server->addresses()[0];
  Rng rng(1, 2, 3);
  for (const size_t bytes : {1u, 63u, 128u, 1000u, 100'000u}) {
    RawPeer peer(address.host, address.port);
    std::string garbage(bytes, '\0');
    for (char& byte : garbage) byte = static_cast<char>(rng.next_u32());
    peer.send(garbage);
    EXPECT_TRUE(peer.is_closed()) << bytes << " bytes";
  }
  expect_well(world, *server);
  EXPECT_EQ(parrot.handled().size(), 1u);
}

// The right beginning for gRPC, and garbage for grpc++.
TEST_P(Hostile, AnHttp2ClientThatStopsInAFrameIsCutOff) {
  NetOptions options = options_for(GetParam());
  options.handshake_timeout = milliseconds(500);
  World world(GetParam(), options);
  Parrot parrot;
  auto server = world.serve(parrot);
  const Address address = server->addresses()[0];
  RawPeer peer(address.host, address.port);
  ASSERT_TRUE(peer.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
  using namespace std::string_view_literals;
  ASSERT_TRUE(peer.send("\0\0\0\4\0\0\0\0\0"sv)) << "settings, none changed";
  // The headers of stream 1, 100 bytes of which 10 come.
  ASSERT_TRUE(peer.send("\0\0\x64\1\5\0\0\0\1"sv));
  ASSERT_TRUE(peer.send(std::string(10, '\x82')));
  expect_well(world, *server);
  EXPECT_TRUE(peer.is_closed());
  EXPECT_EQ(parrot.handled().size(), 1u);
}

TEST_P(Hostile, AWrongTokenIsRefusedAtOnce) {
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  for (const char* token : {"another token", ""}) {
    NetOptions options = options_for(GetParam());
    options.token = token;
    World stranger(GetParam(), options);
    Client client(stranger.network());
    auto answer =
        client.call_wait(world.target(*server), Method::kPeerCall, ask(kEcho, 2), patience());
    EXPECT_TRUE(code_is(answer.status(), StatusCode::kUnauthenticated)) << "'" << token << "'";
  }
  EXPECT_EQ(parrot.times(2), 0);
  expect_well(world, *server);
}

TEST_P(Hostile, ManyConnectionsThatSayNothingDoNotShutTheDoor) {
  NetOptions options = options_for(GetParam());
  options.handshakes_max = 8;
  options.handshake_timeout = milliseconds(300);
  World world(GetParam(), options);
  Parrot parrot;
  auto server = world.serve(parrot);
  const Address address = server->addresses()[0];
  std::vector<std::unique_ptr<RawPeer>> silent;
  for (int i = 0; i < 50; ++i) {
    silent.push_back(std::make_unique<RawPeer>(address.host, address.port));
  }
  expect_well(world, *server);
}

INSTANTIATE_TEST_SUITE_P(All, Hostile, testing::ValuesIn(and_wrapped(bare_remote_makers())),
                         maker_name);

// How a raw peer reaches a server of grpc++.
struct RawWay {
  std::string name;
  bool local = false;   // over its Unix socket, else TCP
  bool faulty = false;  // the server's network is wrapped
};

// What only grpc++ can be told, over TCP and over its Unix socket.
class HostileFrames : public testing::TestWithParam<RawWay> {
 protected:
  void serve(NetOptions options) {
    options.token = kToken;
    world_ = std::make_unique<World>(
        Maker{.name = "fast", .protocol = Protocol::kFast, .faulty = GetParam().faulty}, options);
    server_ = world_->serve(parrot_);
  }
  RawPeer connect() {
    const Address address = server_->addresses()[0];
    return RawPeer(address.host, address.port, GetParam().local);
  }
  void expect_well() {
    Client client(world_->network());
    auto answer = client.call_wait(world_->target(*server_), Method::kPeerCall,
                                   ask_with(kEcho, 1, 10'000), patience());
    EXPECT_TRUE(answer.ok()) << answer.status();
  }

  Parrot parrot_;
  std::unique_ptr<World> world_;
  std::unique_ptr<Server> server_;
};

TEST_P(HostileFrames, TheRawPeerCanBeHonest) {
  serve({});
  RawPeer peer = connect();
  ASSERT_TRUE(peer.shake_hands(kToken).ok());
  ASSERT_TRUE(peer.send_frame(request_header(5), ask_with(kEcho, 5, 100)));
  auto answer = peer.receive_frame();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->header.kind, FrameKind::kReply);
  EXPECT_EQ(answer->header.request_id, 5u);
  EXPECT_EQ(answer->header.status, 0u);
}

TEST_P(HostileFrames, AnotherVersionOfTheHelloIsRefusedByName) {
  serve({});
  RawPeer peer = connect();
  std::array<std::byte, ClientHello::kBytes> hello;
  encode(honest_hello(true), hello);
  hello[4] = std::byte{99};
  ASSERT_TRUE(peer.send(hello));
  const std::string answer = peer.receive(ServerHello::kBytes);
  ASSERT_EQ(answer.size(), ServerHello::kBytes);
  auto server = decode_server_hello(std::as_bytes(std::span(answer)).first<ServerHello::kBytes>());
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(server->status, static_cast<uint32_t>(StatusCode::kFailedPrecondition));
  EXPECT_TRUE(peer.is_closed());
  expect_well();
}

TEST_P(HostileFrames, AProofUnderAnotherTokenIsRefused) {
  serve({});
  RawPeer peer = connect();
  (void)peer.shake_hands("not the token");
  peer.send_frame(request_header(5), ask(kEcho, 5));
  EXPECT_TRUE(peer.is_closed());
  EXPECT_EQ(parrot_.times(5), 0);
  expect_well();
}

TEST_P(HostileFrames, HalfAHelloThenSilenceIsCutOff) {
  serve({.handshake_timeout = milliseconds(300)});
  RawPeer peer = connect();
  std::array<std::byte, ClientHello::kBytes> hello;
  encode(honest_hello(true), hello);
  ASSERT_TRUE(peer.send(std::span(hello).first(50)));
  expect_well();
  EXPECT_TRUE(peer.is_closed());
}

TEST_P(HostileFrames, GarbageInPlaceOfAFrameEndsThatConnectionOnly) {
  serve({});
  RawPeer peer = connect();
  ASSERT_TRUE(peer.shake_hands(kToken).ok());
  ASSERT_TRUE(peer.send(std::string(200, 'x')));
  EXPECT_TRUE(peer.is_closed());
  expect_well();
}

TEST_P(HostileFrames, AFrameOfAnotherVersionEndsTheConnection) {
  serve({});
  RawPeer peer = connect();
  ASSERT_TRUE(peer.shake_hands(kToken).ok());
  auto frame = *encode_frame(request_header(5), ask(kEcho, 5));
  Buffer changed = Buffer::copy_of(frame.head.bytes());
  changed.mutable_bytes()[4] = std::byte{77};
  ASSERT_TRUE(peer.send(changed.bytes()));
  EXPECT_TRUE(peer.is_closed());
  EXPECT_EQ(parrot_.times(5), 0);
  expect_well();
}

TEST_P(HostileFrames, HalfAFrameThenSilenceIsGivenUp) {
  serve({.ping_every = milliseconds(20), .ping_timeout = milliseconds(25)});
  RawPeer peer = connect();
  ASSERT_TRUE(peer.shake_hands(kToken).ok());
  auto frame = *encode_frame(request_header(5), ask_with(kEcho, 5, 2000));
  ASSERT_TRUE(peer.send(frame.head.bytes().first(frame.head.size() / 2)));
  expect_well();
  EXPECT_TRUE(peer.is_closed());
  EXPECT_EQ(parrot_.times(5), 0);
}

TEST_P(HostileFrames, LengthsAreNotBelievedBeforeTheProof) {
  serve({});
  const size_t before = resident_bytes();
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = 0; i < 10; ++i) {
    peers.push_back(std::make_unique<RawPeer>(connect()));
    std::array<std::byte, ClientHello::kBytes> hello;
    encode(honest_hello(true), hello);
    ASSERT_TRUE(peers.back()->send(hello));
    // A frame that announces a gigabyte, where the proof should be.
    FrameHeader header = request_header(5);
    header.payload_bytes = uint64_t{1} << 30;
    std::array<std::byte, kFrameHeaderBytes> bytes;
    encode_header(header, bytes);
    ASSERT_TRUE(peers.back()->send(bytes));
  }
  for (const auto& peer : peers) EXPECT_TRUE(peer->is_closed());
  EXPECT_LT(resident_bytes(), before + (64u << 20));
  expect_well();
}

TEST_P(HostileFrames, LengthsAboveTheLimitEndTheConnectionWithoutAnAllocation) {
  serve({.message_bytes_max = 1 << 20});
  const size_t before = resident_bytes();
  for (const uint64_t bytes : {uint64_t{2} << 20, uint64_t{1} << 40, UINT64_MAX}) {
    RawPeer peer = connect();
    ASSERT_TRUE(peer.shake_hands(kToken).ok());
    FrameHeader header = request_header(5);
    header.tensor_count = 1;
    header.payload_bytes = bytes;
    std::array<std::byte, kFrameHeaderBytes> head;
    encode_header(header, head);
    ASSERT_TRUE(peer.send(head));
    EXPECT_TRUE(peer.is_closed()) << bytes;
  }
  EXPECT_LT(resident_bytes(), before + (64u << 20));
  expect_well();
}

TEST_P(HostileFrames, AReplyToAServerEndsTheConnectionWithoutAnAllocation) {
  // Nor does it look like a frame that stops half way.
  serve({.ping_timeout = seconds(600)});
  RawPeer peer = connect();
  ASSERT_TRUE(peer.shake_hands(kToken).ok());
  FrameHeader header{.kind = FrameKind::kReply, .request_id = 5};
  header.meta_bytes = 5;
  header.tensor_count = 1;
  header.payload_bytes = uint64_t{1} << 30;
  std::array<std::byte, kFrameHeaderBytes> head;
  encode_header(header, head);
  ASSERT_TRUE(peer.send(head));
  // Not a byte of the message was waited for.
  EXPECT_TRUE(peer.is_closed());
  expect_well();
}

TEST_P(HostileFrames, ABadMessageEndsThatRequestOnly) {
  serve({});
  RawPeer peer = connect();
  ASSERT_TRUE(peer.shake_hands(kToken).ok());
  // The header is right, the meta part is not a message.
  auto frame = *encode_frame(request_header(5), ask(kEcho, 5));
  Buffer changed = Buffer::copy_of(frame.head.bytes());
  for (std::byte& byte : changed.mutable_bytes().subspan(kFrameHeaderBytes)) byte = std::byte{255};
  ASSERT_TRUE(peer.send(changed.bytes()));
  auto answer = peer.receive_frame();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->header.kind, FrameKind::kReply);
  EXPECT_EQ(answer->header.status, static_cast<uint32_t>(StatusCode::kInvalidArgument));
  ASSERT_TRUE(peer.send_frame(request_header(6), ask(kEcho, 6)));
  answer = peer.receive_frame();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->header.status, 0u);
}

TEST_P(HostileFrames, ARequestIsDroppedByItsOwnDeadlineWithoutACancel) {
  serve({});
  RawPeer peer = connect();
  ASSERT_TRUE(peer.shake_hands(kToken).ok());
  FrameHeader late = request_header(6);
  late.deadline_us = 1;
  // In one piece, so that the second is read before the first holds the lane.
  std::string both(encode_frame(request_header(5), ask(kWait, 5))->head.view());
  both += encode_frame(late, ask(kEcho, 6))->head.view();
  ASSERT_TRUE(peer.send(both));
  ASSERT_TRUE(parrot_.wait_for([&] { return parrot_.times(5) == 1; }));
  std::this_thread::sleep_for(milliseconds(1));
  parrot_.open();
  ASSERT_TRUE(peer.receive_frame().has_value());
  auto answer = peer.receive_frame();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->header.request_id, 6u);
  EXPECT_EQ(answer->header.status, static_cast<uint32_t>(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(parrot_.times(6), 0);
}

TEST_P(HostileFrames, AnUnknownMethodIsUnimplemented) {
  serve({});
  RawPeer peer = connect();
  ASSERT_TRUE(peer.shake_hands(kToken).ok());
  FrameHeader header = request_header(5);
  header.method = 999;
  ASSERT_TRUE(peer.send_frame(header, ask(kEcho, 5)));
  auto answer = peer.receive_frame();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->header.status, static_cast<uint32_t>(StatusCode::kUnimplemented));
  EXPECT_THAT(answer->rest, testing::HasSubstr("999"));
}

TEST_P(HostileFrames, AResendOfWhatIsNotLentIsAnswered) {
  serve({});
  RawPeer peer = connect();
  ASSERT_TRUE(peer.shake_hands(kToken).ok());
  ASSERT_TRUE(peer.send(encode_control({.kind = FrameKind::kResend, .request_id = 5}).bytes()));
  auto answer = peer.receive_frame();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->header.request_id, 5u);
  EXPECT_EQ(answer->header.status, static_cast<uint32_t>(StatusCode::kFailedPrecondition));
  ASSERT_TRUE(peer.send_frame(request_header(6), ask(kEcho, 6)));
  answer = peer.receive_frame();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->header.status, 0u);
}

TEST_P(HostileFrames, PingsOfAPeerThatNeverReadsPileUpNoAnswers) {
  serve({});
  RawPeer peer = connect();
  ASSERT_TRUE(peer.shake_hands(kToken).ok());
  std::string pings;
  for (int i = 0; i < 10'000; ++i) pings += encode_control({.kind = FrameKind::kPing}).view();
  const size_t before = resident_bytes();
  constexpr int kTimes = kSanitized ? 20 : 60;
  for (int i = 0; i < kTimes; ++i) ASSERT_TRUE(peer.send(pings));
  // All of them are read before the request behind them is.
  ASSERT_TRUE(peer.send_frame(request_header(5), ask(kHold, 5)));
  ASSERT_TRUE(parrot_.wait_for([&] { return parrot_.held() == 1; }));
  EXPECT_LT(resident_bytes(), before + (kSanitized ? 60u << 20 : 30u << 20));
  expect_well();
}

TEST_P(HostileFrames, ARequestIdInFlightIsNotTakenTwice) {
  serve({});
  RawPeer peer = connect();
  ASSERT_TRUE(peer.shake_hands(kToken).ok());
  ASSERT_TRUE(peer.send_frame(request_header(5), ask(kHold, 5)));
  ASSERT_TRUE(peer.send_frame(request_header(5), ask(kHold, 5)));
  auto answer = peer.receive_frame();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->header.status, static_cast<uint32_t>(StatusCode::kInvalidArgument));
  ASSERT_TRUE(parrot_.wait_for([&] { return parrot_.held() == 1; }));
  EXPECT_EQ(parrot_.times(5), 1);
  // The first one has not become anything else by that.
  ASSERT_TRUE(peer.send(encode_control({.kind = FrameKind::kCancel, .request_id = 5}).bytes()));
  ASSERT_TRUE(parrot_.wait_for([&] { return parrot_.held_cancelled() == 1; }));
}

TEST_P(HostileFrames, ARequestIdOfALentReplyIsNotTakenBeforeItsRelease) {
  serve({});
  RawPeer peer = connect();
  ASSERT_TRUE(peer.shake_hands(kToken, /*asks_to_pull=*/true).ok());
  ASSERT_TRUE(peer.send_frame(request_header(5), ask(kMake, 5, 1 << 20)));
  auto answer = peer.receive_frame();
  ASSERT_TRUE(answer.has_value());
  const bool lent = (answer->header.flags & kFlagLent) != 0;
  EXPECT_EQ(lent, GetParam().local) << "on a Unix socket alone";
  ASSERT_TRUE(peer.send_frame(request_header(5), ask(kEcho, 5)));
  answer = peer.receive_frame();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->header.status,
            static_cast<uint32_t>(lent ? StatusCode::kInvalidArgument : StatusCode::kOk));
  ASSERT_TRUE(peer.send(encode_control({.kind = FrameKind::kRelease, .request_id = 5}).bytes()));
  ASSERT_TRUE(peer.send_frame(request_header(5), ask(kEcho, 5)));
  answer = peer.receive_frame();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->header.status, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    All, HostileFrames,
    testing::Values(RawWay{.name = "tcp"}, RawWay{.name = "local", .local = true},
                    RawWay{.name = "tcp_in_faulty", .faulty = true},
                    RawWay{.name = "local_in_faulty", .local = true, .faulty = true}),
    [](const auto& info) { return info.param.name; });

// A server that is not what it should be, to a client that is wrapped or not.
class HostileServer : public testing::TestWithParam<bool> {
 protected:
  explicit HostileServer(bool local = false)
      : world_(
            Maker{.name = "fast", .protocol = Protocol::kFast, .faulty = GetParam()},
            // Longer than any test: nobody connects a second time.
            {.token = std::string(kToken), .backoff_min = seconds(60), .backoff_max = seconds(60)}),
        listener_(local),
        client_(world_.network()) {
    client_.call(target(), Method::kPeerCall, ask(kEcho, 1), patience(), ends_.take(1));
  }
  // Waits for the client's hello and answers with this one.
  void answer(RawPeer& peer, const ServerHello& hello, std::byte version = std::byte{1}) {
    ASSERT_EQ(peer.receive(ClientHello::kBytes).size(), ClientHello::kBytes);
    std::array<std::byte, ServerHello::kBytes> bytes;
    encode(hello, bytes);
    bytes[4] = version;
    ASSERT_TRUE(peer.send(bytes));
  }

  // The same as an honest server would, with what else it offers; the client's last word.
  ClientProof shake_hands(RawPeer& peer, ServerHello hello = {}) {
    const std::string theirs = peer.receive(ClientHello::kBytes);
    EXPECT_EQ(theirs.size(), ClientHello::kBytes);
    hello.token_required = true;
    hello.pid = static_cast<uint32_t>(::getpid());
    hello.proof = prove(ProofOf::kServer, kToken,
                        std::as_bytes(std::span(theirs)).first<ClientHello::kBytes>(), hello);
    std::array<std::byte, ServerHello::kBytes> mine;
    encode(hello, mine);
    EXPECT_TRUE(peer.send(mine));
    const std::string last = peer.receive(ClientProof::kBytes);
    EXPECT_EQ(last.size(), ClientProof::kBytes);
    const auto proof =
        decode_client_proof(std::as_bytes(std::span(last)).first<ClientProof::kBytes>());
    EXPECT_TRUE(proof.ok()) << proof.status();
    return proof.ok() ? *proof : ClientProof();
  }
  // Waits until the client has read all that was sent.
  void wait_for_pong(RawPeer& peer) {
    ASSERT_TRUE(peer.send(encode_control({.kind = FrameKind::kPing}).bytes()));
    const auto answer = peer.receive_frame();
    ASSERT_TRUE(answer.has_value());
    ASSERT_EQ(answer->header.kind, FrameKind::kPong);
  }
  Target target() const {
    return {
        .address = {.protocol = Protocol::kFast, .host = "127.0.0.1", .port = listener_.port()}};
  }

  World world_;
  RawListener listener_;
  Ends ends_;
  Client client_;
};

TEST_P(HostileServer, WithoutTheTokenIsRefusedByTheClient) {
  RawPeer peer = listener_.accept();
  answer(peer, {.token_required = true, .pid = 1});
  ASSERT_TRUE(ends_.wait(1));
  EXPECT_TRUE(code_is(ends_.at(1).status(), StatusCode::kUnauthenticated));
  // It learns nothing more: neither the client's proof nor a request.
  EXPECT_EQ(peer.receive(1), "");
}

TEST_P(HostileServer, ThatSaysItNeedsNoTokenIsRefusedToo) {
  RawPeer peer = listener_.accept();
  answer(peer, {.token_required = false, .pid = 1});
  ASSERT_TRUE(ends_.wait(1));
  EXPECT_TRUE(code_is(ends_.at(1).status(), StatusCode::kUnauthenticated));
  EXPECT_EQ(peer.receive(1), "");
}

TEST_P(HostileServer, OfAnotherVersionIsNamed) {
  RawPeer peer = listener_.accept();
  answer(peer, {.token_required = true, .pid = 1}, std::byte{9});
  ASSERT_TRUE(ends_.wait(1));
  EXPECT_TRUE(code_is(ends_.at(1).status(), StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(message_of(ends_.at(1).status())), testing::HasSubstr("version 9"));
}

TEST_P(HostileServer, ThatTalksGarbageIsNotBelieved) {
  RawPeer peer = listener_.accept();
  ASSERT_TRUE(peer.send(std::string(ServerHello::kBytes, 'g')));
  ASSERT_TRUE(ends_.wait(1));
  EXPECT_FALSE(ends_.at(1).ok());
}

TEST_P(HostileServer, ThatGoesAwayTwiceEndsAlsoTheCallsThatWaitForAnotherConnection) {
  RawPeer peer = listener_.accept();
  shake_hands(peer);
  ASSERT_TRUE(peer.receive_frame().has_value());
  ASSERT_TRUE(peer.send(encode_control({.kind = FrameKind::kGoaway}).bytes()));
  wait_for_pong(peer);
  // Waits for the next connection: this one takes nothing new.
  client_.call(target(), Method::kPeerCall, ask(kEcho, 2), patience(), ends_.take(2));
  turn(client_.lane());
  constexpr auto kCode = StatusCode::kPermissionDenied;
  ASSERT_TRUE(
      peer.send(encode_control({.kind = FrameKind::kGoaway, .status = static_cast<uint32_t>(kCode)})
                    .bytes()));
  ASSERT_TRUE(ends_.wait(2));
  EXPECT_TRUE(code_is(ends_.at(1).status(), kCode));
  EXPECT_TRUE(code_is(ends_.at(2).status(), kCode));
}

TEST_P(HostileServer, ThatCutsACallIsNotAskedAgainAtOnce) {
  RawPeer peer = listener_.accept();
  shake_hands(peer);
  ASSERT_TRUE(peer.receive_frame().has_value());
  client_.call(
      target(), Method::kPeerCall, ask(kEcho, 2), patience(), [&](StatusOr<Message> result) {
        client_.call(target(), Method::kPeerCall, ask(kEcho, 3), patience(), ends_.take(3));
        ends_.take(2)(std::move(result));
      });
  ASSERT_TRUE(peer.receive_frame().has_value());
  { const RawPeer last = std::move(peer); }
  ASSERT_TRUE(ends_.wait(2));
  turn(client_.lane());
  EXPECT_FALSE(listener_.pending()) << "a call made in the end of another one must wait too";
}

TEST_P(HostileServer, ThatBreaksTheStreamIsNamed) {
  RawPeer peer = listener_.accept();
  shake_hands(peer);
  ASSERT_TRUE(peer.receive_frame().has_value());
  ASSERT_TRUE(peer.send(std::string(kFrameHeaderBytes, 'x')));
  ASSERT_TRUE(ends_.wait(1));
  EXPECT_TRUE(code_is(ends_.at(1).status(), StatusCode::kDataLoss));
  EXPECT_THAT(std::string(message_of(ends_.at(1).status())),
              testing::HasSubstr(target().address.to_string()));
}

INSTANTIATE_TEST_SUITE_P(All, HostileServer, testing::Bool(),
                         [](const auto& info) { return info.param ? "fast_in_faulty" : "fast"; });

// One on the client's own host, which offers its memory.
class HostileLender : public HostileServer {
 protected:
  HostileLender() : HostileServer(/*local=*/true) {}
  ServerHello offer() {
    return {.pull_offered = true,
            .probe_address = reinterpret_cast<uint64_t>(probe_.data()),
            .probe_value = probe_};
  }
  // Lends the reply under `generation`, where the memory has kGeneration.
  void lend(RawPeer& peer, uint64_t request_id, uint64_t generation) {
    const LendBlock block{.lend_id = 1,
                          .generation = generation,
                          .generation_address = reinterpret_cast<uint64_t>(&word_)};
    const auto frame = encode_lent_frame(reply_header(request_id), reply_, block);
    ASSERT_TRUE(frame.ok()) << frame.status();
    ASSERT_TRUE(peer.send(frame->bytes()));
  }
  static FrameHeader reply_header(uint64_t request_id) {
    return {.kind = FrameKind::kReply, .request_id = request_id};
  }
  uint64_t pulled() { return world_.metrics().counter("net.fast.pulled_bytes").value(); }

  static constexpr uint64_t kGeneration = 7;
  static constexpr size_t kBytes = 100'000;
  const ProbeValue probe_ = random_probe();
  const uint64_t word_ = kGeneration;
  const Message reply_ = ask_with(kEcho, 1, kBytes);
};

TEST_P(HostileLender, WhoseProbeLiesIsNotPulledFrom) {
  RawPeer peer = listener_.accept();
  ServerHello liar = offer();
  liar.probe_value[3] ^= std::byte{1};
  EXPECT_FALSE(shake_hands(peer, liar).pull_works);
}

TEST_P(HostileLender, WhoseProbeIsNowhereIsNotPulledFrom) {
  RawPeer peer = listener_.accept();
  ServerHello liar = offer();
  liar.probe_address = 8;
  EXPECT_FALSE(shake_hands(peer, liar).pull_works);
}

TEST_P(HostileLender, ThatIsHonestIsPulledFromAndToldSo) {
  RawPeer peer = listener_.accept();
  EXPECT_TRUE(shake_hands(peer, offer()).pull_works);
  const auto request = peer.receive_frame();
  ASSERT_TRUE(request.has_value());
  lend(peer, request->header.request_id, kGeneration);
  ASSERT_TRUE(ends_.wait(1));
  ASSERT_TRUE(ends_.at(1).ok()) << ends_.at(1).status();
  EXPECT_TRUE(is_tensor_of(ends_.at(1)->tensors.at(0), 1, kBytes));
  EXPECT_EQ(pulled(), kBytes);
  const auto word = peer.receive_frame();
  ASSERT_TRUE(word.has_value());
  EXPECT_EQ(word->header.kind, FrameKind::kRelease);
  EXPECT_EQ(word->header.request_id, request->header.request_id);
}

TEST_P(HostileLender, ThatTookItsMemoryBackIsAskedToSendTheReply) {
  RawPeer peer = listener_.accept();
  EXPECT_TRUE(shake_hands(peer, offer()).pull_works);
  const auto request = peer.receive_frame();
  ASSERT_TRUE(request.has_value());
  lend(peer, request->header.request_id, kGeneration + 1);
  const auto word = peer.receive_frame();
  ASSERT_TRUE(word.has_value());
  EXPECT_EQ(word->header.kind, FrameKind::kResend);
  EXPECT_EQ(word->header.request_id, request->header.request_id);
  EXPECT_EQ(ends_.count(), 0u);
  ASSERT_TRUE(peer.send_frame(reply_header(request->header.request_id), reply_));
  ASSERT_TRUE(ends_.wait(1));
  ASSERT_TRUE(ends_.at(1).ok()) << ends_.at(1).status();
  EXPECT_TRUE(is_tensor_of(ends_.at(1)->tensors.at(0), 1, kBytes));
  EXPECT_EQ(pulled(), 0u);
}

TEST_P(HostileLender, ThatLendsInsteadOfSendingIsNotAskedForEver) {
  RawPeer peer = listener_.accept();
  EXPECT_TRUE(shake_hands(peer, offer()).pull_works);
  const auto request = peer.receive_frame();
  ASSERT_TRUE(request.has_value());
  lend(peer, request->header.request_id, kGeneration + 1);
  lend(peer, request->header.request_id, kGeneration + 2);
  ASSERT_TRUE(ends_.wait(1));
  EXPECT_TRUE(code_is(ends_.at(1).status(), StatusCode::kAborted));
}

INSTANTIATE_TEST_SUITE_P(All, HostileLender, testing::Bool(),
                         [](const auto& info) { return info.param ? "fast_in_faulty" : "fast"; });

}  // namespace
}  // namespace starling::conformance
