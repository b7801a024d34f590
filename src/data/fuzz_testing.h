// What the fuzz targets of all formats check: any bytes parse without harm, the counts add up, and
// the samples do not depend on where the bytes are cut.
//
// Uses: data. Threads: one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "data/features.h"
#include "data/format.h"

namespace starling::data_testing {

inline void take_chunk(Parser& parser, std::string_view bytes, uint64_t offset, SampleBlock& out,
                       ParseCounts& counts) {
  const ParseResult result =
      parser.parse({.bytes = bytes, .offset = offset, .line = 0}, out, 3).value();
  STARLING_CHECK(result.bad.size() <= 3, "more bad lines were kept than asked for");
  for (const BadLine& bad : result.bad) {
    STARLING_CHECK(!bad.describe("f").empty(), "a bad line without words");
    STARLING_CHECK(
        bad.text.empty() || (bad.text.data() >= bytes.data() &&
                             bad.text.data() + bad.text.size() <= bytes.data() + bytes.size()),
        "a bad line outside of its chunk");
  }
  counts += result.counts;
}

inline std::string told(const SampleBlock& block) {
  std::string out;
  for (uint32_t i = 0; i < block.samples(); ++i) encode_sample(block, i, out);
  return out;
}

inline void check_parse(const Format& format, std::string_view bytes) {
  const StatusOr<std::unique_ptr<Parser>> parser = format.parser(bytes);
  if (!parser.ok()) return;
  constexpr uint64_t kBytesMax = 1 << 16;
  const StatusOr<size_t> whole = whole_records(format.records(), bytes, true, kBytesMax);
  if (!whole.ok()) {
    // Not whole records: harmless all the same.
    SampleBlock block(format.schema());
    ParseCounts counts;
    return take_chunk(**parser, bytes, 0, block, counts);
  }
  SampleBlock at_once(format.schema()), in_two(format.schema());
  ParseCounts counts, counts_in_two;
  take_chunk(**parser, bytes, 0, at_once, counts);
  STARLING_CHECK(counts.records ==
                     counts.samples + counts.bad + counts.skipped_split + counts.skipped_negatives,
                 "a record that is neither a sample nor skipped nor bad");
  STARLING_CHECK(counts.samples == at_once.samples(), "samples that were not counted");
  const StatusOr<size_t> cut =
      whole_records(format.records(), bytes.substr(0, bytes.size() / 2), false, kBytesMax);
  if (!cut.ok()) return;
  take_chunk(**parser, bytes.substr(0, *cut), 0, in_two, counts_in_two);
  take_chunk(**parser, bytes.substr(*cut), *cut, in_two, counts_in_two);
  STARLING_CHECK(told(at_once) == told(in_two), "samples depend on where the bytes are cut");
  STARLING_CHECK(counts.bad == counts_in_two.bad, "bad lines depend on where the bytes are cut");
}

}  // namespace starling::data_testing
