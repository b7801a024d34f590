// LocalWriter and LocalAppendFile write local files: the one whole and published by rename, the
// other at its end.
//
// Uses: base. Threads: one owner at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "store/file_system.h"
#include "store/local/system.h"

namespace starling {

class LocalWriter final : public Writer {
 public:
  static StatusOr<std::unique_ptr<Writer>> open(const Url& url, Existing existing,
                                                const std::string& temporary);
  ~LocalWriter() override;

  Status write(std::span<const std::byte> bytes) override;
  Status publish() override;
  const std::string& url() const override { return url_; }

 private:
  LocalWriter(const Url& url, Existing existing, std::string temporary_path, Descriptor file);
  Status write_through(std::span<const std::byte> bytes);
  // Writes what can go around the system's cache of files, and returns what is left.
  StatusOr<std::span<const std::byte>> write_direct(std::span<const std::byte> bytes);
  Status publish_once();

  const std::string url_;
  const std::string path_;
  const std::string temporary_path_;
  const Existing existing_;
  Descriptor file_;
  Descriptor direct_;               // the same file, opened for write_direct()
  bool may_direct_ = true;          // until the file system has refused
  std::vector<std::byte> pending_;  // small writes, gathered
  uint64_t written_ = 0;
  uint64_t flushing_to_ = 0;  // the kernel was told to write back up to here
  bool temporary_exists_ = true;
  Status failed_;
};

class LocalAppendFile final : public AppendFile {
 public:
  static StatusOr<std::unique_ptr<AppendFile>> open(const Url& url);

  Status append(std::span<const std::byte> bytes) override;
  Status sync() override;
  Status truncate(uint64_t bytes) override;
  uint64_t size() const override { return size_; }
  const std::string& url() const override { return url_; }

 private:
  LocalAppendFile(std::string url, Descriptor file, uint64_t size);

  const std::string url_;
  const Descriptor file_;
  uint64_t size_;
};

}  // namespace starling
