// The `starling` command.
#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>

#include <array>
#include <string_view>

#include "bin/command.h"

namespace starling {
namespace {

constexpr auto kCommands = std::to_array<Command>({
    {"checkpoint", "list, show, verify and export cuts, take a job back to one", run_checkpoint},
    {"config", "show the options of a job and where each came from", run_config},
    {"data", "show samples and statistics of a job's files", run_data},
    {"eval", "measure the model of a cut", run_eval},
    {"export", "write the model of a cut for programs that know nothing of Starling", run_export},
    {"generate", "write data sets with a known truth", run_generate},
    {"hub", "run a hub of a job", run_hub},
    {"init", "write a first job file for your data", run_init},
    {"predict", "score the lines of a file by a cut", run_predict},
    {"scheduler", "run the scheduler of a job", run_scheduler},
    {"ps", "run a parameter server of a job", run_ps},
    {"status", "show the nodes, map, state and rates of a running job", run_status},
    {"train", "run a whole job, in one process or as processes of this machine", run_train},
    {"trainer", "run a trainer of a job", run_trainer},
});

void print_help(std::FILE* to) {
  fmt::print(to, "usage: starling COMMAND [ARGUMENT]...\n\n");
  for (const Command& command : commands())
    fmt::print(to, "  {:<12} {}\n", command.name, command.summary);
  fmt::print(to, "\nstarling COMMAND --help says more.\n");
}

int run(std::vector<std::string> arguments) {
  const std::string name = arguments.empty() ? "" : arguments.front();
  if (name == "--help" || name == "-h" || name == "help") {
    print_help(stdout);
    return 0;
  }
  for (const Command& command : commands()) {
    if (name != command.name) continue;
    arguments.erase(arguments.begin());
    const StatusOr<int> result = command.run(std::move(arguments));
    if (result.ok()) return *result;
    fmt::print(stderr, "starling {}: {}\n", name, message_of(result.status()));
    return 1;
  }
  if (!name.empty()) fmt::print(stderr, "starling: unknown command '{}'\n", name);
  print_help(stderr);
  return 2;
}

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace starling

int main(int argc, char** argv) {
  // Peers choose what it would print: every bad string of theirs, to standard error.
  google::protobuf::SetLogHandler(nullptr);
  return starling::run({argv + 1, argv + argc});
}
