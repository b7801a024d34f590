// The program beside `starling` that has libtorch: it is told which command it is.
#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>

#include <array>

#include "bin/beside.h"

namespace starling {
namespace {

struct Entry {
  const char* name;
  StatusOr<int> (*run)(std::vector<std::string> arguments);
};
constexpr auto kEntries = std::to_array<Entry>({{"eval", eval_main},
                                                {"export", export_main},
                                                {"predict", predict_main},
                                                {"train", train_main},
                                                {"trainer", trainer_main}});

int run(std::vector<std::string> arguments) {
  const std::string name = arguments.empty() ? "" : arguments.front();
  for (const Entry& entry : kEntries) {
    if (name != entry.name) continue;
    arguments.erase(arguments.begin());
    const StatusOr<int> result = entry.run(std::move(arguments));
    if (result.ok()) return *result;
    fmt::print(stderr, "starling {}: {}\n", name, message_of(result.status()));
    return 1;
  }
  fmt::print(stderr, "starling_train is started by the starling command\n");
  return 2;
}

}  // namespace
}  // namespace starling

int main(int argc, char** argv) {
  google::protobuf::SetLogHandler(nullptr);
  return starling::run({argv + 1, argv + argc});
}
