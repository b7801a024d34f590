#include "net/fast/listener.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "net/fast/proof.h"
#include "wire/hello.h"

namespace starling {
namespace {

constexpr Duration kAcceptPause = milliseconds(50);

}  // namespace

class FastListener::Acceptor final : public Watcher {
 public:
  Acceptor(FastListener& listener, Socket socket)
      : listener_(listener), socket_(std::move(socket)) {}
  ~Acceptor() override {
    listener_.door_->cancel(resume_);
    listener_.door_->unwatch(socket_.fd(), this);
  }
  Status open() { return listener_.door_->watch(socket_.fd(), EPOLLIN, this); }
  void on_events(uint32_t) override { listener_.accept_from(socket_); }

  // Leaves new connections in the kernel's queue for a while.
  void pause() {
    LoopLane& door = *listener_.door_;
    door.change(socket_.fd(), 0, this);
    door.cancel(resume_);
    resume_ = door.call_at(door.clock().now() + kAcceptPause, [this] {
      resume_ = TimerId{};
      listener_.door_->change(socket_.fd(), EPOLLIN, this);
    });
  }
  int fd() const { return socket_.fd(); }

 private:
  FastListener& listener_;
  Socket socket_;
  TimerId resume_{};
};

// One connection that has not proved itself yet. Reads exactly the hello and the proof, never a
// byte more.
class FastListener::Entry final : public Watcher {
 public:
  Entry(FastListener& listener, Socket socket, std::string peer, bool is_unix)
      : listener_(listener),
        socket_(std::move(socket)),
        peer_(std::move(peer)),
        is_unix_(is_unix) {}
  ~Entry() override {
    listener_.door_->cancel(timeout_);
    if (socket_) listener_.door_->unwatch(socket_.fd(), this);
  }

  Status open() {
    LoopLane& door = *listener_.door_;
    timeout_ =
        door.call_at(door.clock().now() + listener_.shared_->options.handshake_timeout, [this] {
          timeout_ = TimerId{};
          refuse(deadline_exceeded("the handshake took too long"));
        });
    return door.watch(socket_.fd(), EPOLLIN, this);
  }

  void on_events(uint32_t) override {
    if (!hello_done_) {
      if (!fill(client_bytes_)) return;
      hello_done_ = true;
      have_ = 0;
      if (!on_hello()) return;
    }
    if (fill(proof_bytes_)) on_proof();
  }

 private:
  // True when the bytes are complete. Refuses (and so destroys this) when the stream has ended.
  bool fill(std::span<std::byte> into) {
    while (have_ < into.size()) {
      const ssize_t got = ::recv(socket_.fd(), into.data() + have_, into.size() - have_, 0);
      if (got > 0) {
        have_ += static_cast<size_t>(got);
      } else if (got < 0 && errno == EINTR) {
        continue;
      } else {
        if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
          refuse(unavailable("the peer has gone"));
        return false;
      }
    }
    return true;
  }

  Status check(const ClientHello& hello) const {
    const bool needs_token = !listener_.shared_->options.token.empty();
    if (needs_token != hello.has_token) {
      return unauthenticated("the {} has a cluster token, the {} has none",
                             needs_token ? "server" : "client", needs_token ? "client" : "server");
    }
    if (hello.lane >= listener_.intake_->lanes()) {
      return invalid_argument("lane {} of a server with {} lanes", hello.lane,
                              listener_.intake_->lanes());
    }
    if (is_unix_) {
      STARLING_ASSIGN_OR_RETURN(const PeerCredentials credentials, peer_credentials(socket_));
      if (!is_trusted_uid(credentials.uid))
        return permission_denied("user id {} is not ours", credentials.uid);
    }
    return absl::OkStatus();
  }

