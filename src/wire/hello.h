// The hellos of grpc++: three messages of fixed size that open a connection, before any frame.
// docs/format/wire.md gives every byte; the net decides what the proofs must be.
//
// Uses: base. Threads: free functions over values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace starling {

inline constexpr uint32_t kHelloMagic = 0x48525453;  // "STRH"
inline constexpr uint16_t kHelloVersion = 1;

using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;
using ProbeValue = std::array<std::byte, 16>;

// The first bytes of a connection.
struct ClientHello {
  static constexpr size_t kBytes = 128;
  bool has_token = false;  // flag bit 0: the client can prove that it knows the cluster token
  bool would_pull =
      false;          // flag bit 1: the client asks to pull large replies from the server's memory
  uint32_t lane = 0;  // the lane that shall own the connection
  uint32_t pid = 0;
  Nonce nonce{};
  uint64_t incarnation = 0;  // 0: not registered
  uint32_t node = 0;
  uint8_t role = 0;  // Role of types.proto
  bool operator==(const ClientHello&) const = default;
};

// The server's answer.
struct ServerHello {
  static constexpr size_t kBytes = 192;
  bool token_required = false;  // flag bit 0
  bool pull_offered = false;    // flag bit 1: probe_address and probe_value are set
  uint32_t status = 0;          // gRPC code; when not 0 the server closes after this
  uint32_t pid = 0;
  Nonce nonce{};
  Proof proof{};  // zero when no token is used
  uint64_t probe_address = 0;
  ProbeValue probe_value{};
  bool operator==(const ServerHello&) const = default;
};

// The client's last word before frames.
struct ClientProof {
  static constexpr size_t kBytes = 64;
  bool pull_works = false;  // flag bit 0: the client read probe_value at probe_address
  Proof proof{};            // zero when no token is used
  bool operator==(const ClientProof&) const = default;
};

void encode(const ClientHello& hello, std::span<std::byte, ClientHello::kBytes> out);
void encode(const ServerHello& hello, std::span<std::byte, ServerHello::kBytes> out);
void encode(const ClientProof& proof, std::span<std::byte, ClientProof::kBytes> out);

// DataLoss: not a hello at all. FailedPrecondition: another version, both named. InvalidArgument:
// unknown flags or codes, reserved bytes that are not zero, a probe that was not offered. Close the
// connection after any of them.
StatusOr<ClientHello> decode_client_hello(std::span<const std::byte, ClientHello::kBytes> bytes);
StatusOr<ServerHello> decode_server_hello(std::span<const std::byte, ServerHello::kBytes> bytes);
StatusOr<ClientProof> decode_client_proof(std::span<const std::byte, ClientProof::kBytes> bytes);

}  // namespace starling
