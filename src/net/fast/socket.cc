#include "net/fast/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace starling {
namespace {

constexpr int kBacklog = 4096;
constexpr int kSocketBufferBytes = 4 << 20;

template <typename T>
T& as(sockaddr_storage& storage) {
  return reinterpret_cast<T&>(storage);
}
template <typename T>
const T& as(const sockaddr_storage& storage) {
  return reinterpret_cast<const T&>(storage);
}
const sockaddr* raw(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

uint16_t port_of(const SocketAddress& address) {
  return ntohs(address.storage.ss_family == AF_INET6 ? as<sockaddr_in6>(address.storage).sin6_port
                                                     : as<sockaddr_in>(address.storage).sin_port);
}

bool same_host(const SocketAddress& address, const sockaddr* other) {
  if (address.storage.ss_family != other->sa_family) return false;
  if (other->sa_family == AF_INET) {
    return as<sockaddr_in>(address.storage).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(other)->sin_addr.s_addr;
  }
  return std::memcmp(&as<sockaddr_in6>(address.storage).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(other)->sin6_addr,
                     sizeof(in6_addr)) == 0;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Socket::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

std::string SocketAddress::to_string() const {
  if (is_unix()) {
    const auto& address = as<sockaddr_un>(storage);
    const size_t length = bytes - offsetof(sockaddr_un, sun_path);
    return length <= 1 ? "unix"
                       : fmt::format("unix:{}", std::string_view(address.sun_path + 1, length - 1));
  }
  const std::string host = host_of(*this);
  return fmt::format(fmt::runtime(storage.ss_family == AF_INET6 ? "[{}]:{}" : "{}:{}"), host,
                     port_of(*this));
}

StatusOr<SocketAddress> numeric_address(const std::string& host, uint16_t port) {
  SocketAddress address;
  auto& v4 = as<sockaddr_in>(address.storage);
  auto& v6 = as<sockaddr_in6>(address.storage);
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    address.bytes = sizeof(v4);
    return address;
  }
  address.storage = {};
  if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    address.bytes = sizeof(v6);
    return address;
  }
  return invalid_argument("{} is not a numeric address", host);
}

StatusOr<std::vector<SocketAddress>> resolve(const std::string& host, uint16_t port) {
  if (auto numeric = numeric_address(host, port); numeric.ok()) return std::vector{*numeric};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host.c_str(), fmt::format("{}", port).c_str(), &hints, &list);
      error != 0) {
    return unavailable("host {}: {}", host, gai_strerror(error));
  }
  std::vector<SocketAddress> out;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.bytes = at->ai_addrlen;
    out.push_back(address);
  }
  freeaddrinfo(list);
  return out;
}

SocketAddress unix_address(std::string_view host, uint16_t port) {
  SocketAddress address;
  auto& un = as<sockaddr_un>(address.storage);
  un.sun_family = AF_UNIX;
  const std::string name = fmt::format("starling/{}:{}", host, port);
  // A leading zero byte makes the name abstract: no file, gone with its socket.
  std::memcpy(un.sun_path + 1, name.data(), name.size());
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

bool is_local(const SocketAddress& address) {
  if (address.is_unix()) return true;
  if (address.storage.ss_family == AF_INET &&
      (ntohl(as<sockaddr_in>(address.storage).sin_addr.s_addr) >> 24) == 127) {
    return true;
  }
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  bool found = false;
  for (const ifaddrs* at = list; at != nullptr && !found; at = at->ifa_next) {
    found = at->ifa_addr != nullptr && same_host(address, at->ifa_addr);
  }
  freeifaddrs(list);
  return found;
}

std::string host_of(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.storage.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &as<sockaddr_in6>(address.storage).sin6_addr, text, sizeof(text));
  } else {
    inet_ntop(AF_INET, &as<sockaddr_in>(address.storage).sin_addr, text, sizeof(text));
  }
  return text;
}

StatusOr<Socket> listen_on(const SocketAddress& address) {
  Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return resource_exhausted("socket: {}", std::strerror(errno));
  const int on = 1;
  if (!address.is_unix()) setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.storage.ss_family == AF_INET6)
    setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  if (bind(socket.fd(), raw(address), address.bytes) != 0 || listen(socket.fd(), kBacklog) != 0) {
    const int error = errno;
    if (error == EADDRINUSE) return already_exists("{} is in use", address.to_string());
    return unavailable("cannot listen on {}: {}", address.to_string(), std::strerror(error));
  }
  return socket;
}

StatusOr<SocketAddress> bound_address(const Socket& socket) {
  SocketAddress address;
  address.bytes = sizeof(address.storage);
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) !=
      0) {
    return internal_error("getsockname: {}", std::strerror(errno));
  }
  return address;
}

StatusOr<Socket> connect_to(const SocketAddress& address) {
  Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return resource_exhausted("socket: {}", std::strerror(errno));
  if (connect(socket.fd(), raw(address), address.bytes) != 0 && errno != EINPROGRESS) {
    return unavailable("{}: {}", address.to_string(), std::strerror(errno));
  }
  tune(socket);
  return socket;
}

Status connect_result(const Socket& socket) {
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  return error == 0 ? absl::OkStatus() : unavailable("{}", std::strerror(error));
}

void tune(const Socket& socket) {
  int domain = 0;
  socklen_t bytes = sizeof(domain);
  getsockopt(socket.fd(), SOL_SOCKET, SO_DOMAIN, &domain, &bytes);
  if (domain != AF_UNIX) {
    const int on = 1, idle_s = 20, every_s = 10, tries = 3;
    setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    // Frees a server of peers whose machine has vanished; callers find out much sooner, by pings.
    setsockopt(socket.fd(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
    setsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof(tries));
    return;
  }
  // A Unix socket does not size its buffer by itself as TCP does.
  const int size = kSocketBufferBytes;
  if (setsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) != 0) {
    setsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
  }
}

StatusOr<PeerCredentials> peer_credentials(const Socket& socket) {
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  if (getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) {
    return unauthenticated("the kernel does not tell who the peer is: {}", std::strerror(errno));
  }
  return PeerCredentials{static_cast<uint32_t>(credentials.pid), credentials.uid};
}

bool is_trusted_uid(uint32_t uid) { return uid == 0 || uid == geteuid(); }

}  // namespace starling
