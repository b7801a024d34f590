// Status is how every call that the world can fail ends: absl::Status, with makers that format the
// message.
//
// Uses: Abseil, fmt. Threads: any; a Status is a value.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace starling {

using Status = absl::Status;
using StatusCode = absl::StatusCode;
template <typename T>
using StatusOr = absl::StatusOr<T>;

// Debian's Abseil has its own string_view; this gives the message as the standard one, valid while
// `status` lives.
inline std::string_view message_of(const Status& status) {
  return {status.message().data(), status.message().size()};
}

// The code's name as gRPC writes it, such as NOT_FOUND.
std::string code_name(StatusCode code);

// The same code and payloads with `context: ` put before the message; OK stays OK.
Status with_context(const Status& status, std::string_view context);

// One maker per code: not_found("{}: no such table", name).
#define STARLING_STATUS_MAKER(name, code)                                              \
  template <typename... Args>                                                          \
  Status name(fmt::format_string<Args...> format, Args&&... args) {                    \
    return Status(StatusCode::code, fmt::format(format, std::forward<Args>(args)...)); \
  }
STARLING_STATUS_MAKER(cancelled, kCancelled)
STARLING_STATUS_MAKER(invalid_argument, kInvalidArgument)
STARLING_STATUS_MAKER(deadline_exceeded, kDeadlineExceeded)
STARLING_STATUS_MAKER(not_found, kNotFound)
STARLING_STATUS_MAKER(already_exists, kAlreadyExists)
STARLING_STATUS_MAKER(permission_denied, kPermissionDenied)
STARLING_STATUS_MAKER(unauthenticated, kUnauthenticated)
STARLING_STATUS_MAKER(resource_exhausted, kResourceExhausted)
STARLING_STATUS_MAKER(failed_precondition, kFailedPrecondition)
STARLING_STATUS_MAKER(aborted, kAborted)
STARLING_STATUS_MAKER(out_of_range, kOutOfRange)
STARLING_STATUS_MAKER(unimplemented, kUnimplemented)
STARLING_STATUS_MAKER(internal_error, kInternal)
STARLING_STATUS_MAKER(unavailable, kUnavailable)
STARLING_STATUS_MAKER(data_loss, kDataLoss)
#undef STARLING_STATUS_MAKER

}  // namespace starling

#define STARLING_JOIN_INNER(a, b) a##b
#define STARLING_JOIN(a, b) STARLING_JOIN_INNER(a, b)

// Leaves the function with the status when it is not OK.
#define STARLING_RETURN_IF_ERROR(expression)                                      \
  do {                                                                            \
    if (::starling::Status starling_status = (expression); !starling_status.ok()) \
      return starling_status;                                                     \
  } while (false)

// STARLING_ASSIGN_OR_RETURN(auto file, fs.open(path)): declares or assigns, or leaves with the
// status.
#define STARLING_ASSIGN_OR_RETURN(left, expression) \
  STARLING_ASSIGN_OR_RETURN_INNER(STARLING_JOIN(starling_or_, __LINE__), left, expression)
#define STARLING_ASSIGN_OR_RETURN_INNER(temporary, left, expression) \
  auto temporary = (expression);                                     \
  if (!temporary.ok()) return std::move(temporary).status();         \
  left = *std::move(temporary)
