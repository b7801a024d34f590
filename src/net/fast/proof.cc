#include "net/fast/proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"

namespace starling {
namespace {

template <typename T>
T random_bytes() {
  T out;
  STARLING_CHECK(
      RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(out.size())) == 1,
      "the system has no random numbers");
  return out;
}

}  // namespace

Proof prove(ProofOf end, std::string_view token,
            std::span<const std::byte, ClientHello::kBytes> client, const ServerHello& server) {
  ServerHello unproved = server;
  unproved.proof = {};
  std::array<std::byte, ServerHello::kBytes> server_bytes;
  encode(unproved, server_bytes);
  std::vector<std::byte> text;
  const std::string_view label =
      end == ProofOf::kServer ? "starling server v1" : "starling client v1";
  for (const char c : label) text.push_back(static_cast<std::byte>(c));
  text.insert(text.end(), client.begin(), client.end());
  text.insert(text.end(), server_bytes.begin(), server_bytes.end());

  Proof out;
  unsigned length = 0;
  const unsigned char* made = HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                   reinterpret_cast<unsigned char*>(out.data()), &length);
  STARLING_CHECK(made != nullptr && length == out.size(), "HMAC-SHA256 failed");
  return out;
}

bool equal(const Proof& a, const Proof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Nonce random_nonce() { return random_bytes<Nonce>(); }

ProbeValue random_probe() { return random_bytes<ProbeValue>(); }

}  // namespace starling
