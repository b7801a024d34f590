// MemoryTree is the directories and files behind a MemoryFileSystem and all that is open on it.
//
// Uses: base. Threads: any; one mutex guards everything.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "store/file_system.h"
#include "store/url.h"

namespace starling {

// The bytes of one version of a file. Guarded by the mutex of its tree.
struct MemoryContent {
  std::string bytes;
  bool is_linked =
      true;  // false once no name leads to it: its space counts as free, as on a disk after unlink
};

struct MemoryNode {
  std::shared_ptr<MemoryContent> content;  // none for a directory
  std::map<std::string, std::unique_ptr<MemoryNode>> children;
  int64_t changed = 0;

  bool is_directory() const { return content == nullptr; }
};

using MemoryPath = std::vector<std::string>;

class MemoryTree {
 public:
  explicit MemoryTree(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // InvalidArgument when the URL is not one of this store's.
  static StatusOr<MemoryPath> parse(std::string_view url);

  // Numbers temporaries: the same in every run of a simulation.
  uint64_t next_number();

  StatusOr<std::shared_ptr<MemoryContent>> open(const MemoryPath& path, std::string_view url);
  // Makes a file with its parents. kKeep: AlreadyExists when there is one.
  StatusOr<std::shared_ptr<MemoryContent>> create(const MemoryPath& path, Existing existing,
                                                  std::string_view url);
  // Refuses what a writer of `path` may not replace, before it writes.
  Status check_target(const MemoryPath& path, Existing existing, std::string_view url);
  StatusOr<FileInfo> stat(const MemoryPath& path, std::string_view url);
  StatusOr<std::vector<FileInfo>> list(const MemoryPath& path, std::string_view url);
  Status make_directories(const MemoryPath& path, std::string_view url);
  Status rename(const MemoryPath& from, const MemoryPath& to, Existing existing,
                std::string_view url);
  Status remove(const MemoryPath& path, Recursive recursive, std::string_view url);

  size_t read(const MemoryContent& content, uint64_t offset, std::span<std::byte> into);
  uint64_t size(const MemoryContent& content);
  Status append(MemoryContent& content, std::span<const std::byte> bytes, std::string_view url);
  void truncate(MemoryContent& content, uint64_t bytes);

 private:
  MemoryNode* find(const MemoryPath& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StatusOr<MemoryNode*> make(const MemoryPath& path, size_t depth, std::string_view url)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void forget(const MemoryNode& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t bytes_max_;
  Mutex mutex_;
  MemoryNode root_ ABSL_GUARDED_BY(mutex_);
  int64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t numbers_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace starling
