// Command is one word of the `starling` program.
//
// Uses: base. Threads: the main thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace starling {

struct Command {
  const char* name;
  const char* summary;  // one line, for --help
  // Takes the arguments behind the name; answers the exit status. An error is printed by main.
  StatusOr<int> (*run)(std::vector<std::string> arguments);
};

// In the order in which --help shows them.
std::span<const Command> commands();

// One per file.
StatusOr<int> run_checkpoint(std::vector<std::string> arguments);
StatusOr<int> run_config(std::vector<std::string> arguments);
StatusOr<int> run_data(std::vector<std::string> arguments);
StatusOr<int> run_generate(std::vector<std::string> arguments);
StatusOr<int> run_hub(std::vector<std::string> arguments);
StatusOr<int> run_init(std::vector<std::string> arguments);
StatusOr<int> run_ps(std::vector<std::string> arguments);
StatusOr<int> run_scheduler(std::vector<std::string> arguments);
StatusOr<int> run_status(std::vector<std::string> arguments);
// In the program beside this one that has libtorch.
StatusOr<int> run_eval(std::vector<std::string> arguments);
StatusOr<int> run_export(std::vector<std::string> arguments);
StatusOr<int> run_predict(std::vector<std::string> arguments);
StatusOr<int> run_train(std::vector<std::string> arguments);
StatusOr<int> run_trainer(std::vector<std::string> arguments);

}  // namespace starling
