// The csv format: a line per record, columns between delimiters of one or more characters, quotes
// as in RFC 4180, but a quoted value ends on its line.
//
// Uses: base. Threads: as Format.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/format.h"

namespace starling {

StatusOr<std::shared_ptr<const Format>> make_csv(const FormatOptions& options,
                                                 std::vector<FieldOptions> fields);

// The names of the columns, of the first line of `head`, without spaces around them.
// InvalidArgument: a name twice, or a quote that is not closed.
StatusOr<std::vector<std::string>> csv_header(const FormatOptions& options, std::string_view head);

// Cuts lines into values.
class CsvCutter {
 public:
  CsvCutter(std::string delimiter, bool trim);

  // The values of a line, valid until the next call. False: the line is bad, reason() says why.
  bool cut(std::string_view line);
  const std::vector<std::string_view>& values() const { return values_; }
  const std::string& reason() const { return reason_; }

 private:
  bool cut_quoted(std::string_view line, size_t& at);

  std::string delimiter_;
  bool trim_;
  std::vector<std::string_view> values_;
  std::string plain_;  // quoted values without their quotes; as long as the line at most
  std::string reason_;
};

// Without spaces and tabs on both sides.
std::string_view trimmed(std::string_view text);

}  // namespace starling