  bool on_hello() {
    StatusOr<ClientHello> hello = decode_client_hello(client_bytes_);
    const Status status = hello.ok() ? check(*hello) : hello.status();
    const NetOptions& options = listener_.shared_->options;
    if (status.ok()) hello_ = *hello;
    server_ = {.token_required = !options.token.empty(),
               .status = static_cast<uint32_t>(status.code()),
               .pid = static_cast<uint32_t>(getpid()),
               .nonce = random_nonce()};
    if (status.ok() && options.pull && is_unix_ && hello_.would_pull) {
      server_.pull_offered = true;
      server_.probe_address = reinterpret_cast<uint64_t>(listener_.probe_.data());
      server_.probe_value = listener_.probe_;
    }
    if (status.ok() && server_.token_required) {
      server_.proof = prove(ProofOf::kServer, options.token, client_bytes_, server_);
    }
    std::array<std::byte, ServerHello::kBytes> bytes;
    encode(server_, bytes);
    // A fresh socket takes so few bytes at once; a peer that has filled its buffer before saying
    // anything is refused.
    const bool sent =
        ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == ServerHello::kBytes;
    if (!status.ok()) {
      refuse(status);
      return false;
    }
    if (!sent) refuse(unavailable("the hello could not be sent"));
    return sent;
  }

  void on_proof() {
    const StatusOr<ClientProof> proof = decode_client_proof(proof_bytes_);
    if (!proof.ok()) return refuse(proof.status());
    if (server_.token_required &&
        !equal(proof->proof,
               prove(ProofOf::kClient, listener_.shared_->options.token, client_bytes_, server_))) {
      return refuse(unauthenticated("the client does not know the cluster token"));
    }
    listener_.door_->unwatch(socket_.fd(), this);
    ServerConnection::Setup setup{.socket = std::move(socket_),
                                  .lane = static_cast<LaneId>(hello_.lane),
                                  .peer = {.protocol = Protocol::kFast,
                                           .address = peer_,
                                           .identity = {.role = hello_.role,
                                                        .node = hello_.node,
                                                        .incarnation = hello_.incarnation},
                                           .connection = listener_.intake_->next_connection()},
                                  .pull = server_.pull_offered && proof->pull_works};
    listener_.enter(std::move(setup));
    listener_.drop(this);
  }

  // Destroys this.
  void refuse(const Status& why) {
    listener_.shared_->counters.refused.add();
    listener_.shared_->log.warning("handshake_refused",
                                   {{"peer", peer_}, {"reason", message_of(why)}});
    if (hello_done_ && why.code() == StatusCode::kUnauthenticated) {
      const Buffer frame =
          encode_control({.kind = FrameKind::kGoaway, .status = static_cast<uint32_t>(why.code())});
      (void)::send(socket_.fd(), frame.data(), frame.size(), MSG_NOSIGNAL);
    }
    listener_.drop(this);
  }

