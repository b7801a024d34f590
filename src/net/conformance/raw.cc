#include "net/conformance/raw.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/check.h"
#include "net/conformance/parrot.h"
#include "net/fast/proof.h"

namespace starling::conformance {
namespace {

constexpr int kPatienceMs = static_cast<int>(kPatience / milliseconds(1));

void make_blocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK); }

bool wait_for(int fd, int16_t events) {
  pollfd waiting{.fd = fd, .events = events};
  return ::poll(&waiting, 1, kPatienceMs) > 0;
}

}  // namespace

RawPeer::RawPeer(const std::string& host, uint16_t port, bool local) {
  const SocketAddress address = local ? unix_address(host, port) : *numeric_address(host, port);
  auto socket = connect_to(address);
  STARLING_CHECK(socket.ok(), "the raw peer cannot connect");
  socket_ = *std::move(socket);
  STARLING_CHECK(wait_for(socket_.fd(), POLLOUT), "the raw peer does not get through");
  make_blocking(socket_.fd());
}

bool RawPeer::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return true;
}

bool RawPeer::send(std::string_view text) {
  return send(std::as_bytes(std::span(text.data(), text.size())));
}

std::string RawPeer::receive(size_t bytes) {
  std::string got(bytes, '\0');
  for (size_t have = 0; have < bytes;) {
    if (!wait_for(socket_.fd(), POLLIN)) return "";
    const ssize_t more = ::recv(socket_.fd(), got.data() + have, bytes - have, 0);
    if (more <= 0) return "";
    have += static_cast<size_t>(more);
  }
  return got;
}

bool RawPeer::is_closed() {
  char bytes[4096];
  while (wait_for(socket_.fd(), POLLIN)) {
    if (::recv(socket_.fd(), bytes, sizeof(bytes), 0) <= 0) return true;
  }
  return false;
}

ClientHello honest_hello(bool has_token) {
  return {
      .has_token = has_token, .pid = static_cast<uint32_t>(::getpid()), .nonce = random_nonce()};
}

StatusOr<ServerHello> RawPeer::shake_hands(std::string_view token, bool asks_to_pull) {
  ClientHello hello = honest_hello(!token.empty());
  hello.would_pull = asks_to_pull;
  std::array<std::byte, ClientHello::kBytes> mine;
  encode(hello, mine);
  if (!send(mine)) return unavailable("the hello did not get through");
  const std::string theirs = receive(ServerHello::kBytes);
  if (theirs.empty()) return unavailable("no hello came back");
  auto server = decode_server_hello(std::as_bytes(std::span(theirs)).first<ServerHello::kBytes>());
  if (!server.ok() || server->status != 0) return server;
  ClientProof proof{.pull_works = asks_to_pull && server->pull_offered};
  if (!token.empty()) proof.proof = prove(ProofOf::kClient, token, mine, *server);
  std::array<std::byte, ClientProof::kBytes> last;
  encode(proof, last);
  if (!send(last)) return unavailable("the proof did not get through");
  return server;
}

bool RawPeer::send_frame(FrameHeader header, const Message& message) {
  auto frame = encode_frame(header, message);
  if (!frame.ok() || !send(frame->head.bytes())) return false;
  for (const Buffer& piece : frame->pieces) {
    if (!send(piece.bytes())) return false;
  }
  return true;
}

std::optional<RawPeer::Answer> RawPeer::receive_frame() {
  const std::string head = receive(kFrameHeaderBytes);
  if (head.empty()) return std::nullopt;
  auto header = decode_header(std::as_bytes(std::span(head)).first<kFrameHeaderBytes>(), {});
  if (!header.ok()) return std::nullopt;
  Answer answer{.header = *header};
  answer.rest = receive(header->meta_bytes);
  if ((header->flags & kFlagLent) == 0) {
    answer.rest += receive(header->payload_bytes);
    return answer;
  }
  const std::string block = receive(kLendHeadBytes);
  auto count = decode_lend_count(*header, std::as_bytes(std::span(block)).first<kLendHeadBytes>());
  if (!count.ok()) return std::nullopt;
  answer.rest += block + receive(lend_bytes(*count) - kLendHeadBytes);
  return answer;
}

RawListener::RawListener(bool local) : tcp_(*listen_on(*numeric_address("127.0.0.1", 0))) {
  const SocketAddress bound = *bound_address(tcp_);
  port_ = ntohs(reinterpret_cast<const sockaddr_in&>(bound.storage).sin_port);
  if (local) local_ = *listen_on(unix_address("127.0.0.1", port_));
}

bool RawListener::pending() const {
  pollfd waiting{.fd = listening().fd(), .events = POLLIN};
  return ::poll(&waiting, 1, 0) > 0;
}

RawPeer RawListener::accept() {
  STARLING_CHECK(wait_for(listening().fd(), POLLIN), "nobody connects");
  return RawPeer(Socket(::accept4(listening().fd(), nullptr, nullptr, SOCK_CLOEXEC)));
}

}  // namespace starling::conformance
