// Chunk is a run of whole records of a file; the functions here cut bytes at the ends of records.
//
// Uses: base. Threads: any; all are pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace starling {

enum class RecordKind {
  kLines,     // end with \n, the last of a file may lack it. A file can be read from any place
  kPrefixed,  // a length, then so many bytes (docs/format/features.md). Read from the start only
};

inline constexpr size_t kChunkBytesMax = size_t{1} << 30;

// Some programs put it before the text of a file; it belongs to no value.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

struct Chunk {
  std::string_view bytes;  // whole records
  uint64_t offset = 0;     // of bytes in the file, uncompressed
  uint64_t line = 0;       // the number of the first record, from 1; 0: not known
};

// The length of the whole records that `bytes`, which start with one, begin with; 0: not one is
// whole yet, read more. `at_end`: the file ends here, so a last line without its \n is whole.
//
// ResourceExhausted: the first record is longer than record_bytes_max; it cannot be stepped over.
// DataLoss: with at_end a prefixed record is cut off; with kPrefixed a length is not one.
StatusOr<size_t> whole_records(RecordKind kind, std::string_view bytes, bool at_end,
                               uint64_t record_bytes_max);

// How many lines (or prefixed records) `bytes`, which are whole records, have: the next chunk's
// first line is so much further.
uint64_t count_records(RecordKind kind, std::string_view bytes);

// Of a part of a file that begins at `offset` > 0, when `bytes` are read from offset - 1 on: where
// in `bytes` its first line starts; npos: it has not begun yet, read more. A line belongs to the
// part in which it starts.
size_t first_line_of_part(std::string_view bytes);

}  // namespace starling
