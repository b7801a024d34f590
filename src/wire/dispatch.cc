#include "wire/dispatch.h"

namespace starling {

Status wrong_service(uint16_t method, Service called_on) {
  const MethodInfo* info = find_method(method);
  if (info == nullptr) {
    return unimplemented("unknown method {} called on a {}", method, service_name(called_on));
  }
  return unimplemented("method {} called on a {}", info->name, service_name(called_on));
}

}  // namespace starling
