// Checksummed blocks around a writer and a reader, for our own formats: docs/format/block_stream.md
// gives every byte.
//
// A flipped bit, a cut tail, a missing, doubled or swapped block is DataLoss that names the file
// and the offset. Uses: base, xxhash. Threads: as Reader and Writer: one owner at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "store/file_system.h"

namespace starling {

inline constexpr uint32_t kBlockBytesDefault = 1 << 20;
inline constexpr uint32_t kBlockBytesMin = 64;
inline constexpr uint32_t kBlockBytesMax = 64 << 20;

// Writes the header at once. InvalidArgument: block_bytes is out of range.
StatusOr<std::unique_ptr<Writer>> write_blocks(std::unique_ptr<Writer> target,
                                               uint32_t block_bytes = kBlockBytesDefault);

// The bytes inside the blocks. Each is checked before any byte of its block is given out; the end
// is OK only after the end mark. DataLoss also for a file that is no block stream.
std::unique_ptr<Reader> read_blocks(std::unique_ptr<Reader> source);

}  // namespace starling
