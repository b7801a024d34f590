#include "transport/load.h"

#include <array>
#include <string>

namespace starling::bench {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kStampBytes = sizeof(uint64_t);
constexpr size_t kReplyBytesMax = size_t{64} << 20;
constexpr uint32_t kPiecesMax = 1024;

constexpr std::array kLoads = {
    Load{.name = "8 B", .request_bytes = 8, .reply_bytes = 8},
    Load{.name = "256 KB", .request_bytes = 32 * kKiB, .reply_bytes = 256 * kKiB},
    Load{.name = "6.8 MB", .request_bytes = 850'000, .reply_bytes = 6'800'000},
    Load{.name = "8 x 256 KB",
         .request_bytes = 32 * kKiB,
         .reply_bytes = 256 * kKiB,
         .in_flight = 8},
    Load{.name = "6.8 MB / 16", .request_bytes = 850'000, .reply_bytes = 6'800'000, .pieces = 16},
    Load{.name = "6.8 MB / 64", .request_bytes = 850'000, .reply_bytes = 6'800'000, .pieces = 64},
};

}  // namespace

std::span<const Load> loads() { return kLoads; }

StatusOr<Load> find_load(std::string_view name) {
  std::string known;
  for (const Load& load : kLoads) {
    if (load.name == name) return load;
    known += fmt::format(" '{}'", load.name);
  }
  return not_found("load '{}'; known are{}", name, known);
}

Status Ask::check() const {
  if (request_bytes < kStampBytes || reply_bytes > kReplyBytesMax || pieces == 0 ||
      pieces > kPiecesMax || reply_bytes % pieces != 0 || reply_bytes / pieces < kStampBytes) {
    return invalid_argument("{} bytes in, {} bytes out in {} pieces cannot be served",
                            request_bytes, reply_bytes, pieces);
  }
  return absl::OkStatus();
}

StatusOr<uint64_t> read_stamp(std::span<const std::byte> bytes, size_t expected_bytes) {
  if (bytes.size() != expected_bytes || bytes.size() < kStampBytes) {
    return data_loss("{} bytes came, {} were expected", bytes.size(), expected_bytes);
  }
  uint64_t first;
  uint64_t last;
  std::memcpy(&first, bytes.data(), kStampBytes);
  std::memcpy(&last, bytes.data() + bytes.size() - kStampBytes, kStampBytes);
  if (first != last) return data_loss("stamp {} at the front, {} at the end", first, last);
  return first;
}

Status check_stamp(std::span<const std::byte> bytes, size_t expected_bytes, uint64_t number) {
  STARLING_ASSIGN_OR_RETURN(const uint64_t found, read_stamp(bytes, expected_bytes));
  if (found != number) return data_loss("stamp {} came, {} was expected", found, number);
  return absl::OkStatus();
}

Buffer ReadyMemory::take(size_t bytes, uint32_t pieces, uint64_t number) {
  std::vector<Buffer>& ring = by_bytes_[bytes];
  Buffer* free = nullptr;
  for (Buffer& buffer : ring) {
    if (buffer.owners() == 1) {
      free = &buffer;
      break;
    }
  }
  if (free == nullptr) {
    ring.push_back(pool_.allocate(bytes));
    free = &ring.back();
    std::memset(free->mutable_data(), 0x5a, bytes);
  }
  const size_t piece = bytes / pieces;
  for (uint32_t i = 0; i < pieces; ++i) {
    stamp(free->mutable_bytes().subspan(i * piece, piece), number);
  }
  return *free;
}

}  // namespace starling::bench
