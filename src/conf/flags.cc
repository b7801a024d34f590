#include "conf/flags.h"

#include <optional>
#include <utility>

namespace starling {
namespace {

struct Flag {
  std::string name;
  std::optional<std::string> value;  // after the =
};

Flag split(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos) return {argument, std::nullopt};
  return {argument.substr(0, equals), argument.substr(equals + 1)};
}

}  // namespace

StatusOr<Flags> take_flags(std::vector<std::string>& arguments) {
  Flags flags;
  std::vector<std::string> rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") {
      rest.insert(rest.end(), arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end());
      break;
    }
    Flag flag = split(arguments[i]);
    if (flag.name == "--print-config" || flag.name == "--print-keys") {
      if (flag.value) return invalid_argument("{}: takes no value", flag.name);
      (flag.name == "--print-config" ? flags.print_config : flags.print_keys) = true;
      continue;
    }
    if (flag.name != "--job" && flag.name != "--set") {
      rest.push_back(arguments[i]);
      continue;
    }
    if (!flag.value && i + 1 < arguments.size()) flag.value = arguments[++i];
    if (!flag.value) return invalid_argument("{}: needs a value", flag.name);
    if (flag.name == "--set") {
      flags.sets.push_back(*std::move(flag.value));
    } else if (!flags.job.empty()) {
      return invalid_argument("--job: given twice, \"{}\" and \"{}\"", flags.job, *flag.value);
    } else {
      flags.job = *std::move(flag.value);
    }
  }
  arguments = std::move(rest);
  return flags;
}

}  // namespace starling
