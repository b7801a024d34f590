// `starling config`: what a job file, the environment and flags come to, and where each value came
// from.
#include <fmt/format.h>

#include "bin/command.h"
#include "bin/process.h"

namespace starling {
namespace {

constexpr const char* kConfigHelp =
    R"(usage: starling config [--job FILE] [--set KEY=VALUE]... [--print-config | --print-keys]

Reads a job as every role does: the YAML file, then the environment, then --set, each stronger than the one before.
  --print-config  print every value and where it came from (the default)
  --print-keys    print every key with its type, bounds, default and meaning
)";

}  // namespace

StatusOr<int> run_config(std::vector<std::string> arguments) {
  STARLING_ASSIGN_OR_RETURN(const Flags flags, take_flags(arguments));
  for (const std::string& argument : arguments) {
    if (argument == "--help" || argument == "-h") {
      fmt::print("{}", kConfigHelp);
      return 0;
    }
    return invalid_argument("unknown argument '{}'; see starling config --help", argument);
  }
  if (flags.print_keys) {
    fmt::print("{}", print_keys());
    return 0;
  }
  STARLING_ASSIGN_OR_RETURN(const Job job, load_job(flags));
  fmt::print("{}", print_settings(job));
  return 0;
}

}  // namespace starling
