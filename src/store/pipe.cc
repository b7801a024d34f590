#include "store/pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <span>
#include <thread>

#include "store/local/system.h"

extern char** environ;

namespace starling {
namespace {

constexpr size_t kFeedBytes = 64 << 10;  // a pipe holds as much
constexpr size_t kErrorLineBytesMax = 4 << 10;
// How long a command that has closed its output may take to end.
constexpr Duration kExitCheck = milliseconds(5);

struct Pipe {
  Descriptor out;  // read end
  Descriptor in;   // write end
};

StatusOr<Pipe> make_pipe(std::string_view url) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return system_error(errno, url, "pipe");
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

// Keeps the last line that has something on it.
class LastLine {
 public:
  void add(std::string_view text) {
    for (const char c : text) {
      if (c == '\n' || c == '\r') {
        if (!current_.empty()) last_ = std::move(current_);
        current_.clear();
      } else if (current_.size() < kErrorLineBytesMax) {
        current_ += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
      }
    }
  }
  const std::string& text() const { return current_.empty() ? last_ : current_; }

 private:
  std::string last_;
  std::string current_;
};

// Writes to a pipe whose reader may be gone, without the signal that would end this process.
ssize_t write_quietly(int fd, std::span<const std::byte> bytes) {
  sigset_t pipe_signal;
  sigset_t before;
  sigset_t pending;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  const ssize_t wrote = ::write(fd, bytes.data(), bytes.size());
  const int error = errno;
  if (wrote < 0 && error == EPIPE && sigismember(&pending, SIGPIPE) == 0) {
    const timespec now{};
    while (sigtimedwait(&pipe_signal, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return wrote;
}

class PipeReader final : public Reader {
 public:
  PipeReader(std::unique_ptr<Reader> source, std::string command, const Clock& clock,
             PipeOptions options)
      : source_(std::move(source)),
        command_(std::move(command)),
        clock_(clock),
        options_(options),
        feed_(kFeedBytes) {}

  ~PipeReader() override { kill_and_reap(); }

  Status start(const std::vector<std::string>& command);
  StatusOr<size_t> read(std::span<std::byte> into) override;
  void interrupt() override {
    is_interrupted_.store(true, std::memory_order_release);
    const uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof(one));
    source_->interrupt();
  }
  const std::string& url() const override { return source_->url(); }

 private:
  StatusOr<size_t> read_some(std::span<std::byte> into);
  // Hands input over while the command takes it.
  Status feed();
  void drain_errors();
  // After the end of the output: the exit status as a Status.
  Status finish();
  void kill_and_reap();
  std::string label() const { return fmt::format("{}: {}", url(), command_); }

  const std::unique_ptr<Reader> source_;
  const std::string command_;  // its name, for messages
  const Clock& clock_;
  const PipeOptions options_;
  Descriptor input_;   // to the command
  Descriptor output_;  // from it
  Descriptor errors_;
  Descriptor wake_;
  pid_t pid_ = -1;
  std::vector<std::byte> feed_;
  size_t feed_begin_ = 0;
  size_t feed_end_ = 0;
  LastLine last_error_;
  bool is_at_end_ = false;
  Status failed_;
  std::atomic<bool> is_interrupted_{false};
};

Status PipeReader::start(const std::vector<std::string>& command) {
  STARLING_ASSIGN_OR_RETURN(Pipe in, make_pipe(url()));
  STARLING_ASSIGN_OR_RETURN(Pipe out, make_pipe(url()));
  STARLING_ASSIGN_OR_RETURN(Pipe errors, make_pipe(url()));
  wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.is_open()) return system_error(errno, url(), "eventfd");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.out.get(), 0);
  posix_spawn_file_actions_adddup2(&actions, out.in.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, errors.in.get(), 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A group of its own, so that its children die with it; signals as a fresh process has them.
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  sigset_t reset;
  sigemptyset(&reset);
  for (const int number : {SIGPIPE, SIGINT, SIGTERM, SIGCHLD}) sigaddset(&reset, number);
  posix_spawnattr_setsigdefault(&attributes, &reset);
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const int error =
      ::posix_spawnp(&pid_, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    pid_ = -1;
    return system_error(error, label(), "start of the command");
  }
  input_ = std::move(in.in);
  output_ = std::move(out.out);
  errors_ = std::move(errors.out);
  for (const int fd : {input_.get(), output_.get(), errors_.get()})
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
  return absl::OkStatus();
}

StatusOr<size_t> PipeReader::read(std::span<std::byte> into) {
  STARLING_RETURN_IF_ERROR(failed_);
  if (into.empty() || is_at_end_) return size_t{0};
  StatusOr<size_t> got = read_some(into);
  if (!got.ok()) {
    failed_ = got.status();
    kill_and_reap();
  }
  return got;
}

StatusOr<size_t> PipeReader::read_some(std::span<std::byte> into) {
  Deadline deadline = Deadline::in(clock_, options_.stall_timeout);
  while (true) {
    if (is_interrupted_.load(std::memory_order_acquire))
      return cancelled("{}: interrupted", label());
    const ssize_t got = ::read(output_.get(), into.data(), into.size());
    if (got > 0) return static_cast<size_t>(got);
    if (got == 0) {
      STARLING_RETURN_IF_ERROR(finish());
      is_at_end_ = true;
      return size_t{0};
    }
    if (errno != EAGAIN && errno != EINTR) return system_error(errno, label(), "read");
    std::array<pollfd, 4> waits = {pollfd{output_.get(), POLLIN, 0}, pollfd{wake_.get(), POLLIN, 0},
                                   pollfd{errors_.get(), POLLIN, 0},
                                   pollfd{input_.get(), POLLOUT, 0}};
    const Duration left = deadline.left(clock_.now());
    if (left == Duration::zero()) {
      return deadline_exceeded(
          "{}: moved no byte for {} ms and was killed", label(),
          std::chrono::duration_cast<milliseconds>(options_.stall_timeout).count());
    }
    const auto left_ms =
        std::chrono::duration_cast<milliseconds>(std::min<Duration>(left, seconds(1))).count();
    ::poll(waits.data(), waits.size(), static_cast<int>(std::max<int64_t>(left_ms, 1)));
    if (waits[2].revents != 0) drain_errors();
    if (waits[3].revents != 0) {
      STARLING_RETURN_IF_ERROR(feed());
      deadline = Deadline::in(clock_, options_.stall_timeout);
    }
  }
}

Status PipeReader::feed() {
  if (feed_begin_ == feed_end_) {
    STARLING_ASSIGN_OR_RETURN(const size_t got, source_->read(feed_));
    feed_begin_ = 0;
    feed_end_ = got;
    if (got == 0) {
      (void)input_.close();
      return absl::OkStatus();
    }
  }
  const ssize_t wrote =
      write_quietly(input_.get(), std::span(feed_).subspan(feed_begin_, feed_end_ - feed_begin_));
  if (wrote > 0) {
    feed_begin_ += static_cast<size_t>(wrote);
  } else if (wrote < 0 && errno == EPIPE) {
    (void)input_.close();  // it has read enough
  } else if (wrote < 0 && errno != EAGAIN && errno != EINTR) {
    return system_error(errno, label(), "write");
  }
  return absl::OkStatus();
}

void PipeReader::drain_errors() {
  std::array<char, 4096> text{};
  while (errors_.is_open()) {
    const ssize_t got = ::read(errors_.get(), text.data(), text.size());
    if (got > 0) {
      last_error_.add({text.data(), static_cast<size_t>(got)});
    } else {
      if (got == 0) (void)errors_.close();
      return;
    }
  }
}

Status PipeReader::finish() {
  (void)input_.close();
  const Deadline deadline = Deadline::in(clock_, options_.stall_timeout);
  int state = 0;
  while (true) {
    drain_errors();
    const pid_t ended = ::waitpid(pid_, &state, WNOHANG);
    if (ended == pid_) break;
    if (is_interrupted_.load(std::memory_order_acquire))
      return cancelled("{}: interrupted", label());
    if (ended < 0) return system_error(errno, label(), "wait for the command");
    if (deadline.passed(clock_.now()))
      return deadline_exceeded("{}: closed its output but did not end", label());
    std::this_thread::sleep_for(kExitCheck);
  }
  // Children that it left behind hold nothing of ours any more.
  ::kill(-pid_, SIGKILL);
  pid_ = -1;
  drain_errors();
  const std::string& line = last_error_.text();
  const std::string said = line.empty() ? "" : ": " + line;
  if (WIFSIGNALED(state))
    return failed_precondition("{}: ended by signal {}{}", label(), WTERMSIG(state), said);
  if (WEXITSTATUS(state) != 0) {
    return failed_precondition("{}: exit status {}{}", label(), WEXITSTATUS(state), said);
  }
  return absl::OkStatus();
}

void PipeReader::kill_and_reap() {
  if (pid_ < 0) return;
  ::kill(-pid_, SIGKILL);
  // It may be about to make its group; the process itself is there in any case.
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

}  // namespace

StatusOr<std::unique_ptr<Reader>> pipe_command(std::unique_ptr<Reader> source,
                                               const std::vector<std::string>& command,
                                               const Clock& clock, PipeOptions options) {
  if (command.empty() || command[0].empty())
    return invalid_argument("{}: pipe: the command is empty", source->url());
  auto reader = std::make_unique<PipeReader>(std::move(source), command[0], clock, options);
  STARLING_RETURN_IF_ERROR(reader->start(command));
  return std::unique_ptr<Reader>(std::move(reader));
}

}  // namespace starling
