#include "store/url.h"

namespace starling {
namespace {

std::string_view without_trailing_slashes(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

bool is_scheme(std::string_view text) {
  if (text.empty() || text[0] < 'a' || text[0] > 'z') return false;
  for (const char c : text) {
    const bool good =
        (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
    if (!good) return false;
  }
  return true;
}

}  // namespace

std::string Url::text() const {
  return is_plain ? path : fmt::format("{}://{}{}", scheme, authority, path);
}

StatusOr<Url> parse_url(std::string_view text) {
  if (text.empty()) return invalid_argument("an empty path names no file");
  if (text.find('\0') != std::string_view::npos)
    return invalid_argument("a path may not hold a NUL byte");
  Url url;
  const size_t colon = text.find("://");
  if (colon == std::string_view::npos || !is_scheme(text.substr(0, colon))) {
    url.scheme = "file";
    url.path = text;
    url.is_plain = true;
    return url;
  }
  url.scheme = text.substr(0, colon);
  const std::string_view rest = text.substr(colon + 3);
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) {
    if (url.scheme == "file")
      return invalid_argument("{}: write file:///path, with three slashes", text);
    return invalid_argument("{}: no path after the host", text);
  }
  url.authority = rest.substr(0, slash);
  url.path = rest.substr(slash);
  if (url.scheme == "file" && !url.authority.empty() && url.authority != "localhost") {
    return invalid_argument("{}: a file URL names this machine; write file:///path", text);
  }
  return url;
}

StatusOr<std::vector<std::string>> path_components(const Url& url) {
  std::vector<std::string> components;
  size_t at = 0;
  while (at < url.path.size()) {
    const size_t slash = std::min(url.path.find('/', at), url.path.size());
    std::string component = url.path.substr(at, slash - at);
    at = slash + 1;
    if (component.empty()) continue;
    if (component == "." || component == "..") {
      return invalid_argument("{}: '{}' is not allowed in a path", url.text(), component);
    }
    components.push_back(std::move(component));
  }
  return components;
}

std::string join_url(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  return fmt::format("{}{}{}", directory, directory.back() == '/' ? "" : "/", name);
}

std::string parent_path(std::string_view path) {
  path = without_trailing_slashes(path);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : without_trailing_slashes(path.substr(0, slash)));
}

std::string base_name(std::string_view path) {
  path = without_trailing_slashes(path);
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

}  // namespace starling
