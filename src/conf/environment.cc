#include "conf/environment.h"

#include <cstdlib>

namespace starling {

void set_environment_default(const std::string& name, const std::string& value) {
  ::setenv(name.c_str(), value.c_str(), 0);
}

}  // namespace starling
