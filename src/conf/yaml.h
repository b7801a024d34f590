// Reads YAML into a ConfValue that knows the line of everything in it.
//
// Uses: yaml-cpp. Threads: any; a free function.
#pragma once

#include <functional>
#include <string>

#include "conf/value.h"

namespace starling {

// `origin_of` names a line, counted from 1. An empty document is a null value.
//
// InvalidArgument naming the line: bad YAML, a key given twice, a key that is not plain text, an
// anchor or alias (a few lines of them unfold to any size), more than 64 levels, more than one
// document.
StatusOr<ConfValue> parse_yaml(const std::string& text,
                               const std::function<Origin(int)>& origin_of);

}  // namespace starling
