#include "store/hdfs/fake_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "base/check.h"

namespace starling {
namespace {

int bind_anywhere(int* port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  STARLING_CHECK(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0,
                 "bind to a free port");
  socklen_t size = sizeof(address);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  *port = ntohs(address.sin_port);
  return fd;
}

// The head and, of a chunked body, everything to its end.
std::string receive_request(int connection) {
  std::string request;
  std::array<char, 4096> bytes{};
  while (true) {
    const bool has_head = request.find("\r\n\r\n") != std::string::npos;
    const bool has_body = request.find("chunked") != std::string::npos;
    if (has_head && (!has_body || request.ends_with("0\r\n\r\n"))) return request;
    const ssize_t got = ::recv(connection, bytes.data(), bytes.size(), 0);
    if (got <= 0) return request;
    request.append(bytes.data(), static_cast<size_t>(got));
  }
}

}  // namespace

FakeServer::FakeServer(Handler handler) : handler_(std::move(handler)) {
  listener_ = bind_anywhere(&port_);
  STARLING_CHECK(::listen(listener_, 16) == 0, "listen");
  thread_ = Thread({.name = "fake-server", .core = {}}, [this] { serve(); });
}

FakeServer::~FakeServer() {
  {
    MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  thread_.join();
  ::close(listener_);
}

std::string FakeServer::host() const { return fmt::format("127.0.0.1:{}", port_); }

std::vector<std::string> FakeServer::requests() const {
  MutexLock lock(mutex_);
  return requests_;
}

void FakeServer::serve() {
  while (true) {
    {
      MutexLock lock(mutex_);
      if (is_stopping_) return;
    }
    pollfd ready{listener_, POLLIN, 0};
    if (::poll(&ready, 1, 20) <= 0) continue;
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    const std::string head = receive_request(connection);
    {
      MutexLock lock(mutex_);
      requests_.push_back(head);
    }
    const std::string response = handler_(head);
    for (size_t sent = 0; sent < response.size();) {
      const ssize_t n =
          ::send(connection, response.data() + sent, response.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) break;
      sent += static_cast<size_t>(n);
    }
    ::shutdown(connection, SHUT_RDWR);
    ::close(connection);
  }
}

std::string FakeServer::reply(int code, const std::string& body, const std::string& headers) {
  return fmt::format("HTTP/1.1 {} Fake\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n{}",
                     code, body.size(), headers, body);
}

std::string FakeServer::remote_exception(int code, const std::string& exception,
                                         const std::string& message) {
  return reply(
      code,
      fmt::format(
          R"({{"RemoteException":{{"exception":"{}","javaClassName":"x.{}","message":"{}"}}}})",
          exception, exception, message));
}

DeadHost::DeadHost() : socket_(bind_anywhere(&port_)) {}

DeadHost::~DeadHost() { ::close(socket_); }

std::string DeadHost::host() const { return fmt::format("127.0.0.1:{}", port_); }

}  // namespace starling
