#include "wire/hello.h"

#include <cstring>

#include "wire/bytes.h"

namespace starling {
namespace {

using wire_internal::all_zero;
using wire_internal::put;
using wire_internal::take;

constexpr uint32_t kCodeMax = 16;
constexpr uint8_t kRoleMax = 5;

template <size_t N>
void put_block(std::span<std::byte> out, size_t offset, const std::array<std::byte, N>& block) {
  std::memcpy(out.data() + offset, block.data(), N);
}

template <typename Block>
Block take_block(std::span<const std::byte> in, size_t offset) {
  Block block;
  std::memcpy(block.data(), in.data() + offset, block.size());
  return block;
}

// The first eight bytes are the same in all hellos: magic, version, flags. Returns with the rest
// cleared.
void start(std::span<std::byte> out, uint16_t flags) {
  std::memset(out.data(), 0, out.size());
  put(out, 0, kHelloMagic);
  put(out, 4, kHelloVersion);
  put(out, 6, flags);
}

StatusOr<uint16_t> check_start(std::span<const std::byte> bytes, const char* what,
                               uint16_t flags_known, size_t used_bytes) {
  if (const auto magic = take<uint32_t>(bytes, 0); magic != kHelloMagic) {
    return data_loss("{} starts with {:#010x}, not with {:#010x}", what, magic, kHelloMagic);
  }
  if (const auto version = take<uint16_t>(bytes, 4); version != kHelloVersion) {
    return failed_precondition("{} has version {}, we speak {}", what, version, kHelloVersion);
  }
  const auto flags = take<uint16_t>(bytes, 6);
  if ((flags & ~flags_known) != 0) {
    return invalid_argument("{} has unknown flags {:#x}", what, flags);
  }
  if (!all_zero(bytes.subspan(used_bytes))) {
    return invalid_argument("{}: reserved bytes are not zero", what);
  }
  return flags;
}

uint16_t bits(bool bit0, bool bit1) {
  return static_cast<uint16_t>((bit0 ? 1 : 0) | (bit1 ? 2 : 0));
}

}  // namespace

void encode(const ClientHello& hello, std::span<std::byte, ClientHello::kBytes> out) {
  start(out, bits(hello.has_token, hello.would_pull));
  put(out, 8, hello.lane);
  put(out, 12, hello.pid);
  put_block(out, 16, hello.nonce);
  put(out, 48, hello.incarnation);
  put(out, 56, hello.node);
  put(out, 60, hello.role);
}

StatusOr<ClientHello> decode_client_hello(std::span<const std::byte, ClientHello::kBytes> bytes) {
  STARLING_ASSIGN_OR_RETURN(const uint16_t flags, check_start(bytes, "client hello", 3, 61));
  ClientHello hello;
  hello.has_token = (flags & 1) != 0;
  hello.would_pull = (flags & 2) != 0;
  hello.lane = take<uint32_t>(bytes, 8);
  hello.pid = take<uint32_t>(bytes, 12);
  hello.nonce = take_block<Nonce>(bytes, 16);
  hello.incarnation = take<uint64_t>(bytes, 48);
  hello.node = take<uint32_t>(bytes, 56);
  hello.role = take<uint8_t>(bytes, 60);
  if (hello.role > kRoleMax)
    return invalid_argument("client hello has unknown role {}", hello.role);
  return hello;
}

void encode(const ServerHello& hello, std::span<std::byte, ServerHello::kBytes> out) {
  start(out, bits(hello.token_required, hello.pull_offered));
  put(out, 8, hello.status);
  put(out, 12, hello.pid);
  put_block(out, 16, hello.nonce);
  put_block(out, 48, hello.proof);
  put(out, 80, hello.probe_address);
  put_block(out, 88, hello.probe_value);
}

StatusOr<ServerHello> decode_server_hello(std::span<const std::byte, ServerHello::kBytes> bytes) {
  STARLING_ASSIGN_OR_RETURN(const uint16_t flags, check_start(bytes, "server hello", 3, 104));
  ServerHello hello;
  hello.token_required = (flags & 1) != 0;
  hello.pull_offered = (flags & 2) != 0;
  hello.status = take<uint32_t>(bytes, 8);
  hello.pid = take<uint32_t>(bytes, 12);
  hello.nonce = take_block<Nonce>(bytes, 16);
  hello.proof = take_block<Proof>(bytes, 48);
  hello.probe_address = take<uint64_t>(bytes, 80);
  hello.probe_value = take_block<ProbeValue>(bytes, 88);
  if (hello.status > kCodeMax) {
    return invalid_argument("server hello has unknown status {}", hello.status);
  }
  if (!hello.pull_offered && (hello.probe_address != 0 || !all_zero(hello.probe_value))) {
    return invalid_argument("server hello has a probe without offering a pull");
  }
  if (hello.pull_offered && (hello.probe_address == 0 || hello.pid == 0)) {
    return invalid_argument("server hello offers a pull without saying where to probe");
  }
  return hello;
}

void encode(const ClientProof& proof, std::span<std::byte, ClientProof::kBytes> out) {
  start(out, bits(proof.pull_works, false));
  put_block(out, 8, proof.proof);
}

StatusOr<ClientProof> decode_client_proof(std::span<const std::byte, ClientProof::kBytes> bytes) {
  STARLING_ASSIGN_OR_RETURN(const uint16_t flags, check_start(bytes, "client proof", 1, 40));
  ClientProof proof;
  proof.pull_works = (flags & 1) != 0;
  proof.proof = take_block<Proof>(bytes, 8);
  return proof;
}

}  // namespace starling
