// The features format: length-prefixed protobuf records (features.proto) of pipelines that already
// have ids; also how samples travel between hubs.
//
// docs/format/features.md gives every byte. Uses: base. Threads: as Format; the functions are pure.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/format.h"

namespace starling {

StatusOr<std::shared_ptr<const Format>> make_features(const FormatOptions& options,
                                                      std::vector<FieldOptions> fields);

// Appends the record of a sample to `out`, without a length before it: keys and numbers as they
// are, fields by their numbers.
void encode_sample(const SampleBlock& block, uint32_t sample, std::string& out);

// Appends the sample of such a record to `out`, untransformed. InvalidArgument: it is no record, or
// names what the schema does not have.
Status decode_sample(std::string_view record, SampleBlock& out);

// Writes the length that stands before a record in a file.
void append_prefix(uint64_t record_bytes, std::string& out);

}  // namespace starling
