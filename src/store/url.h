// Url names a file in any store: a plain path, file:///path, hdfs://host:port/path or
// mem://name/path.
//
// Paths are taken literally: no percent-decoding, so that a name with a percent sign, a plus or a
// space is written as it is. Uses: base. Threads: any; a Url is a value.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace starling {

struct Url {
  std::string scheme;     // "file" for a plain path
  std::string authority;  // host:port; empty for local files
  std::string path;       // starts with / unless it is a relative local path
  bool is_plain = false;  // written without a scheme, and shown so

  std::string text() const;
  auto operator<=>(const Url&) const = default;
};

// InvalidArgument: empty, a NUL byte, a remote URL without a path.
StatusOr<Url> parse_url(std::string_view text);

// The components of an absolute path; doubled and trailing slashes count once. InvalidArgument for
// `.` and `..`, which remote stores would resolve each in its own way.
StatusOr<std::vector<std::string>> path_components(const Url& url);

// `directory` with `name` below it.
std::string join_url(std::string_view directory, std::string_view name);
// Everything before the last component: the root stays the root, a plain name gives ".".
std::string parent_path(std::string_view path);
// The last component, trailing slashes ignored.
std::string base_name(std::string_view path);

}  // namespace starling