  FastListener& listener_;
  Socket socket_;
  const std::string peer_;
  const bool is_unix_;
  std::array<std::byte, ClientHello::kBytes> client_bytes_{};
  std::array<std::byte, ClientProof::kBytes> proof_bytes_{};
  size_t have_ = 0;
  bool hello_done_ = false;
  ClientHello hello_;
  ServerHello server_;
  TimerId timeout_{};
};

StatusOr<std::unique_ptr<Listener>> FastListener::start(const Address& address,
                                                        std::shared_ptr<FastShared> shared,
                                                        std::shared_ptr<Intake> intake) {
  for (uint32_t i = 0; i < intake->lanes(); ++i) {
    if (dynamic_cast<LoopLane*>(intake->lane(static_cast<LaneId>(i)).get()) == nullptr) {
      return failed_precondition("grpc++ runs on lanes with sockets, not on manual ones");
    }
  }
  std::string host = address.host == "localhost" ? "127.0.0.1" : address.host;
  if (shared->options.token.empty() && !is_loopback(host)) {
    if (!is_wildcard(host)) {
      return failed_precondition("{}: without a cluster token a server listens on loopback only",
                                 address.to_string());
    }
    host = host == "::" ? "::1" : "127.0.0.1";
    shared->log.warning("loopback_only",
                        {{"asked", address.to_string()}, {"reason", "there is no cluster token"}});
  }
  if (host.empty()) host = "0.0.0.0";
  STARLING_ASSIGN_OR_RETURN(const std::vector<SocketAddress> places, resolve(host, address.port));
  if (places.empty()) return unavailable("{}: the host has no address", address.to_string());
  std::vector<Socket> sockets;
  STARLING_ASSIGN_OR_RETURN(Socket tcp, listen_on(places.front()));
  STARLING_ASSIGN_OR_RETURN(const SocketAddress bound, bound_address(tcp));
  const uint16_t port = ntohs(reinterpret_cast<const sockaddr_in&>(bound.storage).sin_port);
  sockets.push_back(std::move(tcp));
  if (shared->options.unix_sockets) {
    // Clients fall back to TCP where the name is taken.
    auto local = listen_on(unix_address(is_wildcard(host) ? "*" : host_of(bound), port));
    if (local.ok()) sockets.push_back(*std::move(local));
  }
  Address actual{.protocol = Protocol::kFast, .host = host, .port = port};
  std::unique_ptr<FastListener> listener(
      new FastListener(std::move(actual), std::move(shared), std::move(intake)));
  listener->open_door(std::move(sockets));
  return listener;
}

FastListener::FastListener(Address address, std::shared_ptr<FastShared> shared,
                           std::shared_ptr<Intake> intake)
    : address_(std::move(address)),
      shared_(std::move(shared)),
      intake_(std::move(intake)),
      probe_(random_probe()) {
  for (uint32_t i = 0; i < intake_->lanes(); ++i) ports_.push_back(std::make_shared<Port>());
  turns_.resize(ports_.size());
}

FastListener::~FastListener() { close(); }

void FastListener::open_door(std::vector<Socket> sockets) {
  // The intake may outlive the listener, so the task holds the ports and not the listener.
  intake_->on_room([intake = intake_.get(), ports = ports_] {
    for (uint32_t i = 0; i < ports.size(); ++i)
      Port::serve_held_back(ports[i], *intake->lane(static_cast<LaneId>(i)));
  });
  // Accepting is rare, so the door never spins.
  door_ = LoopLane::start({.name = "door", .spin = Duration::zero()});
  auto shared_sockets = std::make_shared<std::vector<Socket>>(std::move(sockets));
  door_->post([this, shared_sockets] {
    for (Socket& socket : *shared_sockets) {
      acceptors_.push_back(std::make_unique<Acceptor>(*this, std::move(socket)));
      if (const Status status = acceptors_.back()->open(); !status.ok()) {
        shared_->log.error("cannot_accept",
                           {{"address", address_.to_string()}, {"reason", message_of(status)}});
      }
    }
    speak_for_busy_lanes();
  });
}

// Pings are answered by the lane that owns the connection. A handler that keeps it for seconds must
// not look like a dead process, so while a lane stands still its peers hear from here.
void FastListener::speak_for_busy_lanes() {
  for (uint32_t i = 0; i < ports_.size(); ++i) {
    const auto& loop = static_cast<const LoopLane&>(*intake_->lane(static_cast<LaneId>(i)));
    const uint64_t turns = loop.turns();
    if (turns == std::exchange(turns_[i], turns) && !loop.asleep()) {
      for (const auto& connection : ports_[i]->all()) connection->show_life();
    }
  }
  door_->call_at(door_->clock().now() + shared_->options.ping_every / 2,
                 [this] { speak_for_busy_lanes(); });
}

void FastListener::accept_from(const Socket& listening) {
  while (entries_.size() < shared_->options.handshakes_max) {
    SocketAddress from;
    from.bytes = sizeof(from.storage);
    Socket socket(::accept4(listening.fd(), reinterpret_cast<sockaddr*>(&from.storage), &from.bytes,
                            SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      shared_->log.error("cannot_accept",
                         {{"address", address_.to_string()}, {"reason", std::strerror(errno)}});
      break;
    }
    tune(socket);
    std::string peer = from.to_string();
    if (from.is_unix()) {
      if (const auto credentials = peer_credentials(socket); credentials.ok()) {
        peer = fmt::format("unix:process {}", credentials->pid);
      }
    }
    auto entry = std::make_unique<Entry>(*this, std::move(socket), std::move(peer), from.is_unix());
    Entry* raw = entry.get();
    entries_.emplace(raw, std::move(entry));
    if (!raw->open().ok()) drop(raw);
  }
  // Out of descriptors, or too many at the door: the others wait in the kernel's queue.
  for (const auto& acceptor : acceptors_) {
    if (acceptor->fd() == listening.fd()) acceptor->pause();
  }
}

void FastListener::enter(ServerConnection::Setup setup) {
  shared_->counters.connects.add();
  const LaneId lane = setup.lane;
  auto connection = std::make_shared<ServerConnection>(shared_, intake_, std::move(setup));
  intake_->lane(lane)->post([connection = std::move(connection), port = ports_[value(lane)]] {
    if (!port->add(connection)) return;
    connection->open([port](ServerConnection* gone) { port->remove(gone); });
  });
}

void FastListener::drop(Entry* entry) { entries_.erase(entry); }

std::vector<std::future<void>> FastListener::on_every_lane(void (*task)(Port&)) {
  std::vector<std::future<void>> ends;
  for (uint32_t i = 0; i < ports_.size(); ++i) {
    Lane& lane = *intake_->lane(static_cast<LaneId>(i));
    if (lane.here()) {
      task(*ports_[i]);
      continue;
    }
    std::promise<void> done;
    std::future<void> ended = done.get_future();
    // A lane that has stopped drops the task; the broken promise ends the wait.
    lane.post([task, port = ports_[i], done = std::move(done)]() mutable {
      task(*port);
      done.set_value();
    });
    // Who turns a driven lane may never do so again.
    if (!lane.driven()) ends.push_back(std::move(ended));
  }
  return ends;
}

void FastListener::close_door() {
  if (door_ == nullptr) return;
  std::promise<void> done;
  std::future<void> ended = done.get_future();
  door_->post([this, done = std::move(done)]() mutable {
    acceptors_.clear();
    entries_.clear();
    done.set_value();
  });
  ended.wait();
}

void FastListener::refuse_new() {
  close_door();
  // Not waited for: who asks to stop by a deadline need not wait for a lane that is busy.
  (void)on_every_lane([](Port& port) {
    for (const auto& connection : port.all()) connection->go_away();
  });
}

void FastListener::close() {
  if (std::exchange(closed_, true)) return;
  close_door();
  const auto ends = on_every_lane([](Port& port) {
    for (const auto& connection : port.close()) connection->close("the server has stopped");
  });
  for (const auto& ended : ends) ended.wait();
  if (door_ != nullptr) door_->stop();
}

bool FastListener::Port::add(const std::shared_ptr<ServerConnection>& connection) {
  MutexLock lock(mutex_);
  if (closed_) return false;
  connections_.emplace(connection.get(), connection);
  return true;
}

void FastListener::Port::remove(ServerConnection* connection) {
  std::shared_ptr<ServerConnection> last;  // let go of outside of the lock
  MutexLock lock(mutex_);
  if (auto it = connections_.find(connection); it != connections_.end()) {
    last = std::move(it->second);
    connections_.erase(it);
  }
}

FastListener::Port::Connections FastListener::Port::all() const {
  MutexLock lock(mutex_);
  Connections all;
  all.reserve(connections_.size());
  for (const auto& [raw, connection] : connections_) all.push_back(connection);
  return all;
}

FastListener::Port::Connections FastListener::Port::close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  return all();
}

// The peers that hold least come first.
void FastListener::Port::serve_held_back(const std::shared_ptr<Port>& port, Lane& lane) {
  if (port->serve_posted_.exchange(true, std::memory_order_acq_rel)) return;
  lane.post([port] {
    // First: room that comes from now on needs another look.
    port->serve_posted_.exchange(false, std::memory_order_acq_rel);
    Connections waiting = port->all();
    std::erase_if(waiting, [](const auto& connection) { return !connection->held_back(); });
    std::sort(waiting.begin(), waiting.end(),
              [](const auto& a, const auto& b) { return a->held_bytes() < b->held_bytes(); });
    for (const auto& connection : waiting) connection->retry();
  });
}

}  // namespace starling
