// The commands of the program that has libtorch, `starling_train`.
//
// Uses: base. Threads: the main thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace starling {

// Each takes the arguments behind its name and answers the exit status.
StatusOr<int> eval_main(std::vector<std::string> arguments);
StatusOr<int> export_main(std::vector<std::string> arguments);
StatusOr<int> predict_main(std::vector<std::string> arguments);
StatusOr<int> train_main(std::vector<std::string> arguments);
StatusOr<int> trainer_main(std::vector<std::string> arguments);

}  // namespace starling
