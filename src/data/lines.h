// LineParser is the part that all formats of lines share: it walks the lines of a chunk, leaves out
// blank ones and those of another split, and reports the bad ones.
//
// Uses: base. Threads: one owner, as Parser.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "data/builder.h"
#include "data/format.h"

namespace starling {

// What all parsers of a format share; it does not change.
struct ParserBase {
  FormatOptions options;
  FieldPlans plans;
  RecordFilter filter;

  // InvalidArgument as plan_fields() and RecordFilter::make().
  static StatusOr<std::shared_ptr<const ParserBase>> make(const FormatOptions& options,
                                                          const std::vector<FieldOptions>& fields,
                                                          bool text_columns);
};

class LineParser : public Parser {
 public:
  explicit LineParser(std::shared_ptr<const ParserBase> base);

 protected:
  enum class Outcome { kSample, kBad, kSplit };

  // One record, of lines without the end. kSample: the builder has all values.
  virtual Outcome parse_line(std::string_view line, SampleBuilder& builder) = 0;

  void parse_records(const Chunk& chunk, SampleBlock& out, ParseResult& result,
                     size_t bad_kept_max) override;

  // Before the first record of a chunk.
  void start(size_t bad_kept_max) { bad_kept_max_ = bad_kept_max; }
  // The same of a line without its \n: leaves out headers and blank lines.
  void take_line(std::string_view line, uint64_t offset, uint64_t number, SampleBlock& out,
                 ParseResult& result);
  // One record with its place; for parsers that walk the records themselves.
  void take_record(std::string_view line, uint64_t offset, uint64_t number, SampleBlock& out,
                   ParseResult& result);
  void report_bad(std::string_view line, uint64_t offset, uint64_t number, ParseResult& result);

  const ParserBase& base() const { return *base_; }
  SampleBuilder& builder() { return builder_; }

 private:
  std::shared_ptr<const ParserBase> base_;
  SampleBuilder builder_;
  size_t bad_kept_max_ = 0;
};

}  // namespace starling
