// Format turns the bytes of whole records into samples: the door to every parser.
//
// A format is made once per dataset and shared; each thread has a parser of its own, per file.
// Chunks are cut at the ends of records (chunk.h), and what a record becomes depends on its bytes
// and its place in the file alone, so the samples are the same however a file is cut and whoever
// parses it.
// Uses: base. Threads: a Format may be shared; a Parser belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/chunk.h"
#include "data/options.h"
#include "data/sample.h"

namespace starling {

// A record that could not be read.
struct BadLine {
  uint64_t line = 0;      // in its file, from 1; 0: not known, the chunk did not say
  uint64_t offset = 0;    // where it starts in its file
  std::string field;      // or column; empty: the whole line
  std::string reason;     // what is wrong, with the text
  std::string_view text;  // the record, inside of the chunk

  // "day_0:17: field price: 'x' is no number"; "day_0 at byte 4096: ..." without a line.
  std::string describe(std::string_view file) const;
};

// What became of the records of a chunk: records = samples + bad + skipped.
struct ParseCounts {
  uint64_t records = 0;            // blank lines and headers are none
  uint64_t samples = 0;            // appended
  uint64_t bad = 0;                // could not be read
  uint64_t skipped_split = 0;      // belong to another part of the split
  uint64_t skipped_negatives = 0;  // by negatives_rate
  uint64_t keys_dropped = 0;       // by keys_max

  ParseCounts& operator+=(const ParseCounts& other);
};

struct ParseResult {
  ParseCounts counts;
  // The first bad_kept_max of the bad ones, in order.
  std::vector<BadLine> bad;
};

class Parser {
 public:
  virtual ~Parser() = default;

  // Appends the samples of `chunk` (whole records of the parser's file) to `out`. Records that
  // cannot be read are counted, the first `bad_kept_max` of them told, and left out.
  // ResourceExhausted: `out` is full (kBlockKeysMax); give it an empty one. InvalidArgument: the
  // chunk is larger than kChunkBytesMax.
  StatusOr<ParseResult> parse(const Chunk& chunk, SampleBlock& out, size_t bad_kept_max);

 protected:
  // `chunk` has passed the checks.
  virtual void parse_records(const Chunk& chunk, SampleBlock& out, ParseResult& result,
                             size_t bad_kept_max) = 0;
};

class Format {
 public:
  virtual ~Format() = default;

  // InvalidArgument names the field and option that are wrong. `fields` may be empty for criteo:
  // label, I1 .. I13 (dense, log) and C1 .. C26 (keys, each a table of its own).
  static StatusOr<std::shared_ptr<const Format>> make(const FormatOptions& options,
                                                      std::vector<FieldOptions> fields);

  const FormatOptions& options() const { return options_; }
  // All of them, defaults filled in.
  const std::vector<FieldOptions>& fields() const { return fields_; }
  const std::shared_ptr<const SampleSchema>& schema() const { return schema_; }
  RecordKind records() const { return records_; }
  // The first line of each file names its columns: parser() must see it. parse() leaves it out.
  bool has_header() const { return options_.header; }

  // A parser for one file, whose first bytes are `head`: with has_header() at least the first line,
  // else not looked at. InvalidArgument: a field's column is not in the header.
  virtual StatusOr<std::unique_ptr<Parser>> parser(std::string_view head) const = 0;

 protected:
  Format(FormatOptions options, std::vector<FieldOptions> fields,
         std::shared_ptr<const SampleSchema> schema, RecordKind records);

 private:
  FormatOptions options_;
  std::vector<FieldOptions> fields_;
  std::shared_ptr<const SampleSchema> schema_;
  RecordKind records_;
};

// The names of all formats.
std::vector<std::string> format_names();

}  // namespace starling
