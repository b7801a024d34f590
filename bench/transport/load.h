// Load says what an exchange carries; stamps and ready memory make and check it alike for every
// kind of transport.
//
// Uses: base. Threads: ReadyMemory has one owner; its buffers may be dropped on any thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"

namespace starling::bench {

struct Load {
  std::string_view name;
  size_t request_bytes = 0;
  size_t reply_bytes = 0;
  uint32_t pieces = 1;  // equal parts of the reply, each a tensor or a slice
  uint32_t in_flight = 1;

  size_t piece_bytes() const { return reply_bytes / pieces; }
};

std::span<const Load> loads();
// NotFound lists the known ones.
StatusOr<Load> find_load(std::string_view name);

// What a request tells its server; it travels in two small numbers of the request's option.
struct Ask {
  uint32_t request_bytes = 0;
  uint32_t reply_bytes = 0;
  uint32_t pieces = 1;
  static constexpr int kPiecesBits = 16;

  static Ask of(const Load& load) {
    return {static_cast<uint32_t>(load.request_bytes), static_cast<uint32_t>(load.reply_bytes),
            load.pieces};
  }
  // As CallOption carries it.
  static Ask unpack(int32_t command, int64_t timestamp) {
    return {static_cast<uint32_t>(timestamp >> kPiecesBits), static_cast<uint32_t>(command),
            static_cast<uint32_t>(timestamp) & ((1U << kPiecesBits) - 1)};
  }
  int32_t command() const { return static_cast<int32_t>(reply_bytes); }
  int64_t timestamp() const { return int64_t{request_bytes} << kPiecesBits | pieces; }

  // InvalidArgument when the server would not answer it: no room for a stamp, or uneven pieces.
  Status check() const;
};

inline void stamp(std::span<std::byte> bytes, uint64_t number) {
  std::memcpy(bytes.data(), &number, sizeof(number));
  std::memcpy(bytes.data() + bytes.size() - sizeof(number), &number, sizeof(number));
}
// DataLoss when the size differs or either end does not carry `number`.
Status check_stamp(std::span<const std::byte> bytes, size_t expected_bytes, uint64_t number);
// The number that a request carries. DataLoss when the size differs or the ends disagree.
StatusOr<uint64_t> read_stamp(std::span<const std::byte> bytes, size_t expected_bytes);

// Buffers that are filled once and used again as soon as nobody refers to them, so that a reply can
// point at memory that is ready while the one before it is still being sent.
class ReadyMemory {
 public:
  // `number` stands at both ends of each of the equal pieces.
  Buffer take(size_t bytes, uint32_t pieces, uint64_t number);

 private:
  BufferPool pool_;
  std::map<size_t, std::vector<Buffer>> by_bytes_;
};

}  // namespace starling::bench
