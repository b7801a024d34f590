// Commands that are programs of their own, in the folder of this one.
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "bin/command.h"
#include "conf/environment.h"

namespace starling {
namespace {

// What OpenBLAS reads when it is loaded. It does not know CPUs that are newer than itself and falls
// back to code that is five times slower; and each worker is a thread of its own already. What the
// user has set stays.
void tune_blas() {
  set_environment_default("OPENBLAS_NUM_THREADS", "1");
  set_environment_default("OMP_NUM_THREADS", "1");
  if (__builtin_cpu_supports("avx512f") != 0) {
    set_environment_default("OPENBLAS_CORETYPE", "SkylakeX");
  } else if (__builtin_cpu_supports("avx2") != 0) {
    set_environment_default("OPENBLAS_CORETYPE", "Haswell");
  }
}

}  // namespace

StatusOr<int> run_train(std::vector<std::string> arguments) {
  std::array<char, 4096> path{};
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (size <= 0) return internal_error("/proc/self/exe: {}", std::strerror(errno));
  std::string program(path.data(), static_cast<size_t>(size));
  program = program.substr(0, program.rfind('/') + 1) + "starling_train";
  tune_blas();
  std::vector<char*> words{program.data()};
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  ::execv(program.c_str(), words.data());
  return not_found("{}: {}; it is built where libtorch is installed", program,
                   std::strerror(errno));
}

}  // namespace starling
