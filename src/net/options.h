// NetOptions: limits, waiting policy and safety of the net, with their bounds.
//
// Uses: base. Threads: a value.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace starling {

// Certificates for `grpc`, as PEM files. Empty: no TLS.
struct TlsOptions {
  std::string ca_file;    // whom to trust; with it a server asks its clients for a certificate too
                          // (mutual TLS)
  std::string cert_file;  // our own certificate ...
  std::string key_file;   // ... and its key
  std::string server_name;  // the name a client expects in the server's certificate; empty: the
                            // address's host
  bool enabled() const { return !ca_file.empty() || !cert_file.empty(); }
};

// Who this process is, told to every peer.
struct Identity {
  uint8_t role = 0;  // v1::Role
  uint32_t node = 0;
  uint64_t incarnation = 0;
};

struct NetOptions {
  // Safety.
  std::string token;  // the cluster's shared secret; empty: loopback only
  TlsOptions tls;
  Identity identity;

  // Waiting.
  Duration spin = microseconds(50);  // 0 .. 10 ms
  bool polling = false;              // lanes never sleep, as many as there are cores
  int first_core = -1;               // pin lane i to core first_core + i; -1: no pinning

  // Peers that come and go.
  Duration connect_timeout = seconds(3);
  Duration handshake_timeout = seconds(5);
  Duration backoff_min = milliseconds(5);
  Duration backoff_max = seconds(1);
  // While calls are in flight. The same at both ends: a server whose lane is busy speaks up twice
  // as often by itself.
  Duration ping_every = milliseconds(1500);
  Duration ping_timeout = seconds(3);  // a peer that leaves a ping unanswered this long is dead

  // Limits. Over them a caller is slowed, or gets RESOURCE_EXHAUSTED.
  size_t message_bytes_max = size_t{1} << 30;
  uint32_t connection_requests_max = 1024;          // in flight
  size_t connection_bytes_max = size_t{512} << 20;  // in flight, requests and unread replies
  uint32_t client_channels_max = 4096;  // of one Client, a channel per target; idle ones go first
  size_t client_bytes_max = size_t{4}
                            << 30;  // of one Client, its requests in flight to all targets
  uint32_t server_requests_max = 1 << 16;
  size_t server_bytes_max = size_t{4} << 30;
  uint32_t handshakes_max = 1024;  // connections that have not proved themselves yet
  uint32_t pool_threads = 2;       // for handlers that may block
  uint32_t pool_queue_max = 4096;

  // grpc++ on one host.
  bool unix_sockets = true;
  bool pull = true;  // large replies from the peer's memory, where the kernel allows it
  size_t lend_bytes_min = 64 << 10;  // replies of this size and above are pulled
};

// InvalidArgument naming the first option that is out of its range.
Status validate(const NetOptions& options);

}  // namespace starling
