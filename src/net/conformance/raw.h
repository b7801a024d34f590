// RawPeer speaks grpc++ byte by byte, so that a test can say what no honest end would.
//
// Uses: net/fast, wire. Threads: one owner.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "net/fast/socket.h"
#include "wire/frame.h"
#include "wire/hello.h"

namespace starling::conformance {

// One end of a connection, blocking.
class RawPeer {
 public:
  // Connects to a server; through its Unix socket when `local`.
  RawPeer(const std::string& host, uint16_t port, bool local = false);
  // Takes over an accepted socket.
  explicit RawPeer(Socket socket) : socket_(std::move(socket)) {}

  // True when all of it went into the socket.
  bool send(std::span<const std::byte> bytes);
  bool send(std::string_view text);
  // Exactly `bytes`, or an empty string when the connection ended before.
  std::string receive(size_t bytes);
  // True when the other end closes within the suite's patience; what comes before is thrown away.
  bool is_closed();

  // The honest handshake; the status of the server's hello. `asks_to_pull` also says that it works.
  StatusOr<ServerHello> shake_hands(std::string_view token, bool asks_to_pull = false);
  bool send_frame(FrameHeader header, const Message& message);
  struct Answer {
    FrameHeader header;
    std::string rest;  // meta and payload, or meta and lend block
  };
  std::optional<Answer> receive_frame();

 private:
  Socket socket_;
};

// A server socket that does nothing by itself.
class RawListener {
 public:
  // On a port of the kernel's choice; `local`: on the Unix socket beside it, where clients look
  // first.
  explicit RawListener(bool local = false);
  uint16_t port() const { return port_; }
  // The next connection.
  RawPeer accept();
  // True when somebody has connected and was not accepted yet.
  bool pending() const;

 private:
  const Socket& listening() const { return local_ ? local_ : tcp_; }

  Socket tcp_;
  Socket local_;
  uint16_t port_ = 0;
};

ClientHello honest_hello(bool has_token);

}  // namespace starling::conformance
