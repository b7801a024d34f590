// Patterns of file names: `*`, `?`, `[a-z]`, `[!a-z]`, `\` before a literal; `**` as a whole
// component stands for any number of directories.
//
// Uses: base. Threads: any; functions without state.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace starling {

// Whether `text` has a character that a pattern gives a meaning to.
bool is_pattern(std::string_view text);

// InvalidArgument: a bracket that is not closed, or a backslash at the end.
Status check_pattern(std::string_view pattern);

// Whether one component matches. `*` and `?` stand for any character but never for the dot that
// hides a name. Characters are UTF-8 code points; bytes that are no UTF-8 count as one character
// each.
bool matches(std::string_view pattern, std::string_view name);

// The pattern that matches exactly `name`.
std::string escape_pattern(std::string_view name);
// The name that a pattern without wildcards stands for.
std::string unescape_pattern(std::string_view pattern);

}  // namespace starling
