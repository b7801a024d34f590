// MemoryFileSystem is a tree of files in memory under mem://name/path, for tests and simulations.
//
// It follows the rules of a disk: a reader keeps the version it opened, publish is one step,
// temporaries are seen under their own names, and there is an end to the space. Uses: base.
// Threads: as FileSystem.
#pragma once

#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "store/file_system.h"

namespace starling {

struct MemoryOptions {
  Incarnation incarnation{};        // of this process, for temporary names
  uint64_t bytes_max = UINT64_MAX;  // of all files together; beyond it ResourceExhausted
};

class MemoryTree;

class MemoryFileSystem final : public FileSystem {
 public:
  explicit MemoryFileSystem(MemoryOptions options = {});
  ~MemoryFileSystem() override;

  // Another process's view of the same files.
  std::unique_ptr<MemoryFileSystem> view_of(Incarnation incarnation) const;

  StatusOr<std::unique_ptr<Reader>> open_read(std::string_view url, ReadRange range) override;
  StatusOr<std::unique_ptr<Writer>> open_write(std::string_view url, Existing existing) override;
  StatusOr<std::unique_ptr<AppendFile>> open_append(std::string_view url) override;
  // modified_ms counts the changes made to the tree so far, so that a later change has a larger
  // one.
  StatusOr<FileInfo> stat(std::string_view url) override;
  StatusOr<std::vector<FileInfo>> list_directory(std::string_view url) override;
  Status make_directories(std::string_view url) override;
  Status rename(std::string_view from, std::string_view to, Existing existing) override;
  Status remove(std::string_view url, Recursive recursive) override;

 private:
  MemoryFileSystem(std::shared_ptr<MemoryTree> tree, Incarnation incarnation);

  const std::shared_ptr<MemoryTree> tree_;
  const Incarnation incarnation_;
};

}  // namespace starling
