#include "net/grpc/acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace starling {
namespace {

constexpr int kBacklog = 4096;
constexpr Duration kPause = milliseconds(5);

void set_option(int fd, int level, int name, int value) {
  // Each is an improvement, none a condition.
  (void)setsockopt(fd, level, name, &value, sizeof value);
}

// As gRPC names peers, without its scheme: "127.0.0.1:80", "[::1]:80".
std::string to_text(const sockaddr_storage& storage) {
  char text[INET6_ADDRSTRLEN] = {};
  if (storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    const uint16_t port = ntohs(v6.sin6_port);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      inet_ntop(AF_INET, v6.sin6_addr.s6_addr + 12, text, sizeof text);
      return fmt::format("{}:{}", text, port);
    }
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    return fmt::format("[{}]:{}", text, port);
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
  inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
  return fmt::format("{}:{}", text, ntohs(v4.sin_port));
}

uint16_t port_of(int fd) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &bytes);
  // The port lies at the same place for both families.
  return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

// gRPC writes brackets as in a URI, "ipv6:%5B::1%5D:80".
std::string without_scheme(const std::string& grpc_peer) {
  const size_t colon = grpc_peer.find(':');
  std::string text;
  for (size_t i = colon == std::string::npos ? 0 : colon + 1; i < grpc_peer.size(); ++i) {
    if (grpc_peer.compare(i, 3, "%5B") == 0 || grpc_peer.compare(i, 3, "%5D") == 0) {
      text += grpc_peer[i + 2] == 'B' ? '[' : ']';
      i += 2;
    } else {
      text += grpc_peer[i];
    }
  }
  return text;
}

