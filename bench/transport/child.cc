#include "transport/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <thread>

namespace starling::bench {
namespace {

constexpr Duration kEndTime = seconds(5);

}  // namespace

StatusOr<std::unique_ptr<Child>> Child::start(std::vector<std::string> arguments) {
  std::array<int, 2> to{};
  std::array<int, 2> from{};
  if (::pipe2(to.data(), O_CLOEXEC) != 0 || ::pipe2(from.data(), O_CLOEXEC) != 0) {
    return resource_exhausted("pipe: {}", std::strerror(errno));
  }
  std::vector<char*> argv;
  std::string program = "/proc/self/exe";
  argv.push_back(program.data());
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::unique_ptr<Child> child(new Child());
  child->pid_ = ::fork();
  if (child->pid_ == 0) {
    ::dup2(to[0], STDIN_FILENO);
    ::dup2(from[1], STDOUT_FILENO);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  ::close(to[0]);
  ::close(from[1]);
  child->in_ = to[1];
  child->out_ = from[0];
  if (child->pid_ < 0) return resource_exhausted("fork: {}", std::strerror(errno));
  return child;
}

Child::~Child() {
  ::close(in_);
  const RealClock clock;
  const Deadline deadline = Deadline::in(clock, kEndTime);
  while (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (deadline.passed(clock.now())) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      break;
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
  ::close(out_);
}

Status Child::write_line(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(in_, text.data(), text.size()) == static_cast<ssize_t>(text.size())) {
    return absl::OkStatus();
  }
  return unavailable("process {} has ended", pid_);
}

StatusOr<std::string> Child::read_line(Duration timeout) {
  const RealClock clock;
  const Deadline deadline = Deadline::in(clock, timeout);
  while (true) {
    if (const size_t end = unread_.find('\n'); end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    pollfd wait{.fd = out_, .events = POLLIN, .revents = 0};
    const auto left = std::chrono::ceil<milliseconds>(deadline.left(clock.now())).count();
    if (::poll(&wait, 1, static_cast<int>(left)) == 0) {
      return deadline_exceeded("process {} says nothing", pid_);
    }
    std::array<char, 4096> bytes;
    const ssize_t got = ::read(out_, bytes.data(), bytes.size());
    if (got > 0) {
      unread_.append(bytes.data(), static_cast<size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      return unavailable("process {} has ended", pid_);
    }
  }
}

StatusOr<Duration> Child::cpu() const {
  clockid_t id;
  timespec time;
  if (::clock_getcpuclockid(pid_, &id) != 0 || ::clock_gettime(id, &time) != 0) {
    return unavailable("process {} has ended", pid_);
  }
  return seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

}  // namespace starling::bench
