// How a FastChannel gets its connection: resolve, connect, hello, proof, and again after a while
// when that failed.
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "net/fast/channel.h"
#include "net/fast/proof.h"

namespace starling {

void FastChannel::connect() {
  if (state_ != State::kIdle) return;
  const std::string host = target_.address.host == "localhost" ? "127.0.0.1" : target_.address.host;
  const auto numeric = numeric_address(host, target_.address.port);
  if (numeric.ok()) return use_addresses({*numeric});
  resolve_name();
}

// The system's resolver blocks, so it gets a thread. An answer holds until an attempt with it has
// failed: a server may come back at another address.
void FastChannel::resolve_name() {
  state_ = State::kResolving;
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  // It may outlive the channel, and so must not be the one that keeps the lane.
  look_up_ = {Thread({.name = "resolve"},
                     [lane = std::weak_ptr<Lane>(lane_), self = self_, address = target_.address,
                      look_up = shared_->look_up, ended] {
                       auto addresses = look_up(address.host, address.port);
                       if (const auto there = lane.lock()) {
                         there->post([self, addresses = std::move(addresses)] {
                           if (*self != nullptr) (*self)->on_resolved(addresses);
                         });
                       }
                       ended->store(true);
                     }),
              ended};
}

void FastChannel::on_resolved(const StatusOr<std::vector<SocketAddress>>& addresses) {
  state_ = State::kIdle;
  if (!addresses.ok()) return attempt_failed(addresses.status());
  use_addresses(*addresses);
}

// A server on this host is reached through its Unix socket where it has one.
void FastChannel::use_addresses(const std::vector<SocketAddress>& addresses) {
  candidates_.clear();
  for (const SocketAddress& address : addresses) {
    if (shared_->options.unix_sockets && is_local(address)) {
      candidates_.push_back(unix_address(host_of(address), target_.address.port));
      candidates_.push_back(unix_address("*", target_.address.port));
    }
    candidates_.push_back(address);
  }
  candidate_ = 0;
  try_next_candidate();
}

void FastChannel::try_next_candidate() {
  while (candidate_ < candidates_.size()) {
    StatusOr<Socket> socket = connect_to(candidates_[candidate_]);
    if (socket.ok()) {
      socket_ = *std::move(socket);
      state_ = State::kConnecting;
      interest_ = EPOLLOUT;
      const Status watched = loop_.watch(socket_.fd(), interest_, this);
      if (!watched.ok()) {
        socket_.close();
        return attempt_failed(watched);
      }
      timer_ = loop_.call_at(loop_.clock().now() + shared_->options.connect_timeout, [this] {
        timer_ = TimerId{};
        drop_socket();
        attempt_failed(
            unavailable("{}: no answer to the connection", candidates_[candidate_].to_string()));
      });
      return;
    }
    trouble_ = socket.status();
    ++candidate_;
  }
  attempt_failed(trouble_);
}

void FastChannel::on_connected() {
  Status status = connect_result(socket_);
  if (status.ok() && candidates_[candidate_].is_unix()) status = check_unix_peer();
  if (!status.ok()) {
    trouble_ = with_context(status, candidates_[candidate_].to_string());
    drop_socket();
    ++candidate_;
    return try_next_candidate();
  }
  const Identity& me = shared_->options.identity;
  const ClientHello hello{.has_token = !shared_->options.token.empty(),
                          .would_pull = shared_->options.pull && peer_pid_ != 0,
                          .lane = value(target_.lane),
                          .pid = static_cast<uint32_t>(getpid()),
                          .nonce = random_nonce(),
                          .incarnation = me.incarnation,
                          .node = me.node,
                          .role = me.role};
  encode(hello, client_hello_);
  if (::send(socket_.fd(), client_hello_.data(), client_hello_.size(), MSG_NOSIGNAL) !=
      ClientHello::kBytes) {
    const Status why =
        unavailable("{}: {}", candidates_[candidate_].to_string(), std::strerror(errno));
    drop_socket();
    return attempt_failed(why);
  }
  state_ = State::kHello;
  hello_have_ = 0;
  interest_ = EPOLLIN;
  loop_.change(socket_.fd(), interest_, this);
}

Status FastChannel::check_unix_peer() {
  STARLING_ASSIGN_OR_RETURN(const PeerCredentials peer, peer_credentials(socket_));
  // Anybody may take an abstract name; only our own user's server is believed without asking the
  // network.
  if (!is_trusted_uid(peer.uid))
    return permission_denied("the socket belongs to user id {}", peer.uid);
  peer_pid_ = static_cast<pid_t>(peer.pid);
  return absl::OkStatus();
}

void FastChannel::read_hello() {
  while (hello_have_ < server_hello_.size()) {
    const ssize_t got = ::recv(socket_.fd(), server_hello_.data() + hello_have_,
                               server_hello_.size() - hello_have_, 0);
    if (got > 0) {
      hello_have_ += static_cast<size_t>(got);
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return;
    } else {
      drop_socket();
      return attempt_failed(unavailable("{}: the connection ended in the handshake", name_));
    }
  }
  const StatusOr<ServerHello> hello = decode_server_hello(server_hello_);
  const Status status = hello.ok() ? check_hello(*hello) : hello.status();
  if (!status.ok()) {
    drop_socket();
    return refused(with_context(status, name_));
  }
  on_ready(*hello);
}

Status FastChannel::check_hello(const ServerHello& hello) {
  const std::string& token = shared_->options.token;
  if (hello.status != 0) {
    const auto code = static_cast<StatusCode>(hello.status);
    return Status(
        code,
        fmt::format("the server refused the connection ({}){}", code_name(code),
                    code == StatusCode::kUnauthenticated ? ": the cluster tokens differ" : ""));
  }
  if (hello.token_required != !token.empty())
    return unauthenticated("only one end has a cluster token");
  if (!token.empty() && !equal(hello.proof, prove(ProofOf::kServer, token, client_hello_, hello))) {
    return unauthenticated("the server does not know the cluster token");
  }
  return absl::OkStatus();
}

void FastChannel::on_ready(const ServerHello& hello) {
  ClientProof proof;
  if (!shared_->options.token.empty()) {
    proof.proof = prove(ProofOf::kClient, shared_->options.token, client_hello_, hello);
  }
  proof.pull_works = hello.pull_offered && probe(peer_pid_, hello.probe_address, hello.probe_value);
  std::array<std::byte, ClientProof::kBytes> bytes;
  encode(proof, bytes);
  if (::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != ClientProof::kBytes) {
    drop_socket();
    return attempt_failed(unavailable("{}: the connection ended in the handshake", name_));
  }
  loop_.cancel(std::exchange(timer_, TimerId{}));
  state_ = State::kReady;
  trouble_ = absl::OkStatus();
  reader_ = std::make_unique<FrameReader>(FrameKind::kReply, shared_->limits, shared_->pool,
                                          shared_->counters);
  writer_.clear();
  heard_ = true;
  pinged_ = false;
  shared_->counters.connects.add();
  loop_.set_hot(this);
  send_waiting();
}

void FastChannel::attempt_failed(const Status& why) {
  trouble_ = why;
  candidates_.clear();
  loop_.cancel(timer_);
  state_ = State::kWaiting;
  timer_ = loop_.call_at(loop_.clock().now() + backoff_.next(), [this] {
    timer_ = TimerId{};
    state_ = State::kIdle;
    if (!waiting_.empty()) connect();
  });
}

void FastChannel::refused(const Status& why) {
  std::deque<Waiting> waiting = std::exchange(waiting_, {});
  attempt_failed(why);
  const auto self = self_;
  for (const Waiting& call : waiting) {
    if (*self == nullptr) return;
    sink_.finished(call.id, why);
  }
}

void FastChannel::drop_socket() {
  loop_.cancel(std::exchange(timer_, TimerId{}));
  if (socket_) loop_.unwatch(socket_.fd(), this);
  socket_.close();
  peer_pid_ = 0;
  state_ = State::kIdle;
}

}  // namespace starling
