#include "data/lines.h"

namespace starling {

StatusOr<std::shared_ptr<const ParserBase>> ParserBase::make(
    const FormatOptions& options, const std::vector<FieldOptions>& fields, bool text_columns) {
  auto base = std::make_shared<ParserBase>();
  base->options = options;
  if (base->options.line_bytes_max == 0) base->options.line_bytes_max = kLineBytesMax;
  STARLING_ASSIGN_OR_RETURN(base->plans, plan_fields(fields, text_columns));
  STARLING_ASSIGN_OR_RETURN(base->filter, RecordFilter::make(options));
  return base;
}

LineParser::LineParser(std::shared_ptr<const ParserBase> base)
    : base_(std::move(base)),
      builder_(base_->plans, base_->filter, base_->options.labels_optional) {}

void LineParser::report_bad(std::string_view line, uint64_t offset, uint64_t number,
                            ParseResult& result) {
  ++result.counts.bad;
  if (result.bad.size() >= bad_kept_max_) return;
  result.bad.push_back({number, offset, builder_.field(), builder_.reason(), line});
}

void LineParser::take_record(std::string_view line, uint64_t offset, uint64_t number,
                             SampleBlock& out, ParseResult& result) {
  ++result.counts.records;
  if (!base_->filter.in_split(offset)) {
    ++result.counts.skipped_split;
    return;
  }
  builder_.begin(out);
  Outcome outcome = Outcome::kBad;
  if (line.size() > base_->options.line_bytes_max) {
    builder_.fail("", fmt::format("has {} bytes, line_bytes_max is {}", line.size(),
                                  base_->options.line_bytes_max));
  } else {
    outcome = parse_line(line, builder_);
  }
  if (outcome == Outcome::kSample && !builder_.commit(offset, result.counts))
    outcome = Outcome::kBad;
  if (outcome == Outcome::kSample) return;
  builder_.cancel();
  if (outcome == Outcome::kSplit) {
    ++result.counts.skipped_split;
  } else {
    report_bad(line, offset, number, result);
  }
}

void LineParser::take_line(std::string_view line, uint64_t offset, uint64_t number,
                           SampleBlock& out, ParseResult& result) {
  if (offset == 0) {
    if (base_->options.header) return;
    if (line.substr(0, kByteOrderMark.size()) == kByteOrderMark)
      line.remove_prefix(kByteOrderMark.size());
  }
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (!line.empty()) take_record(line, offset, number, out, result);
}

void LineParser::parse_records(const Chunk& chunk, SampleBlock& out, ParseResult& result,
                               size_t bad_kept_max) {
  start(bad_kept_max);
  const uint32_t first = out.samples();
  std::string_view rest = chunk.bytes;
  uint64_t offset = chunk.offset;
  uint64_t number = chunk.line;
  while (!rest.empty()) {
    const size_t newline = rest.find('\n');
    const std::string_view line = rest.substr(0, newline);
    const size_t length = newline == rest.npos ? rest.size() : newline + 1;
    take_line(line, offset, number, out, result);
    rest.remove_prefix(length);
    offset += length;
    if (number != 0) ++number;
  }
  base_->plans.finish_numbers(out, first);
}

}  // namespace starling
