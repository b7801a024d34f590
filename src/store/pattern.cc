#include "store/pattern.h"

#include <cstdint>

namespace starling {
namespace {

// Takes one character off the front. Bytes that are no UTF-8 map above the code points, so that
// they only equal themselves.
uint32_t take_char(std::string_view& text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  size_t length = 1;
  uint32_t code = first;
  if (first >= 0xf0 && first < 0xf8) {
    length = 4;
    code = first & 0x07u;
  } else if (first >= 0xe0 && first < 0xf0) {
    length = 3;
    code = first & 0x0fu;
  } else if (first >= 0xc2 && first < 0xe0) {
    length = 2;
    code = first & 0x1fu;
  } else if (first >= 0x80) {
    text.remove_prefix(1);
    return 0x110000u + first;
  }
  bool good = text.size() >= length;
  for (size_t i = 1; good && i < length; ++i) {
    good = (byte(i) & 0xc0) == 0x80;
    code = (code << 6) | (byte(i) & 0x3fu);
  }
  if (!good) {
    text.remove_prefix(1);
    return 0x110000u + first;
  }
  text.remove_prefix(length);
  return code;
}

// The length of the class that starts at `pattern[0]` = '[', brackets included; 0 when it is not
// closed.
size_t class_length(std::string_view pattern) {
  size_t at = 1;
  if (at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^')) ++at;
  const size_t first = at;
  while (at < pattern.size()) {
    if (pattern[at] == ']' && at > first) return at + 1;
    at += pattern[at] == '\\' && at + 1 < pattern.size() ? 2 : 1;
  }
  return 0;
}

uint32_t take_class_char(std::string_view& body) {
  if (body[0] == '\\' && body.size() > 1) body.remove_prefix(1);
  return take_char(body);
}

bool class_matches(std::string_view body, uint32_t c) {
  bool negated = false;
  if (!body.empty() && (body[0] == '!' || body[0] == '^')) {
    negated = true;
    body.remove_prefix(1);
  }
  bool found = false;
  while (!body.empty()) {
    const uint32_t low = take_class_char(body);
    uint32_t high = low;
    if (body.size() >= 2 && body[0] == '-') {
      body.remove_prefix(1);
      high = take_class_char(body);
    }
    if (low <= c && c <= high) found = true;
  }
  return found != negated;
}

// Matches one element of the pattern that is not a star; false leaves both as they were.
bool match_one(std::string_view& pattern, std::string_view& name) {
  if (pattern.empty() || name.empty()) return false;
  std::string_view rest_of_name = name;
  const uint32_t c = take_char(rest_of_name);
  std::string_view rest = pattern;
  bool good = false;
  if (pattern[0] == '?') {
    rest.remove_prefix(1);
    good = true;
  } else if (pattern[0] == '[') {
    const size_t length = class_length(pattern);
    if (length == 0) return false;
    good = class_matches(pattern.substr(1, length - 2), c);
    rest.remove_prefix(length);
  } else {
    if (pattern[0] == '\\' && pattern.size() > 1) rest.remove_prefix(1);
    good = take_char(rest) == c;
  }
  if (!good) return false;
  pattern = rest;
  name = rest_of_name;
  return true;
}

}  // namespace

bool is_pattern(std::string_view text) {
  return text.find_first_of("*?[\\") != std::string_view::npos;
}

Status check_pattern(std::string_view pattern) {
  for (size_t at = 0; at < pattern.size();) {
    if (pattern[at] == '\\') {
      if (at + 1 == pattern.size())
        return invalid_argument("pattern {}: a backslash at the end", pattern);
      at += 2;
    } else if (pattern[at] == '[') {
      const size_t length = class_length(pattern.substr(at));
      if (length == 0) return invalid_argument("pattern {}: '[' at {} is not closed", pattern, at);
      at += length;
    } else {
      ++at;
    }
  }
  return absl::OkStatus();
}

bool matches(std::string_view pattern, std::string_view name) {
  if (!name.empty() && name[0] == '.' && !pattern.starts_with('.') && !pattern.starts_with("\\."))
    return false;
  // The last star takes one character more each time what follows it does not fit: linear memory,
  // no recursion.
  std::string_view star_pattern;
  std::string_view star_name;
  bool has_star = false;
  while (true) {
    if (!pattern.empty() && pattern[0] == '*') {
      pattern.remove_prefix(1);
      star_pattern = pattern;
      star_name = name;
      has_star = true;
    } else if (pattern.empty() && name.empty()) {
      return true;
    } else if (!match_one(pattern, name)) {
      if (!has_star || star_name.empty()) return false;
      take_char(star_name);
      pattern = star_pattern;
      name = star_name;
    }
  }
}

std::string escape_pattern(std::string_view name) {
  std::string pattern;
  for (const char c : name) {
    if (c == '*' || c == '?' || c == '[' || c == '\\') pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::string unescape_pattern(std::string_view pattern) {
  std::string name;
  for (size_t at = 0; at < pattern.size(); ++at) {
    if (pattern[at] == '\\' && at + 1 < pattern.size()) ++at;
    name += pattern[at];
  }
  return name;
}

}  // namespace starling
