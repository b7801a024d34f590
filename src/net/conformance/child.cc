#include "net/conformance/child.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <map>

#include "base/check.h"

namespace starling::conformance {
namespace {

constexpr int kLineTimeoutMs = 60'000;

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

Child::Child(const std::vector<std::string>& arguments) {
  std::array<int, 2> to_child;
  std::array<int, 2> from_child;
  STARLING_CHECK(::pipe2(to_child.data(), O_CLOEXEC) == 0, "no pipe");
  STARLING_CHECK(::pipe2(from_child.data(), O_CLOEXEC) == 0, "no pipe");
  std::vector<char*> argv;
  std::string program = STARLING_CONFORMANCE_PEER;
  argv.push_back(program.data());
  std::vector<std::string> copies = arguments;
  for (std::string& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_ = ::fork();
  STARLING_CHECK(pid_ >= 0, "cannot fork");
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(to_child[0], STDIN_FILENO);
    ::dup2(from_child[1], STDOUT_FILENO);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  ::close(to_child[0]);
  ::close(from_child[1]);
  in_ = to_child[1];
  out_ = from_child[0];
}

Child::~Child() {
  kill();
  ::close(in_);
  ::close(out_);
}

std::string Child::line() {
  std::string text;
  while (true) {
    pollfd waiting{.fd = out_, .events = POLLIN};
    char byte = 0;
    if (::poll(&waiting, 1, kLineTimeoutMs) <= 0 || ::read(out_, &byte, 1) != 1) return "";
    if (byte == '\n') return text;
    text.push_back(byte);
  }
}

void Child::stop() {
  ::kill(pid_, SIGSTOP);
  ::waitpid(pid_, nullptr, WUNTRACED);
}

void Child::go_on() { ::kill(pid_, SIGCONT); }

void Child::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

Proxy::Proxy(uint16_t to_port)
    : to_port_(to_port), listening_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = loopback(0);
  socklen_t bytes = sizeof(address);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  STARLING_CHECK(::bind(listening_, raw, bytes) == 0 && ::listen(listening_, 16) == 0 &&
                     ::getsockname(listening_, raw, &bytes) == 0,
                 "the proxy cannot listen");
  port_ = ntohs(address.sin_port);
  thread_ = Thread({.name = "proxy"}, [this] { run(); });
}

Proxy::~Proxy() {
  stopping_ = true;
  thread_.join();
  ::close(listening_);
}

void Proxy::run() {
  std::map<int, int> other;  // both directions
  while (!stopping_) {
    std::vector<pollfd> watched{{.fd = listening_, .events = POLLIN}};
    for (const auto& [fd, to] : other) watched.push_back({.fd = fd, .events = POLLIN});
    if (::poll(watched.data(), watched.size(), 20) <= 0) continue;
    if (watched[0].revents != 0) {
      const int from = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
      const int to = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in address = loopback(to_port_);
      STARLING_CHECK(
          ::connect(to, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0,
          "the proxy's server is not there");
      other[from] = to;
      other[to] = from;
    }
    for (size_t i = 1; i < watched.size(); ++i) {
      if (watched[i].revents == 0 || !other.contains(watched[i].fd)) continue;
      std::array<char, 65'536> bytes;
      if (slow_) std::this_thread::sleep_for(milliseconds(20));
      const ssize_t got = ::recv(watched[i].fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got > 0 && !swallowing_) {
        ::send(other[watched[i].fd], bytes.data(), static_cast<size_t>(got), MSG_NOSIGNAL);
      } else if (got == 0) {
        const int to = other[watched[i].fd];
        other.erase(watched[i].fd);
        other.erase(to);
        ::close(watched[i].fd);
        ::close(to);
      }
    }
  }
  for (const auto& [fd, to] : other) ::close(fd);
}

}  // namespace starling::conformance
