// The length before each record of the `features` format: a varint (docs/format/features.md).
//
// Uses: base. Threads: any; pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace starling {

struct RecordSpan {
  size_t prefix_bytes = 0;  // 0: the length itself is not all there
  uint64_t bytes = 0;       // of the record behind it
  uint64_t total() const { return prefix_bytes + bytes; }
};

// What `bytes` begin with. DataLoss: no length of a record, it is above 2^35.
inline StatusOr<RecordSpan> next_record(std::string_view bytes) {
  constexpr size_t kPrefixBytesMax = 5;
  uint64_t length = 0;
  for (size_t i = 0; i < kPrefixBytesMax; ++i) {
    if (i == bytes.size()) return RecordSpan{};
    const auto byte = static_cast<uint8_t>(bytes[i]);
    length |= uint64_t{byte & 0x7fU} << (7 * i);
    if (byte < 0x80) return RecordSpan{i + 1, length};
  }
  return data_loss("not the length of a record: more than {} bytes", kPrefixBytesMax);
}

}  // namespace starling
