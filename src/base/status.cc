#include "base/status.h"

#include <absl/strings/cord.h>

namespace starling {

std::string code_name(StatusCode code) { return absl::StatusCodeToString(code); }

Status with_context(const Status& status, std::string_view context) {
  if (status.ok()) return status;
  Status out(status.code(), fmt::format("{}: {}", context, message_of(status)));
  status.ForEachPayload(
      [&out](const auto& name, const absl::Cord& payload) { out.SetPayload(name, payload); });
  return out;
}

}  // namespace starling
