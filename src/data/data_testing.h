// What the tests of formats share.
//
// Uses: data. Threads: one.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "data/format.h"

namespace starling::data_testing {

struct Parsed {
  SampleBlock block;
  ParseResult result;
};

inline std::vector<uint64_t> keys_of(const SampleBlock& block, uint32_t sample, uint32_t field) {
  std::vector<uint64_t> keys;
  block.for_each_key(sample, [&](uint32_t of, Key key) {
    if (of == field) keys.push_back(value(key));
  });
  return keys;
}

inline std::vector<SampleRef> refs_of(const SampleBlock& block) {
  std::vector<SampleRef> refs;
  for (uint32_t i = 0; i < block.samples(); ++i) refs.push_back({&block, i});
  return refs;
}

// A format whose options are right.
inline std::shared_ptr<const Format> format_of(const FormatOptions& options,
                                               std::vector<FieldOptions> fields) {
  auto format = Format::make(options, std::move(fields));
  STARLING_CHECK(format.ok(), std::string(message_of(format.status())).c_str());
  return *format;
}

// A whole file at once; line numbers are known.
inline Parsed parse_all(const Format& format, std::string_view bytes) {
  Parsed parsed{SampleBlock(format.schema()), {}};
  auto parser = format.parser(bytes);
  STARLING_CHECK(parser.ok(), std::string(message_of(parser.status())).c_str());
  auto result = (*parser)->parse({.bytes = bytes, .offset = 0, .line = 1}, parsed.block, 100);
  STARLING_CHECK(result.ok(), std::string(message_of(result.status())).c_str());
  parsed.result = *std::move(result);
  return parsed;
}

}  // namespace starling::data_testing
