// LocalFileSystem is the disks of this machine: plain paths and file:/// URLs.
//
// What publish(), rename(), remove() and make_directories() have returned OK for survives a power
// cut: the file and the directory that names it are fsynced. Uses: base. Threads: as FileSystem.
#pragma once

#include <memory>

#include "base/ids.h"
#include "store/file_system.h"
#include "store/temporary.h"

namespace starling {

struct LocalOptions {
  Incarnation incarnation{};  // of this process, for temporary names
};

class LocalFileSystem final : public FileSystem {
 public:
  explicit LocalFileSystem(LocalOptions options = {}) : temporaries_(options.incarnation) {}

  StatusOr<std::unique_ptr<Reader>> open_read(std::string_view url, ReadRange range) override;
  StatusOr<std::unique_ptr<Writer>> open_write(std::string_view url, Existing existing) override;
  StatusOr<std::unique_ptr<AppendFile>> open_append(std::string_view url) override;
  StatusOr<FileInfo> stat(std::string_view url) override;
  StatusOr<std::vector<FileInfo>> list_directory(std::string_view url) override;
  Status make_directories(std::string_view url) override;
  Status rename(std::string_view from, std::string_view to, Existing existing) override;
  Status remove(std::string_view url, Recursive recursive) override;

 private:
  TemporaryNames temporaries_;
};

}  // namespace starling
