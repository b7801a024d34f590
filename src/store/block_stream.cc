#include "store/block_stream.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "store/hash.h"
#include "store/pages.h"

namespace starling {
namespace {

constexpr std::array<char, 8> kMagic = {'S', 'T', 'L', 'B', 'L', 'K', '0', '1'};
constexpr size_t kHeadBytes = 24;       // magic, block_bytes, 4 zero bytes, hash of the 16 before
constexpr size_t kBlockHeadBytes = 16;  // bytes, kind, hash
constexpr uint32_t kKindData = 1;
constexpr uint32_t kKindEnd = 2;

// The seed is the block's offset in the file, so that a block in another place does not verify; the
// kind and length are hashed with it.
uint64_t block_hash(uint64_t offset, uint32_t bytes, uint32_t kind,
                    std::span<const std::byte> payload) {
  const uint64_t seed = offset ^ (uint64_t{bytes} << 32 | kind) * 0x9e3779b97f4a7c15;
  return xxh3(payload, seed);
}

class BlockWriter final : public Writer {
 public:
  BlockWriter(std::unique_ptr<Writer> target, uint32_t block_bytes)
      : target_(std::move(target)), block_bytes_(block_bytes), buffer_(block_bytes) {}

  Status write_head() {
    std::array<std::byte, kHeadBytes> head{};
    std::memcpy(head.data(), kMagic.data(), kMagic.size());
    put_number(head.data() + 8, static_cast<uint32_t>(block_bytes_));
    put_number(head.data() + 16, xxh3(std::span(head).first(16), 0));
    at_ = kHeadBytes;
    return target_->write(head);
  }

  Status write(std::span<const std::byte> bytes) override {
    if (is_ended_) return failed_precondition("{}: write: already published", url());
    while (!bytes.empty()) {
      if (filled_ == 0 && bytes.size() >= block_bytes_) {
        STARLING_RETURN_IF_ERROR(write_block(kKindData, bytes.first(block_bytes_)));
        bytes = bytes.subspan(block_bytes_);
        continue;
      }
      const size_t step = std::min(bytes.size(), block_bytes_ - filled_);
      std::memcpy(buffer_.data() + filled_, bytes.data(), step);
      filled_ += step;
      bytes = bytes.subspan(step);
      if (filled_ == block_bytes_) STARLING_RETURN_IF_ERROR(flush(kKindData));
    }
    return absl::OkStatus();
  }

  Status publish() override {
    if (is_ended_) return failed_precondition("{}: publish: already published", url());
    if (filled_ > 0) STARLING_RETURN_IF_ERROR(flush(kKindData));
    is_ended_ = true;
    // The end says how many bytes there were, so that it cannot be cut off and put on again
    // elsewhere.
    put_number(buffer_.data(), total_);
    filled_ = sizeof(total_);
    STARLING_RETURN_IF_ERROR(flush(kKindEnd));
    return target_->publish();
  }

  const std::string& url() const override { return target_->url(); }

 private:
  Status flush(uint32_t kind) {
    const std::span<const std::byte> payload = std::span(buffer_).first(std::exchange(filled_, 0));
    return write_block(kind, payload);
  }

  Status write_block(uint32_t kind, std::span<const std::byte> payload) {
    const auto bytes = static_cast<uint32_t>(payload.size());
    std::array<std::byte, kBlockHeadBytes> head{};
    put_number(head.data(), bytes);
    put_number(head.data() + 4, kind);
    put_number(head.data() + 8, block_hash(at_, bytes, kind, payload));
    at_ += kBlockHeadBytes + bytes;
    if (kind == kKindData) total_ += bytes;
    STARLING_RETURN_IF_ERROR(target_->write(head));
    return target_->write(payload);
  }

  const std::unique_ptr<Writer> target_;
  const size_t block_bytes_;
  std::vector<std::byte> buffer_;  // a block that is not full yet
  size_t filled_ = 0;
  uint64_t at_ = 0;     // offset of the next block in the file
  uint64_t total_ = 0;  // payload so far
  bool is_ended_ = false;
};

class BlockReader final : public Reader {
 public:
  explicit BlockReader(std::unique_ptr<Reader> source) : source_(std::move(source)) {}

