// The limit: a bare TCP connection, messages of sizes both ends know, no frame, no dispatch. Waits
// as grpc++ does: spins 50 us, then sleeps.
#include <arpa/inet.h>
#include <immintrin.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <deque>
#include <utility>

#include "base/thread.h"
#include "transport/kind.h"

namespace starling::bench {
namespace {

constexpr Duration kSpin = microseconds(50);
constexpr int kSleepMs = 1000;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

// One end of the connection: writes what is queued and fills one message at a time, never blocking
// on either while the other could go on.
class RawEnd {
 public:
  explicit RawEnd(Descriptor socket) : socket_(std::move(socket)) {
    const int on = 1;
    setsockopt(socket_.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  int fd() const { return socket_.fd(); }

  Status send(Buffer buffer) {
    outgoing_.push_back(std::move(buffer));
    return flush();
  }

  // Waits until `into` is full. Unavailable when the peer has closed.
  Status receive(std::span<std::byte> into) {
    size_t have = 0;
    TimePoint until = clock_.now() + kSpin;
    while (have < into.size()) {
      STARLING_RETURN_IF_ERROR(flush());
      const ssize_t got =
          ::recv(socket_.fd(), into.data() + have, into.size() - have, MSG_DONTWAIT);
      if (got > 0) {
        have += static_cast<size_t>(got);
        if (have == into.size()) break;
        until = clock_.now() + kSpin;
      } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        return unavailable("the peer has closed the connection");
      } else if (clock_.now() < until) {
        _mm_pause();
      } else {
        sleep();
      }
    }
    return absl::OkStatus();
  }

 private:
  Status flush() {
    while (!outgoing_.empty()) {
      const Buffer& buffer = outgoing_.front();
      const ssize_t sent = ::send(socket_.fd(), buffer.data() + sent_, buffer.size() - sent_,
                                  MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0) {
        if (errno == EAGAIN || errno == EINTR) return absl::OkStatus();
        return unavailable("send: {}", std::strerror(errno));
      }
      sent_ += static_cast<size_t>(sent);
      if (sent_ == buffer.size()) {
        outgoing_.pop_front();
        sent_ = 0;
      }
    }
    return absl::OkStatus();
  }

  void sleep() {
    pollfd wait{.fd = socket_.fd(), .events = POLLIN, .revents = 0};
    if (!outgoing_.empty()) wait.events |= POLLOUT;
    ::poll(&wait, 1, kSleepMs);
  }

  const RealClock clock_;
  Descriptor socket_;
  std::deque<Buffer> outgoing_;
  size_t sent_ = 0;
};

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

Status last_error(std::string_view what) {
  return unavailable("{}: {}", what, std::strerror(errno));
}

class RawServing final : public Serving {
 public:
  static StatusOr<std::unique_ptr<Serving>> start() {
    auto serving = std::make_unique<RawServing>();
    serving->listening_ = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int fd = serving->listening_.fd();
    sockaddr_in address = loopback(0);
    socklen_t bytes = sizeof(address);
    if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
        ::listen(fd, 4) != 0 ||
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
      return last_error("listen");
    }
    serving->port_ = ntohs(address.sin_port);
    RawServing* self = serving.get();
    serving->thread_ = Thread({.name = "raw"}, [self] { self->run(); });
    return serving;
  }
  ~RawServing() override {
    // Wakes the thread out of accept(); a connection at hand ends with its client.
    if (listening_.fd() >= 0) ::shutdown(listening_.fd(), SHUT_RDWR);
    thread_.join();
  }
  std::string address() const override { return fmt::format("{}", port_); }

 private:
  void run() {
    while (true) {
      Descriptor socket(::accept4(listening_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      if (socket.fd() < 0 && errno != EINTR) return;
      if (socket.fd() >= 0) (void)serve(RawEnd(std::move(socket)));
    }
  }

  // The first bytes are the Ask that all messages of the connection keep to.
  Status serve(RawEnd end) {
    Ask ask;
    STARLING_RETURN_IF_ERROR(end.receive(std::as_writable_bytes(std::span(&ask, 1))));
    STARLING_RETURN_IF_ERROR(ask.check());
    Buffer request = pool_.allocate(ask.request_bytes);
    while (true) {
      STARLING_RETURN_IF_ERROR(end.receive(request.mutable_bytes()));
      STARLING_ASSIGN_OR_RETURN(const uint64_t number,
                                read_stamp(request.bytes(), ask.request_bytes));
      STARLING_RETURN_IF_ERROR(end.send(memory_.take(ask.reply_bytes, ask.pieces, number)));
    }
  }

  Descriptor listening_;
  uint16_t port_ = 0;
  BufferPool pool_;
  ReadyMemory memory_;
  Thread thread_;
};

class RawCaller final : public Caller {
 public:
  explicit RawCaller(uint16_t port) : port_(port) {}

  Status burst(const Load& load, TimePoint until, std::vector<Duration>* times) override {
    STARLING_ASSIGN_OR_RETURN(RawEnd end, connect());
    const Ask ask = Ask::of(load);
    STARLING_RETURN_IF_ERROR(end.send(Buffer::copy_of(std::as_bytes(std::span(&ask, 1)))));
    Buffer reply = pool_.allocate(load.reply_bytes);
    std::deque<TimePoint> starts;
    uint64_t expected = number_ + 1;
    for (uint32_t i = 0; i < load.in_flight; ++i) {
      starts.push_back(clock_.now());
      STARLING_RETURN_IF_ERROR(end.send(memory_.take(load.request_bytes, 1, ++number_)));
    }
    while (!starts.empty()) {
      STARLING_RETURN_IF_ERROR(end.receive(reply.mutable_bytes()));
      STARLING_RETURN_IF_ERROR(check_stamp(reply.bytes(), load.reply_bytes, expected++));
      const TimePoint now = clock_.now();
      times->push_back(now - starts.front());
      starts.pop_front();
      if (now >= until) continue;
      starts.push_back(now);
      STARLING_RETURN_IF_ERROR(end.send(memory_.take(load.request_bytes, 1, ++number_)));
    }
    return absl::OkStatus();
  }

 private:
  StatusOr<RawEnd> connect() const {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = loopback(port_);
    if (socket.fd() < 0 ||
        ::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      return last_error("connect");
    }
    return RawEnd(std::move(socket));
  }

  const RealClock clock_;
  const uint16_t port_;
  BufferPool pool_;
  ReadyMemory memory_;
  uint64_t number_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<Serving>> serve_raw() { return RawServing::start(); }
StatusOr<std::unique_ptr<Caller>> call_raw(const std::string& address) {
  return std::make_unique<RawCaller>(static_cast<uint16_t>(std::stoi(address)));
}

}  // namespace starling::bench
