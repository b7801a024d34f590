// Takes the flags that every command of a role shares out of its arguments.
//
// Uses: base. Threads: any; a free function.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace starling {

struct Flags {
  std::string job;                // --job FILE
  std::vector<std::string> sets;  // --set KEY=VALUE, as often as wanted; the last of one key wins
  bool print_config = false;      // --print-config: print every value and its origin, and end
  bool print_keys = false;        // --print-keys: print the list of keys, and end
};

// Removes these flags from `arguments`, in both forms (--job FILE, --job=FILE), and leaves the rest
// in order. Arguments after a plain `--` are not looked at.
//
// InvalidArgument: a flag lacks its value, has one it does not take, or --job is given twice.
StatusOr<Flags> take_flags(std::vector<std::string>& arguments);

}  // namespace starling
