#include "store/zstd.h"

#include <zstd_errors.h>

#include "base/check.h"

namespace starling {
namespace {

constexpr size_t kInputBytes = 256 << 10;
constexpr int kWindowLogMax = 27;  // 128 MiB, the command-line tool's limit

}  // namespace

ZstdReader::ZstdReader(std::unique_ptr<Reader> source)
    : source_(std::move(source)),
      storage_(std::make_unique_for_overwrite<std::byte[]>(kInputBytes)),
      stream_(ZSTD_createDStream()) {
  STARLING_CHECK(stream_ != nullptr, "out of memory");
  ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kWindowLogMax);
}

ZstdReader::~ZstdReader() { ZSTD_freeDStream(stream_); }

StatusOr<size_t> ZstdReader::read(std::span<std::byte> into) {
  STARLING_RETURN_IF_ERROR(failed_);
  StatusOr<size_t> got = read_some(into);
  if (!got.ok()) failed_ = got.status();
  return got;
}

StatusOr<size_t> ZstdReader::read_some(std::span<std::byte> into) {
  if (into.empty() || is_at_end_) return size_t{0};
  ZSTD_outBuffer output{into.data(), into.size(), 0};
  while (output.pos < output.size) {
    if (input_.pos == input_.size) {
      // What is there goes out before the source may be waited for.
      if (output.pos > 0) break;
      STARLING_ASSIGN_OR_RETURN(const size_t got, source_->read({storage_.get(), kInputBytes}));
      input_ = {storage_.get(), got, 0};
      taken_ += got;
      if (got == 0) {
        // The decoder may still hold the tail of a frame whose input is complete.
        const size_t before = output.pos;
        if (frame_wants_ != 0) frame_wants_ = ZSTD_decompressStream(stream_, &output, &input_);
        if (!ZSTD_isError(frame_wants_) && output.pos > before) break;
        if (frame_wants_ != 0) return data_loss("{}: zstd: cut short at {}", url(), taken_);
        is_at_end_ = true;
        break;
      }
    }
    frame_wants_ = ZSTD_decompressStream(stream_, &output, &input_);
    if (!ZSTD_isError(frame_wants_)) continue;
    const uint64_t at = taken_ - (input_.size - input_.pos);
    const char* reason = ZSTD_getErrorName(frame_wants_);
    const ZSTD_ErrorCode code = ZSTD_getErrorCode(frame_wants_);
    if (code == ZSTD_error_frameParameter_windowTooLarge || code == ZSTD_error_memory_allocation) {
      return resource_exhausted("{}: zstd: frame before {}: {}, at most 128 MiB are allowed", url(),
                                at, reason);
    }
    return data_loss("{}: zstd: damaged near {}: {}", url(), at, reason);
  }
  return output.pos;
}

ZstdWriter::ZstdWriter(std::unique_ptr<Writer> target, int level)
    : target_(std::move(target)), output_(ZSTD_CStreamOutSize()), stream_(ZSTD_createCStream()) {
  STARLING_CHECK(stream_ != nullptr, "out of memory");
  ZSTD_CCtx_setParameter(stream_, ZSTD_c_compressionLevel,
                         level == 0 ? ZSTD_CLEVEL_DEFAULT : level);
  ZSTD_CCtx_setParameter(stream_, ZSTD_c_checksumFlag, 1);
}

ZstdWriter::~ZstdWriter() { ZSTD_freeCStream(stream_); }

Status ZstdWriter::pump(std::span<const std::byte> bytes, ZSTD_EndDirective end) {
  ZSTD_inBuffer input{bytes.data(), bytes.size(), 0};
  size_t left = 0;
  do {
    ZSTD_outBuffer output{output_.data(), output_.size(), 0};
    left = ZSTD_compressStream2(stream_, &output, &input, end);
    if (ZSTD_isError(left))
      return resource_exhausted("{}: zstd: {}", url(), ZSTD_getErrorName(left));
    STARLING_RETURN_IF_ERROR(target_->write(std::span(output_).first(output.pos)));
  } while (input.pos < input.size || (end == ZSTD_e_end && left > 0));
  return absl::OkStatus();
}

Status ZstdWriter::write(std::span<const std::byte> bytes) { return pump(bytes, ZSTD_e_continue); }

Status ZstdWriter::publish() {
  STARLING_RETURN_IF_ERROR(pump({}, ZSTD_e_end));
  return target_->publish();
}

}  // namespace starling
