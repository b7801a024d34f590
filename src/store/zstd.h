// ZstdReader and ZstdWriter: the bytes of a zstd stream, any number of frames.
//
// Uses: base, zstd. Threads: one owner at a time.
#pragma once

#include <zstd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "store/file_system.h"

namespace starling {

class ZstdReader final : public Reader {
 public:
  explicit ZstdReader(std::unique_ptr<Reader> source);
  ~ZstdReader() override;

  StatusOr<size_t> read(std::span<std::byte> into) override;
  void interrupt() override { source_->interrupt(); }
  const std::string& url() const override { return source_->url(); }

 private:
  StatusOr<size_t> read_some(std::span<std::byte> into);

  const std::unique_ptr<Reader> source_;
  const std::unique_ptr<std::byte[]> storage_;
  ZSTD_DStream* const stream_;
  ZSTD_inBuffer input_{};
  uint64_t taken_ = 0;  // compressed bytes read from the source
  // zstd's word on what the frame still wants; 0 between frames. An empty file has no frame and is
  // cut short.
  size_t frame_wants_ = 1;
  bool is_at_end_ = false;
  Status failed_;
};

class ZstdWriter final : public Writer {
 public:
  ZstdWriter(std::unique_ptr<Writer> target, int level);
  ~ZstdWriter() override;

  Status write(std::span<const std::byte> bytes) override;
  Status publish() override;
  const std::string& url() const override { return target_->url(); }

 private:
  Status pump(std::span<const std::byte> bytes, ZSTD_EndDirective end);

  const std::unique_ptr<Writer> target_;
  std::vector<std::byte> output_;
  ZSTD_CStream* const stream_;
};

}  // namespace starling
