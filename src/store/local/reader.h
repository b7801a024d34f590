// LocalReader reads a range of a local file, front to back.
//
// Uses: base. Threads: one owner at a time.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "store/file_system.h"
#include "store/local/system.h"

namespace starling {

class LocalReader final : public Reader {
 public:
  static StatusOr<std::unique_ptr<Reader>> open(const Url& url, ReadRange range);

  StatusOr<size_t> read(std::span<std::byte> into) override;
  const std::string& url() const override { return url_; }

 private:
  LocalReader(std::string url, Descriptor file, Descriptor direct, ReadRange range);
  // As read(2).
  ssize_t read_some(std::span<std::byte> into);

  const std::string url_;
  const Descriptor file_;
  Descriptor direct_;  // the same file around the page cache; closed: not asked for, or refused
  uint64_t at_;
  uint64_t left_;
};

}  // namespace starling
