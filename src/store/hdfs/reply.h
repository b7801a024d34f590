// What WebHDFS answers, taken apart: file statuses, listings, and RemoteExceptions turned into a
// Status.
//
// Nothing here trusts the bytes: a reply of another shape is an error that shows its beginning.
// Uses: base, nlohmann json. Threads: any; functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace starling {

struct HdfsFileStatus {
  std::string name;  // empty for the path that was asked about
  bool is_directory = false;
  bool is_link = false;
  uint64_t bytes = 0;
  int64_t modified_ms = 0;
  uint64_t file_id = 0;  // of the inode: another file under the same name has another one
};

struct HdfsListing {
  std::vector<HdfsFileStatus> entries;
  uint64_t remaining = 0;  // entries after these
};

StatusOr<HdfsFileStatus> parse_file_status(std::string_view body);
StatusOr<HdfsListing> parse_listing(std::string_view body);
// Nothing when the body is no {"boolean": …}.
std::optional<bool> parse_boolean(std::string_view body);
// Whether a writer has the file open, or left it so. Nothing when the body does not tell.
std::optional<bool> parse_under_construction(std::string_view body);
// The transfer address (host:port) of the data node whose web server is `peer`, from the name
// node's list of live nodes; empty when it is not there.
std::string parse_transfer_address(std::string_view body, std::string_view peer);

// An error reply as a Status, without its context: the RemoteException's first line under the code
// that fits.
Status remote_error(long http_code, std::string_view body);
// Whether the reply came from the name node's RPC port.
bool is_rpc_port_reply(std::string_view body);

}  // namespace starling
