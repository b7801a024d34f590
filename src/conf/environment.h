// The environment that programs started by this one see.
//
// Uses: std. Threads: before the first thread is started.
#pragma once

#include <string>

namespace starling {

// Sets a variable for programs that this one becomes or starts; what the user has set stays.
void set_environment_default(const std::string& name, const std::string& value);

}  // namespace starling
