// BadLines keeps the account of records that could not be read, and says when they are too many.
//
// Uses: base. Threads: one owner; results are taken in the order of the stream, so that the same
// line is the one too many whoever parsed it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "data/format.h"

namespace starling {

struct BadLinesOptions {
  bool skip = false;         // false: the first one is an error
  uint64_t skip_max = 1000;  // with skip: one more is an error
};

class BadLines {
 public:
  explicit BadLines(BadLinesOptions options) : options_(options) {}

  // How many BadLine's a parser must keep of a chunk for what is said here.
  size_t kept_max() const { return options_.skip ? static_cast<size_t>(options_.skip_max) + 1 : 1; }

  // Counts those of one chunk. InvalidArgument: the line that is one too many, by file, line and
  // field.
  Status take(std::string_view file, const ParseResult& result);

  uint64_t count() const { return count_; }

 private:
  BadLinesOptions options_;
  uint64_t count_ = 0;
};

}  // namespace starling
