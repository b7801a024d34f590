// Commands that are programs of their own, in the folder of this one.
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "bin/command.h"
#include "bin/process.h"
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

// Becomes the program that has libtorch; no other command pays for loading it.
StatusOr<int> become(const std::string& command, std::vector<std::string> arguments) {
  STARLING_ASSIGN_OR_RETURN(std::string program, program_beside("starling_train"));
  tune_blas();
  arguments.insert(arguments.begin(), {program, command});
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  ::execv(program.c_str(), words.data());
  return not_found("{}: {}; it is built where libtorch is installed", program,
                   std::strerror(errno));
}

}  // namespace

StatusOr<int> run_eval(std::vector<std::string> arguments) {
  return become("eval", std::move(arguments));
}

StatusOr<int> run_export(std::vector<std::string> arguments) {
  return become("export", std::move(arguments));
}

StatusOr<int> run_predict(std::vector<std::string> arguments) {
  return become("predict", std::move(arguments));
}

StatusOr<int> run_train(std::vector<std::string> arguments) {
  return become("train", std::move(arguments));
}

StatusOr<int> run_trainer(std::vector<std::string> arguments) {
  return become("trainer", std::move(arguments));
}

}  // namespace starling
