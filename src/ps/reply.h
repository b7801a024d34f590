// Shaping of large replies: a range of their rows, and another type of their values.
//
// Uses: base, wire, table's conversions. Threads: free functions over values.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "wire/message.h"

namespace starling {

// InvalidArgument: no type for weights in a reply.
Status check_reply_type(v1::DType dtype);

// Cuts the tensors of `reply` down to the rows of `range`, counted through all of them, and turns
// float32 values into `dtype` (DTYPE_INVALID: as they are). Answers how many rows the whole reply
// has. InvalidArgument: no type for weights.
StatusOr<uint64_t> shape_reply(const v1::RowRange& range, v1::DType dtype, Message& reply);

}  // namespace starling
