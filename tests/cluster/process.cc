#include "tests/cluster/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <iterator>

extern char** environ;

namespace starling::cluster {

Process::Process(std::vector<std::string> arguments, std::string log)
    : Process(STARLING_PROGRAM, std::move(arguments), std::move(log)) {}

Process::Process(const std::string& program, std::vector<std::string> arguments, std::string log)
    : log_(std::move(log)) {
  arguments.insert(arguments.begin(), program);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  std::array<int, 2> pipe{};
  EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const int errors = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a killed test leaves nobody behind
    ::dup2(pipe[1], STDOUT_FILENO);
    ::dup2(errors, STDERR_FILENO);
    ::execve(pointers[0], pointers.data(), environ);
    ::_exit(127);
  }
  ::close(pipe[1]);
  ::close(errors);
  char letter = 0;
  while (::read(pipe[0], &letter, 1) == 1 && letter != '\n') first_line_ += letter;
  ::close(pipe[0]);
}

Process::~Process() { end(SIGKILL); }

void Process::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

int Process::wait() {
  if (pid_ <= 0) return -1;
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::string Process::errors() const {
  std::ifstream file(log_);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace starling::cluster
