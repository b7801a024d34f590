#include "bin/children.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>
#include <thread>

namespace starling {
namespace {

constexpr Duration kLookEvery = milliseconds(50);
constexpr int kCannotStart = 127;

int open_for(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

int status_of(int raw) { return WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw); }

// Between fork and exec: only what is safe with other threads in this process. The new process has
// a group of its own, so that a terminal's Ctrl-C reaches its parent alone, and ends with its
// parent.
[[noreturn]] void become(const char* program, char* const* words, int out, int log, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kCannotStart);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::execv(program, words);
  ::_exit(kCannotStart);
}

}  // namespace

Children::~Children() { kill_all(); }

Status Children::start(Child& child) {
  const int out = open_for(child.out_path);
  const int log = open_for(child.log_path);
  std::vector<std::string> texts{program_};
  texts.insert(texts.end(), child.arguments.begin(), child.arguments.end());
  std::vector<char*> words;
  for (std::string& text : texts) words.push_back(text.data());
  words.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t process = out < 0 || log < 0 ? -1 : ::fork();
  if (process == 0) become(program_.c_str(), words.data(), out, log, parent);
  const int error = errno;
  if (out >= 0) ::close(out);
  if (log >= 0) ::close(log);
  if (process < 0) return unavailable("{} cannot be started: {}", child.name, std::strerror(error));
  child.process = process;
  child.status = 0;
  ++child.starts;
  running_.push_back(&child);
  return absl::OkStatus();
}

std::vector<Child*> Children::reap() {
  std::vector<Child*> ended;
  for (Child* child : running_) {
    int raw = 0;
    if (::waitpid(child->process, &raw, WNOHANG) != child->process) continue;
    child->status = status_of(raw);
    child->process = 0;
    ended.push_back(child);
  }
  std::erase_if(running_, [](const Child* child) { return child->process == 0; });
  return ended;
}

void Children::signal(const Child& child, int number) const {
  if (child.process != 0) ::kill(child.process, number);
}

bool Children::wait(const std::vector<Child*>& list, Deadline deadline,
                    const std::function<bool()>& may_wait) {
  const RealClock clock;
  while (true) {
    reap();
    const bool is_over = std::all_of(list.begin(), list.end(),
                                     [](const Child* child) { return child->process == 0; });
    if (is_over) return true;
    if (deadline.passed(clock.now()) || !may_wait()) return false;
    std::this_thread::sleep_for(kLookEvery);
  }
}

void Children::kill_all() {
  for (const Child* child : running_) ::kill(child->process, SIGKILL);
  for (Child* child : running_) {
    int raw = 0;
    ::waitpid(child->process, &raw, 0);
    child->status = status_of(raw);
    child->process = 0;
  }
  running_.clear();
}

std::vector<std::string> new_lines(const std::string& path, uint64_t& offset) {
  std::vector<std::string> out;
  std::ifstream in(path, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(offset));
  for (std::string line; std::getline(in, line);) {
    if (in.eof()) break;  // its writer is not through with it
    offset += line.size() + 1;
    out.push_back(std::move(line));
  }
  return out;
}

std::string last_lines(const std::string& path, size_t lines) {
  std::ifstream in(path);
  std::deque<std::string> last;
  for (std::string line; std::getline(in, line);) {
    last.push_back(std::move(line));
    if (last.size() > lines) last.pop_front();
  }
  return fmt::format("{}", fmt::join(last, "\n"));
}

}  // namespace starling
