#include "store/hdfs/reply.h"

#include <array>
#include <nlohmann/json.hpp>

namespace starling {
namespace {

using Json = nlohmann::json;

Json parse(std::string_view body) { return Json::parse(body.begin(), body.end(), nullptr, false); }

// The value at a path of keys, or null.
const Json& at(const Json& json, std::initializer_list<const char*> keys) {
  static const Json kNull;
  const Json* value = &json;
  for (const char* key : keys) {
    if (!value->is_object()) return kNull;
    const auto found = value->find(key);
    if (found == value->end()) return kNull;
    value = &*found;
  }
  return *value;
}

std::string text_of(const Json& json) {
  return json.is_string() ? json.get<std::string>() : std::string();
}

std::string beginning(std::string_view body) {
  std::string text(body.substr(0, 200));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text;
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

std::optional<HdfsFileStatus> status_of(const Json& json) {
  const Json& length = at(json, {"length"});
  const Json& modified = at(json, {"modificationTime"});
  const Json& file_id = at(json, {"fileId"});
  const std::string type = text_of(at(json, {"type"}));
  const bool known_type = type == "FILE" || type == "DIRECTORY" || type == "SYMLINK";
  if (!length.is_number_unsigned() || !modified.is_number_integer() || !known_type)
    return std::nullopt;
  HdfsFileStatus status;
  status.name = text_of(at(json, {"pathSuffix"}));
  // A name that leaves its directory would make us touch other files than the caller listed.
  if (status.name.find('/') != std::string::npos || status.name == "." || status.name == "..")
    return std::nullopt;
  status.is_directory = type == "DIRECTORY";
  status.is_link = type == "SYMLINK";
  status.bytes = length.get<uint64_t>();
  status.modified_ms = modified.get<int64_t>();
  if (file_id.is_number_unsigned()) status.file_id = file_id.get<uint64_t>();
  return status;
}

struct ExceptionCode {
  std::string_view exception;
  StatusCode code;
};

constexpr std::array kExceptionCodes = {
    ExceptionCode{"FileNotFoundException", StatusCode::kNotFound},
    ExceptionCode{"AccessControlException", StatusCode::kPermissionDenied},
    ExceptionCode{"AuthorizationException", StatusCode::kPermissionDenied},
    ExceptionCode{"FileAlreadyExistsException", StatusCode::kAlreadyExists},
    ExceptionCode{"AlreadyBeingCreatedException", StatusCode::kAlreadyExists},
    ExceptionCode{"PathIsNotEmptyDirectoryException", StatusCode::kFailedPrecondition},
    ExceptionCode{"ParentNotDirectoryException", StatusCode::kFailedPrecondition},
    ExceptionCode{"StandbyException", StatusCode::kUnavailable},
    ExceptionCode{"RetriableException", StatusCode::kUnavailable},
    ExceptionCode{"SafeModeException", StatusCode::kUnavailable},
    ExceptionCode{"ConnectException", StatusCode::kUnavailable},
    ExceptionCode{"SocketTimeoutException", StatusCode::kUnavailable},
    ExceptionCode{"BlockMissingException", StatusCode::kUnavailable},
    ExceptionCode{"DSQuotaExceededException", StatusCode::kResourceExhausted},
    ExceptionCode{"NSQuotaExceededException", StatusCode::kResourceExhausted},
    ExceptionCode{"QuotaExceededException", StatusCode::kResourceExhausted},
    ExceptionCode{"QuotaByStorageTypeExceededException", StatusCode::kResourceExhausted},
    ExceptionCode{"DiskOutOfSpaceException", StatusCode::kResourceExhausted},
    ExceptionCode{"ChecksumException", StatusCode::kDataLoss},
    ExceptionCode{"IllegalArgumentException", StatusCode::kInvalidArgument},
    ExceptionCode{"InvalidPathException", StatusCode::kInvalidArgument},
    ExceptionCode{"ParamException", StatusCode::kInvalidArgument},
    ExceptionCode{"UnsupportedOperationException", StatusCode::kUnimplemented},
    ExceptionCode{"SecurityException", StatusCode::kUnauthenticated},
    ExceptionCode{"InvalidToken", StatusCode::kUnauthenticated},
};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Plain IOExceptions tell what they mean only by their words.
StatusCode code_of_io_exception(std::string_view message) {
  if (has(message, "Failed to find datanode") || has(message, "There are 0 datanode(s) running")) {
    return StatusCode::kUnavailable;
  }
  if (has(message, "could only be written to 0 of")) {
    // Nodes run and none is excluded, yet none took the block: they are full.
    return has(message, "no node(s) are excluded") ? StatusCode::kResourceExhausted
                                                   : StatusCode::kUnavailable;
  }
  if (has(message, "must both be directories") || has(message, "is not empty") ||
      has(message, "not a file")) {
    return StatusCode::kFailedPrecondition;
  }
  if (has(message, "No space left")) return StatusCode::kResourceExhausted;
  return StatusCode::kUnavailable;
}

StatusCode code_of(std::string_view exception, std::string_view message) {
  // "Below a file" comes as AccessControlException; nothing can exist there.
  if (exception == "AccessControlException" && has(message, "(is not a directory)"))
    return StatusCode::kNotFound;
  for (const ExceptionCode& known : kExceptionCodes) {
    if (known.exception == exception) return known.code;
  }
  if (exception == "IOException" || exception == "RemoteException")
    return code_of_io_exception(message);
  return StatusCode::kUnavailable;
}

}  // namespace

StatusOr<HdfsFileStatus> parse_file_status(std::string_view body) {
  const Json json = parse(body);
  std::optional<HdfsFileStatus> status = status_of(at(json, {"FileStatus"}));
  if (!status)
    return unavailable("the name node's answer is not a file status: {}", beginning(body));
  return *std::move(status);
}

StatusOr<HdfsListing> parse_listing(std::string_view body) {
  const Json json = parse(body);
  const Json& entries =
      at(json, {"DirectoryListing", "partialListing", "FileStatuses", "FileStatus"});
  const Json& remaining = at(json, {"DirectoryListing", "remainingEntries"});
  if (!entries.is_array() || !remaining.is_number_unsigned()) {
    return unavailable("the name node's answer is not a listing: {}", beginning(body));
  }
  HdfsListing listing;
  listing.remaining = remaining.get<uint64_t>();
  for (const Json& entry : entries) {
    std::optional<HdfsFileStatus> status = status_of(entry);
    if (!status) return unavailable("the name node's listing has an entry that is no file status");
    listing.entries.push_back(*std::move(status));
  }
  return listing;
}

std::optional<bool> parse_boolean(std::string_view body) {
  const Json json = parse(body);
  const Json& value = at(json, {"boolean"});
  return value.is_boolean() ? std::optional(value.get<bool>()) : std::nullopt;
}

std::optional<bool> parse_under_construction(std::string_view body) {
  const Json json = parse(body);
  const Json& value = at(json, {"LocatedBlocks", "isUnderConstruction"});
  return value.is_boolean() ? std::optional(value.get<bool>()) : std::nullopt;
}

std::string parse_transfer_address(std::string_view body, std::string_view peer) {
  const Json json = parse(body);
  const Json& beans = at(json, {"beans"});
  if (!beans.is_array() || beans.empty()) return "";
  const Json live = parse(text_of(at(beans[0], {"LiveNodes"})));
  if (!live.is_object()) return "";
  const size_t colon = peer.rfind(':');
  if (colon == std::string_view::npos) return "";
  const std::string_view host = peer.substr(0, colon);
  const std::string_view port = peer.substr(colon);
  for (const auto& [key, node] : live.items()) {
    const bool same_host = std::string_view(key).substr(0, key.rfind(':')) == host;
    for (const char* field : {"infoAddr", "infoSecureAddr"}) {
      const std::string address = text_of(at(node, {field}));
      if (address == peer || (same_host && address.ends_with(port)))
        return text_of(at(node, {"xferaddr"}));
    }
  }
  return "";
}

Status remote_error(long http_code, std::string_view body) {
  const Json json = parse(body);
  const Json& remote = at(json, {"RemoteException"});
  const std::string exception = text_of(at(remote, {"exception"}));
  if (exception.empty()) {
    const StatusCode code = http_code == 401   ? StatusCode::kUnauthenticated
                            : http_code == 403 ? StatusCode::kPermissionDenied
                            : http_code == 404 ? StatusCode::kNotFound
                                               : StatusCode::kUnavailable;
    return Status(code, fmt::format("HTTP {}: {}", http_code, beginning(body)));
  }
  // The rest of the message is a Java stack.
  const std::string message = first_line(text_of(at(remote, {"message"})));
  return Status(code_of(exception, message), fmt::format("{}: {}", exception, message));
}

bool is_rpc_port_reply(std::string_view body) { return has(body, "Hadoop IPC port"); }

}  // namespace starling