  StatusOr<size_t> read(std::span<std::byte> into) override {
    STARLING_RETURN_IF_ERROR(failed_);
    if (into.empty()) return size_t{0};
    if (begin_ == end_ && !is_at_end_) {
      size_t direct = 0;
      failed_ = next_block(into, &direct);
      STARLING_RETURN_IF_ERROR(failed_);
      if (direct > 0) return direct;
    }
    const size_t count = std::min(into.size(), end_ - begin_);
    if (count > 0) std::memcpy(into.data(), block_.get() + begin_, count);
    begin_ += count;
    return count;
  }
  void interrupt() override { source_->interrupt(); }
  const std::string& url() const override { return source_->url(); }

 private:
  Status damaged(std::string_view why) const {
    return data_loss("{}: block at {}: {}", url(), at_, why);
  }

  Status read_head() {
    std::array<std::byte, kHeadBytes> head{};
    STARLING_ASSIGN_OR_RETURN(const size_t got, read_full(*source_, head));
    if (got < kHeadBytes) return damaged("the file is shorter than its head");
    if (std::memcmp(head.data(), kMagic.data(), kMagic.size()) != 0)
      return damaged("not a block stream");
    if (number_at<uint64_t>(head.data() + 16) != xxh3(std::span(head).first(16), 0))
      return damaged("the head's checksum is wrong");
    block_bytes_max_ = number_at<uint32_t>(head.data() + 8);
    if (block_bytes_max_ < kBlockBytesMin || block_bytes_max_ > kBlockBytesMax)
      return damaged("block size out of range");
    block_ = allocate_pages(block_bytes_max_);
    at_ = kHeadBytes;
    return absl::OkStatus();
  }

  // A block that fits goes straight into `into`, and `direct` says how long it is; else it waits in
  // block_.
  Status next_block(std::span<std::byte> into, size_t* direct) {
    if (at_ == 0) STARLING_RETURN_IF_ERROR(read_head());
    std::array<std::byte, kBlockHeadBytes> head{};
    STARLING_ASSIGN_OR_RETURN(size_t got, read_full(*source_, head));
    if (got < kBlockHeadBytes) return damaged("the file is cut short");
    const auto bytes = number_at<uint32_t>(head.data());
    const auto kind = number_at<uint32_t>(head.data() + 4);
    if (bytes == 0 || bytes > block_bytes_max_) return damaged("its length is out of range");
    if (kind != kKindData && kind != kKindEnd) return damaged("its kind is unknown");
    const bool fits = into.size() >= bytes && kind == kKindData;
    const std::span<std::byte> payload = fits ? into.first(bytes) : std::span(block_.get(), bytes);
    STARLING_ASSIGN_OR_RETURN(got, read_full(*source_, payload));
    if (got < bytes) return damaged("the file is cut short");
    if (number_at<uint64_t>(head.data() + 8) != block_hash(at_, bytes, kind, payload))
      return damaged("its checksum is wrong");
    if (kind == kKindEnd) return read_end(payload);
    begin_ = 0;
    end_ = fits ? 0 : bytes;
    *direct = fits ? bytes : 0;
    total_ += bytes;
    at_ += kBlockHeadBytes + bytes;
    return absl::OkStatus();
  }

  Status read_end(std::span<const std::byte> payload) {
    if (payload.size() != sizeof(total_) || number_at<uint64_t>(payload.data()) != total_) {
      return damaged("the end does not fit the blocks before it");
    }
    std::array<std::byte, 1> more{};
    STARLING_ASSIGN_OR_RETURN(const size_t got, source_->read(more));
    if (got > 0) return damaged("there are bytes after the end");
    is_at_end_ = true;
    return absl::OkStatus();
  }

  const std::unique_ptr<Reader> source_;
  PageBuffer block_;  // verified bytes
  size_t begin_ = 0;
  size_t end_ = 0;
  uint64_t at_ = 0;  // offset of the block in the file
  uint64_t total_ = 0;
  uint32_t block_bytes_max_ = 0;
  bool is_at_end_ = false;
  Status failed_;
};

}  // namespace

StatusOr<std::unique_ptr<Writer>> write_blocks(std::unique_ptr<Writer> target,
                                               uint32_t block_bytes) {
  if (block_bytes < kBlockBytesMin || block_bytes > kBlockBytesMax) {
    return invalid_argument("{}: block_bytes is {}, allowed are {} to {}", target->url(),
                            block_bytes, kBlockBytesMin, kBlockBytesMax);
  }
  auto writer = std::make_unique<BlockWriter>(std::move(target), block_bytes);
  STARLING_RETURN_IF_ERROR(writer->write_head());
  return std::unique_ptr<Writer>(std::move(writer));
}

std::unique_ptr<Reader> read_blocks(std::unique_ptr<Reader> source) {
  return std::make_unique<BlockReader>(std::move(source));
}

}  // namespace starling
