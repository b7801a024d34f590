#include "base/status.h"

namespace starling {

std::string code_name(StatusCode code) { return absl::StatusCodeToString(code); }

Status with_context(const Status& status, std::string_view context) {
  if (status.ok()) return status;
  return Status(status.code(), fmt::format("{}: {}", context, message_of(status)));
}

}  // namespace starling
