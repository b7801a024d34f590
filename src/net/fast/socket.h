// Sockets of grpc++: TCP on IPv4 and IPv6, and on one host a Unix socket beside each TCP port.
//
// Uses: base. Threads: a Socket has one owner.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace starling {

// Owns a file descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { close(); }
  void close();
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A place to connect to or listen on.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  bool is_unix() const { return storage.ss_family == AF_UNIX; }
  std::string to_string() const;  // "127.0.0.1:9000", "[::1]:9000", "unix:starling/127.0.0.1:9000"
};

// A numeric host as a socket address; InvalidArgument when it is a name.
StatusOr<SocketAddress> numeric_address(const std::string& host, uint16_t port);
// Asks the system's resolver, which may block. Unavailable: it does not know the name.
StatusOr<std::vector<SocketAddress>> resolve(const std::string& host, uint16_t port);
// The Unix socket (abstract, so it leaves nothing behind) that stands beside a TCP port. Wildcard
// servers have `host` "*".
SocketAddress unix_address(std::string_view host, uint16_t port);
// True when the address belongs to this machine.
bool is_local(const SocketAddress& address);
// The numeric host without the port.
std::string host_of(const SocketAddress& address);

// Non-blocking, listening. AlreadyExists: the port is taken. Unavailable: not an address of this
// machine.
StatusOr<Socket> listen_on(const SocketAddress& address);
StatusOr<SocketAddress> bound_address(const Socket& socket);
// Non-blocking; the connection may still be under way. Unavailable with the system's reason when it
// failed at once.
StatusOr<Socket> connect_to(const SocketAddress& address);
// How a connection under way ended; OK when it is established.
Status connect_result(const Socket& socket);
// Sets what every connection wants: no delay for small frames, larger buffers.
void tune(const Socket& socket);

struct PeerCredentials {
  uint32_t pid = 0;
  uint32_t uid = 0;
};
// Of the other end of a Unix socket, told by the kernel.
StatusOr<PeerCredentials> peer_credentials(const Socket& socket);
// True when a process of that user may be on the other end: our own user, or the superuser.
bool is_trusted_uid(uint32_t uid);

}  // namespace starling
