#include "conf/environment.h"

#include <cstdlib>

namespace starling {

bool set_environment_default(const std::string& name, const std::string& value) {
  if (::getenv(name.c_str()) != nullptr) return false;
  ::setenv(name.c_str(), value.c_str(), 0);
  return true;
}

}  // namespace starling
