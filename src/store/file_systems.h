// FileSystems is every store behind one object: it finds the maker by the URL's scheme and keeps
// what it made.
//
// Roles make one with standard() and hand it around as FileSystem&. Uses: base. Threads: as
// FileSystem; add() before the first use.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "store/file_system.h"
#include "store/hdfs/file_system.h"
#include "store/local/file_system.h"
#include "store/memory/file_system.h"
#include "store/url.h"

namespace starling {

struct StoreOptions {
  Incarnation incarnation{};  // of this process; overrides the makers' own
  HdfsOptions hdfs;
  MemoryOptions memory;
};

class FileSystems final : public FileSystem {
 public:
  // Makes the store that a URL's scheme and authority name. Called once for each pair of them.
  using Maker = std::function<StatusOr<std::unique_ptr<FileSystem>>(const Url& url)>;

  FileSystems();
  ~FileSystems() override;
  // Plain paths and file, hdfs, webhdfs, swebhdfs and mem URLs. `clock` must outlive it.
  static std::unique_ptr<FileSystems> standard(const StoreOptions& options, const Clock& clock);

  // A new maker is one line: add("s3", [..](const Url& url) { return S3FileSystem::make(url, ..);
  // }).
  void add(std::string scheme, Maker maker);
  // InvalidArgument: no maker for the scheme; the message lists those there are.
  StatusOr<FileSystem*> find(std::string_view url);

  StatusOr<std::unique_ptr<Reader>> open_read(std::string_view url, ReadRange range) override;
  StatusOr<std::unique_ptr<Writer>> open_write(std::string_view url, Existing existing) override;
  StatusOr<std::unique_ptr<AppendFile>> open_append(std::string_view url) override;
  StatusOr<FileInfo> stat(std::string_view url) override;
  StatusOr<std::vector<FileInfo>> list_directory(std::string_view url) override;
  Status make_directories(std::string_view url) override;
  // InvalidArgument between two stores: that would be a copy.
  Status rename(std::string_view from, std::string_view to, Existing existing) override;
  Status remove(std::string_view url, Recursive recursive) override;

 private:
  std::map<std::string, Maker> makers_;
  Mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<FileSystem>> made_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling
