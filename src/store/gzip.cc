#include "store/gzip.h"

#include <algorithm>

#include "base/check.h"

namespace starling {
namespace {

constexpr size_t kInputBytes = 256 << 10;
constexpr size_t kOutputBytes = 256 << 10;
constexpr int kGzipWindow = 15 + 16;   // zlib: the largest window, with gzip's header and checksum
constexpr size_t kStepMax = 1u << 30;  // zlib counts in 32 bits

}  // namespace

GzipReader::GzipReader(std::unique_ptr<Reader> source)
    : source_(std::move(source)), input_(std::make_unique_for_overwrite<std::byte[]>(kInputBytes)) {
  STARLING_CHECK(inflateInit2(&stream_, kGzipWindow) == Z_OK, "out of memory");
}

GzipReader::~GzipReader() { inflateEnd(&stream_); }

StatusOr<bool> GzipReader::refill() {
  STARLING_ASSIGN_OR_RETURN(const size_t got, source_->read({input_.get(), kInputBytes}));
  stream_.next_in = reinterpret_cast<Bytef*>(input_.get());
  stream_.avail_in = static_cast<uInt>(got);
  taken_ += got;
  return got > 0;
}

StatusOr<size_t> GzipReader::read(std::span<std::byte> into) {
  STARLING_RETURN_IF_ERROR(failed_);
  StatusOr<size_t> got = read_some(into);
  if (!got.ok()) failed_ = got.status();
  return got;
}

StatusOr<bool> GzipReader::next_member() {
  while (true) {
    while (stream_.avail_in > 0 && *stream_.next_in == 0) {
      ++stream_.next_in;
      --stream_.avail_in;
    }
    if (stream_.avail_in > 0) break;
    STARLING_ASSIGN_OR_RETURN(const bool more, refill());
    if (!more) return false;
  }
  inflateReset(&stream_);
  is_in_member_ = true;
  return true;
}

StatusOr<size_t> GzipReader::read_some(std::span<std::byte> into) {
  if (into.empty() || is_at_end_) return size_t{0};
  const size_t wanted = std::min(into.size(), kStepMax);
  stream_.next_out = reinterpret_cast<Bytef*>(into.data());
  stream_.avail_out = static_cast<uInt>(wanted);
  while (stream_.avail_out > 0) {
    if (!is_in_member_) {
      STARLING_ASSIGN_OR_RETURN(const bool more, next_member());
      if (!more) {
        is_at_end_ = true;
        break;
      }
    }
    if (stream_.avail_in == 0) {
      // What is there goes out before the source may be waited for.
      if (stream_.avail_out < wanted) break;
      STARLING_ASSIGN_OR_RETURN(const bool more, refill());
      if (!more) return data_loss("{}: gzip: cut short at {}", url(), at());
    }
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      is_in_member_ = false;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      return data_loss("{}: gzip: damaged near {}: {}", url(), at(),
                       stream_.msg == nullptr ? "no reason" : stream_.msg);
    }
  }
  return wanted - stream_.avail_out;
}

GzipWriter::GzipWriter(std::unique_ptr<Writer> target, int level)
    : target_(std::move(target)), output_(kOutputBytes) {
  const int zlib_level = level == 0 ? Z_DEFAULT_COMPRESSION : level;
  STARLING_CHECK(
      deflateInit2(&stream_, zlib_level, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) == Z_OK,
      "out of memory");
}

GzipWriter::~GzipWriter() { deflateEnd(&stream_); }

Status GzipWriter::pump(std::span<const std::byte> bytes, int flush) {
  stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));
  stream_.avail_in = static_cast<uInt>(bytes.size());
  int result = Z_OK;
  do {
    stream_.next_out = reinterpret_cast<Bytef*>(output_.data());
    stream_.avail_out = static_cast<uInt>(output_.size());
    result = deflate(&stream_, flush);
    STARLING_CHECK(result != Z_STREAM_ERROR, "deflate was called out of order");
    STARLING_RETURN_IF_ERROR(
        target_->write(std::span(output_).first(output_.size() - stream_.avail_out)));
  } while (stream_.avail_out == 0 || (flush == Z_FINISH && result != Z_STREAM_END));
  return absl::OkStatus();
}

Status GzipWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t step = std::min(bytes.size(), kStepMax);
    STARLING_RETURN_IF_ERROR(pump(bytes.first(step), Z_NO_FLUSH));
    bytes = bytes.subspan(step);
  }
  return absl::OkStatus();
}

Status GzipWriter::publish() {
  STARLING_RETURN_IF_ERROR(pump({}, Z_FINISH));
  return target_->publish();
}

}  // namespace starling