struct Resolved {
  explicit Resolved(const Address& address) {
    const addrinfo hints{.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    const char* host = address.host.empty() ? nullptr : address.host.c_str();
    error = getaddrinfo(host, std::to_string(address.port).c_str(), &hints, &list);
  }
  ~Resolved() {
    if (list != nullptr) freeaddrinfo(list);
  }
  Resolved(const Resolved&) = delete;
  Resolved& operator=(const Resolved&) = delete;

  addrinfo* list = nullptr;
  int error = 0;
};

// -1, and errno says why.
int listen_on(const addrinfo& where) {
  const int fd = socket(where.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  // A server that comes back takes its port although old connections still linger there.
  set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (where.ai_family == AF_INET6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(fd, where.ai_addr, where.ai_addrlen) == 0 && ::listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

}  // namespace

Connection::Connection(std::shared_ptr<Intake> intake, std::string address,
                       std::shared_ptr<const std::atomic<bool>> closed)
    : intake_(std::move(intake)),
      address_(std::move(address)),
      closed_(std::move(closed)),
      number_(intake_->next_connection()),
      visited_(intake_->lanes(), false) {}

std::shared_ptr<const Peer> Connection::visit(LaneId lane, const Identity& identity) {
  MutexLock lock(mutex_);
  const auto make = [&] {
    return std::make_shared<const Peer>(Peer{.protocol = Protocol::kGrpc,
                                             .address = address_,
                                             .identity = identity,
                                             .connection = number_});
  };
  if (peer_ == nullptr) peer_ = make();
  if (!visited_[value(lane)] && !gone_) {
    visited_[value(lane)] = true;
    tell(lane, true);
  }
  const Identity& first = peer_->identity;
  const bool same = first.role == identity.role && first.node == identity.node &&
                    first.incarnation == identity.incarnation;
  return same ? peer_ : make();
}

void Connection::leave() {
  MutexLock lock(mutex_);
  if (std::exchange(gone_, true)) return;
  for (uint32_t i = 0; i < visited_.size(); ++i) {
    if (visited_[i]) tell(LaneId{i}, false);
  }
}

void Connection::tell(LaneId lane, bool came) {
  intake_->lane(lane)->post([intake = intake_, closed = closed_, lane, peer = peer_, came] {
    if (!closed->load(std::memory_order_acquire)) intake->peer(lane, *peer, came);
  });
}

// The listening socket.
class Acceptor::Door final : public Watcher {
 public:
  explicit Door(Acceptor& acceptor) : acceptor_(acceptor) {}
  void on_events(uint32_t events) override {
    if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
      acceptor_.lane_->unwatch(acceptor_.fd_, this);  // refuse_new() has shut it
    } else {
      acceptor_.accept_all();
    }
  }

 private:
  Acceptor& acceptor_;
};

// A second descriptor of a connection that gRPC owns, watched for its end only.
class Acceptor::Watch final : public Watcher {
 public:
  Watch(Acceptor& acceptor, uint64_t number, int fd, std::shared_ptr<Connection> connection)
      : acceptor_(acceptor),
        number_(number),
        fd_(fd),
        since_(acceptor.lane_->clock().now()),
        connection_(std::move(connection)) {}
  ~Watch() override {
    acceptor_.lane_->unwatch(fd_, this);
    ::close(fd_);
    connection_->leave();
  }
  Status begin() { return acceptor_.lane_->watch(fd_, EPOLLRDHUP, this); }
  void on_events(uint32_t events) override { acceptor_.gone(number_); }

  // gRPC sees the end of the connection, and so do we.
  void cut() const { ::shutdown(fd_, SHUT_RDWR); }
  TimePoint since() const { return since_; }
  const std::shared_ptr<Connection>& connection() const { return connection_; }

 private:
  Acceptor& acceptor_;
  const uint64_t number_;
  const int fd_;
  const TimePoint since_;
  const std::shared_ptr<Connection> connection_;
};

StatusOr<std::unique_ptr<Acceptor>> Acceptor::listen(const Address& address,
                                                     std::shared_ptr<Intake> intake) {
  const Resolved resolved(address);
  if (resolved.error != 0) {
    return unavailable("{}: {}", address.to_string(), gai_strerror(resolved.error));
  }
  int error = EADDRNOTAVAIL;
  for (const addrinfo* at = resolved.list; at != nullptr; at = at->ai_next) {
    const int fd = listen_on(*at);
    if (fd >= 0) {
      Address bound = address;
      bound.port = port_of(fd);
      return std::unique_ptr<Acceptor>(new Acceptor(fd, std::move(bound), std::move(intake)));
    }
    error = errno;
  }
  if (error == EADDRINUSE) {
    return already_exists("{}: somebody listens there already", address.to_string());
  }
  return unavailable("{}: cannot listen: {}", address.to_string(), std::strerror(error));
}

Acceptor::Acceptor(int fd, Address address, std::shared_ptr<Intake> intake)
    : fd_(fd),
      address_(std::move(address)),
      intake_(std::move(intake)),
      door_(std::make_unique<Door>(*this)),
      lane_(LoopLane::start({.name = "grpc-accept", .spin = Duration::zero()})) {}

Acceptor::~Acceptor() {
  stop();
  ::close(fd_);
}

void Acceptor::start(Sink& sink) {
  lane_->post([this, &sink] {
    sink_ = &sink;
    resume();
  });
}

std::shared_ptr<Connection> Acceptor::find(const std::string& grpc_peer) {
  const std::string peer = without_scheme(grpc_peer);
  {
    MutexLock lock(mutex_);
    if (auto it = by_peer_.find(peer); it != by_peer_.end()) return it->second;
  }
  auto stray = std::make_shared<Connection>(intake_, peer, closed_);
  stray->leave();
  return stray;
}

void Acceptor::refuse_new() { ::shutdown(fd_, SHUT_RDWR); }

void Acceptor::stop() {
  closed_->store(true, std::memory_order_release);
  refuse_new();
  lane_->stop();
  watches_.clear();
}

void Acceptor::resume() {
  paused_ = false;
  const Status status = lane_->watch(fd_, EPOLLIN, door_.get());
  if (!status.ok()) intake_->log().error("grpc_accept", {{"why", message_of(status)}});
}

// Too many strangers, or no descriptors left: connections wait in the kernel's queue meanwhile.
void Acceptor::pause() {
  if (!paused_) lane_->unwatch(fd_, door_.get());
  paused_ = true;
  lane_->call_at(lane_->clock().now() + kPause, [this] {
    cut_unproved();
    resume();
  });
}

void Acceptor::cut_unproved() {
  const TimePoint before = lane_->clock().now() - intake_->options().handshake_timeout;
  for (const auto& [number, watch] : watches_) {
    if (watch->since() > before) break;
    if (!watch->connection()->proved()) watch->cut();
  }
}

void Acceptor::accept_all() {
  const auto unproved = std::count_if(watches_.begin(), watches_.end(), [](const auto& entry) {
    return !entry.second->connection()->proved();
  });
  int64_t room = int64_t{intake_->options().handshakes_max} - unproved;
  for (; room > 0; --room) {
    sockaddr_storage storage{};
    socklen_t bytes = sizeof storage;
    const int fd =
        accept4(fd_, reinterpret_cast<sockaddr*>(&storage), &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      take(fd, to_text(storage));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      intake_->log().warning("grpc_accept", {{"why", std::strerror(errno)}});
      break;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;  // shut meanwhile: the door hears of it
    }
  }
  pause();
}

void Acceptor::take(int fd, std::string peer) {
  const int second = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (second < 0) {
    ::close(fd);
    return;
  }
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // An idle peer whose machine has died is found by the kernel, without a ping of ours.
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  const uint64_t number = ++accepted_;
  auto connection = std::make_shared<Connection>(intake_, peer, closed_);
  auto watch = std::make_unique<Watch>(*this, number, second, connection);
  if (!watch->begin().ok()) {
    ::close(fd);
    return;
  }
  watches_.emplace(number, std::move(watch));
  {
    MutexLock lock(mutex_);
    by_peer_[std::move(peer)] = std::move(connection);
  }
  Sink::NewConnectionParameters parameters;
  parameters.listener_fd = fd_;
  parameters.fd = fd;
  sink_->HandleNewConnection(&parameters);
}

void Acceptor::gone(uint64_t number) {
  auto it = watches_.find(number);
  if (it == watches_.end()) return;
  {
    MutexLock lock(mutex_);
    auto entry = by_peer_.find(it->second->connection()->address());
    // A new connection may have come from the same port meanwhile.
    if (entry != by_peer_.end() && entry->second == it->second->connection()) by_peer_.erase(entry);
  }
  watches_.erase(it);
}

}  // namespace starling
