// A part of a large reply: RowRange counts the rows of all its tensors through.
//
// Uses: base, the generated messages. Threads: free functions over values.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "wire/message.h"

namespace starling {

// Cuts the tensors of `reply` down to the rows of `range`, sharing their memory; a range that asks
// for nothing leaves all. Answers how many rows the whole reply has.
StatusOr<uint64_t> cut_rows(const v1::RowRange& range, Message& reply);

// The same of ids, each of which is a row behind the `rows` of the reply's tensors. Answers how
// many rows both have.
uint64_t cut_ids(const v1::RowRange& range, uint64_t rows,
                 google::protobuf::RepeatedPtrField<std::string>& ids);

}  // namespace starling
