#include "wire/dispatch.h"

namespace starling {

Status wrong_service(uint16_t method, Service called_on) {
  const MethodInfo* info = find_method(method);
  if (info == nullptr) {
    return unimplemented("unknown method {} called on a {}", method, service_name(called_on));
  }
  return unimplemented("method {} called on a {}", info->name, service_name(called_on));
}

Status check_option(Method method, const v1::TensorMessage& request) {
  const MethodInfo& info = info_of(method);
  const auto given = request.option_case();
  if (given == info.option || given == v1::TensorMessage::OPTION_NOT_SET) return absl::OkStatus();
  const auto* fields = v1::TensorMessage::descriptor();
  return invalid_argument("{}: the request carries {}, not {}", info.name,
                          fields->FindFieldByNumber(given)->name(),
                          fields->FindFieldByNumber(info.option)->name());
}

}  // namespace starling
