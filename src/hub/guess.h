// A first job file for a user's data: looks at the beginning of a file and says how to read it.
//
// Uses: base. Threads: free functions.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace starling {

// A job file in YAML, commented, for a file named `path` whose first bytes (whole lines, but for
// the last) are `head`. Knows csv (any of , ; | tab :: between columns, header or not), criteo,
// libsvm, libffm and multislot.
//
// InvalidArgument: none of these; the message says what the first line looks like.
StatusOr<std::string> guess_job(const std::string& path, std::string_view head);

}  // namespace starling
