// Proofs of the handshake: both ends show that they know the cluster token, without sending it.
//
// Uses: base, wire, OpenSSL. Threads: free functions.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "wire/hello.h"

namespace starling {

enum class ProofOf { kServer, kClient };

// HMAC-SHA256 under the token over the name of the end and both hellos as sent (the server's with a
// zero proof), so that neither nonce, lane nor flags can be changed on the way, and one end's proof
// is of no use to the other.
Proof prove(ProofOf end, std::string_view token,
            std::span<const std::byte, ClientHello::kBytes> client, const ServerHello& server);
// In constant time.
bool equal(const Proof& a, const Proof& b);
// From the system's random numbers.
Nonce random_nonce();
ProbeValue random_probe();

}  // namespace starling
