#include "wire/hello.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

namespace starling {
namespace {

template <size_t N>
std::array<std::byte, N> counted(int first) {
  std::array<std::byte, N> bytes;
  for (size_t i = 0; i < N; ++i) bytes[i] = static_cast<std::byte>(first + static_cast<int>(i));
  return bytes;
}

ClientHello client_hello() {
  ClientHello hello;
  hello.has_token = true;
  hello.would_pull = true;
  hello.lane = 2;
  hello.pid = 4711;
  hello.nonce = counted<32>(1);
  hello.incarnation = 0x1122334455667788;
  hello.node = 5;
  hello.role = 4;
  return hello;
}

ServerHello server_hello() {
  ServerHello hello;
  hello.token_required = true;
  hello.pull_offered = true;
  hello.status = 0;
  hello.pid = 4712;
  hello.nonce = counted<32>(40);
  hello.proof = counted<32>(80);
  hello.probe_address = 0x7fff00001000;
  hello.probe_value = counted<16>(120);
  return hello;
}

ClientProof client_proof() {
  ClientProof proof;
  proof.pull_works = true;
  proof.proof = counted<32>(160);
  return proof;
}

template <typename Hello>
std::array<std::byte, Hello::kBytes> encoded(const Hello& hello) {
  std::array<std::byte, Hello::kBytes> bytes;
  encode(hello, bytes);
  return bytes;
}

std::string hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes) out += fmt::format("{:02x}", static_cast<int>(b));
  return out;
}

TEST(Hello, RoundTrips) {
  EXPECT_EQ(*decode_client_hello(encoded(client_hello())), client_hello());
  EXPECT_EQ(*decode_server_hello(encoded(server_hello())), server_hello());
  EXPECT_EQ(*decode_client_proof(encoded(client_proof())), client_proof());
  EXPECT_EQ(*decode_client_hello(encoded(ClientHello{})), ClientHello{});
  EXPECT_EQ(*decode_server_hello(encoded(ServerHello{})), ServerHello{});
  EXPECT_EQ(*decode_client_proof(encoded(ClientProof{})), ClientProof{});
}

TEST(Hello, GarbageIsDataLoss) {
  auto bytes = encoded(client_hello());
  bytes[0] = std::byte{'G'};
  EXPECT_EQ(decode_client_hello(bytes).status().code(), StatusCode::kDataLoss);
}

TEST(Hello, AnotherVersionIsNamedWithOurs) {
  auto bytes = encoded(server_hello());
  bytes[4] = std::byte{2};
  bytes[191] = std::byte{1};  // a later version may use what is reserved now
  const Status status = decode_server_hello(bytes).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(message_of(status), "server hello has version 2, we speak 1");
}

TEST(Hello, ReservedBytesMustBeZero) {
  for (size_t i = 61; i < ClientHello::kBytes; ++i) {
    auto bytes = encoded(client_hello());
    bytes[i] = std::byte{1};
    EXPECT_EQ(decode_client_hello(bytes).status().code(), StatusCode::kInvalidArgument) << i;
  }
  for (size_t i = 104; i < ServerHello::kBytes; ++i) {
    auto bytes = encoded(server_hello());
    bytes[i] = std::byte{1};
    EXPECT_EQ(decode_server_hello(bytes).status().code(), StatusCode::kInvalidArgument) << i;
  }
  for (size_t i = 40; i < ClientProof::kBytes; ++i) {
    auto bytes = encoded(client_proof());
    bytes[i] = std::byte{1};
    EXPECT_EQ(decode_client_proof(bytes).status().code(), StatusCode::kInvalidArgument) << i;
  }
}

TEST(Hello, UnknownFlagsRolesAndCodesAreRefused) {
  auto client = encoded(client_hello());
  client[6] = std::byte{4};
  EXPECT_EQ(decode_client_hello(client).status().code(), StatusCode::kInvalidArgument);
  client = encoded(client_hello());
  client[60] = std::byte{6};
  EXPECT_EQ(decode_client_hello(client).status().code(), StatusCode::kInvalidArgument);
  auto server = encoded(server_hello());
  server[8] = std::byte{17};
  EXPECT_EQ(decode_server_hello(server).status().code(), StatusCode::kInvalidArgument);
  auto proof = encoded(client_proof());
  proof[6] = std::byte{2};
  EXPECT_EQ(decode_client_proof(proof).status().code(), StatusCode::kInvalidArgument);
}

TEST(Hello, AProbeAndItsOfferComeTogether) {
  ServerHello hello = server_hello();
  hello.pull_offered = false;
  EXPECT_EQ(decode_server_hello(encoded(hello)).status().code(), StatusCode::kInvalidArgument);
  hello = server_hello();
  hello.probe_address = 0;
  EXPECT_EQ(decode_server_hello(encoded(hello)).status().code(), StatusCode::kInvalidArgument);
}

// Frozen: a change here breaks every peer of another build. Raise kHelloVersion instead.
TEST(HelloGolden, BytesNeverChange) {
  EXPECT_EQ(hex(encoded(client_hello())),
            "535452480100030002000000671200000102030405060708090a0b0c0d0e0f10"
            "1112131415161718191a1b1c1d1e1f2088776655443322110500000004000000"
            "0000000000000000000000000000000000000000000000000000000000000000"
            "0000000000000000000000000000000000000000000000000000000000000000");
  EXPECT_EQ(hex(encoded(server_hello())),
            "5354524801000300000000006812000028292a2b2c2d2e2f3031323334353637"
            "38393a3b3c3d3e3f4041424344454647505152535455565758595a5b5c5d5e5f"
            "606162636465666768696a6b6c6d6e6f00100000ff7f000078797a7b7c7d7e7f"
            "8081828384858687000000000000000000000000000000000000000000000000"
            "0000000000000000000000000000000000000000000000000000000000000000"
            "0000000000000000000000000000000000000000000000000000000000000000");
  EXPECT_EQ(hex(encoded(client_proof())),
            "5354524801000100a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7"
            "b8b9babbbcbdbebf000000000000000000000000000000000000000000000000");
}

}  // namespace
}  // namespace starling
