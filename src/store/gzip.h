// GzipReader and GzipWriter: the bytes of a gzip stream, any number of members.
//
// Uses: base, zlib. Threads: one owner at a time.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "store/file_system.h"

namespace starling {

class GzipReader final : public Reader {
 public:
  explicit GzipReader(std::unique_ptr<Reader> source);
  ~GzipReader() override;

  StatusOr<size_t> read(std::span<std::byte> into) override;
  void interrupt() override { source_->interrupt(); }
  const std::string& url() const override { return source_->url(); }

 private:
  // False at the end of the source.
  StatusOr<bool> refill();
  StatusOr<size_t> read_some(std::span<std::byte> into);
  // After a member: whether another one follows. Zero bytes, as tapes and tar leave them, end the
  // stream.
  StatusOr<bool> next_member();
  uint64_t at() const { return taken_ - stream_.avail_in; }

  const std::unique_ptr<Reader> source_;
  const std::unique_ptr<std::byte[]> input_;
  z_stream stream_{};
  uint64_t taken_ = 0;  // compressed bytes read from the source
  bool is_in_member_ = true;
  bool is_at_end_ = false;
  Status failed_;
};

class GzipWriter final : public Writer {
 public:
  GzipWriter(std::unique_ptr<Writer> target, int level);
  ~GzipWriter() override;

  Status write(std::span<const std::byte> bytes) override;
  Status publish() override;
  const std::string& url() const override { return target_->url(); }

 private:
  Status pump(std::span<const std::byte> bytes, int flush);

  const std::unique_ptr<Writer> target_;
  std::vector<std::byte> output_;
  z_stream stream_{};
};

}  // namespace starling
