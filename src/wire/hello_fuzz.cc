// Any bytes as a client hello, a server hello or a client proof. What decodes must encode to the
// same bytes: the hellos have one form only.
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "wire/hello.h"
#include "wire/wire_testing.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file

template <typename Hello, typename Decode>
void check(std::span<const std::byte> bytes, Decode decode) {
  if (bytes.size() < Hello::kBytes) return;
  const auto input = bytes.first<Hello::kBytes>();
  const StatusOr<Hello> hello = decode(input);
  if (!hello.ok()) return;
  std::array<std::byte, Hello::kBytes> again;
  encode(*hello, again);
  wire_testing::must(std::memcmp(again.data(), input.data(), again.size()) == 0,
                     "a hello survives");
}

template <typename Hello>
std::string as_seed(const Hello& hello) {
  std::string bytes(Hello::kBytes, '\0');
  encode(hello, std::as_writable_bytes(std::span(bytes)).template first<Hello::kBytes>());
  return bytes;
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  ClientHello client{
      .has_token = true, .would_pull = true, .lane = 1, .pid = 7, .node = 3, .role = 4};
  client.nonce.fill(std::byte{0x11});
  ServerHello server{.token_required = true, .pull_offered = true, .pid = 8, .probe_address = 4096};
  server.nonce.fill(std::byte{0x22});
  server.proof.fill(std::byte{0x33});
  ClientProof proof{.pull_works = true};
  proof.proof.fill(std::byte{0x44});
  return {
      {"client_hello",
       [](auto bytes) { check<ClientHello>(bytes, decode_client_hello); },
       {as_seed(client), as_seed(ClientHello{})}},
      {"server_hello",
       [](auto bytes) { check<ServerHello>(bytes, decode_server_hello); },
       {as_seed(server), as_seed(ServerHello{.status = 16})}},
      {"client_proof",
       [](auto bytes) { check<ClientProof>(bytes, decode_client_proof); },
       {as_seed(proof), as_seed(ClientProof{})}},
  };
}
