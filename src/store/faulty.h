// FaultyFileSystem wraps another one and breaks it on purpose: the n-th call fails, a write is cut
// short, the process stops at a point, the power goes and takes what was not synced.
//
// Calls are counted from 1 over the whole file system, in the order they arrive: opens, reads,
// writes, publishes, syncs, everything. Uses: base. Threads: as FileSystem.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "store/file_system.h"

namespace starling {

enum class FileOp {
  kOpenRead,
  kOpenWrite,
  kOpenAppend,
  kStat,
  kList,
  kMakeDirectories,
  kRename,
  kRemove,
  kRead,
  kWrite,
  kPublish,
  kAppend,
  kSync,
  kTruncate,
};

// One planned failure.
struct Fault {
  std::optional<FileOp> op;  // any when empty
  uint64_t nth = 1;          // of the calls of this kind, counted from now
  Status status;             // what the caller gets; OK is an ordinary call
  bool is_after = false;     // the call is carried out, then the answer is lost
  bool is_lasting =
      false;  // every later call fails the same: the process is gone, its temporaries stay
  uint64_t cut_bytes = 0;  // of a write or append: so many bytes still arrive
  Duration delay{};        // before the call
};

class FaultyState;

class FaultyFileSystem final : public FileSystem {
 public:
  // `inner` must outlive it. `sleep` is called for delays; it really sleeps when empty.
  explicit FaultyFileSystem(FileSystem& inner, std::function<void(Duration)> sleep = {});
  ~FaultyFileSystem() override;

  void add(Fault fault);
  void clear();
  // Calls so far, refused ones included.
  uint64_t calls() const;

  // As if the power had gone: bytes appended since the last sync are lost, or, with `torn_bytes`,
  // all but so many of each file; temporaries stay behind at what was written; all that is open
  // fails with Unavailable from now on. Opening works again: the machine is back. What publish,
  // rename, remove and make_directories answered OK for stays.
  Status power_cut(uint64_t torn_bytes = 0);

  StatusOr<std::unique_ptr<Reader>> open_read(std::string_view url, ReadRange range) override;
  StatusOr<std::unique_ptr<Writer>> open_write(std::string_view url, Existing existing) override;
  StatusOr<std::unique_ptr<AppendFile>> open_append(std::string_view url) override;
  StatusOr<FileInfo> stat(std::string_view url) override;
  StatusOr<std::vector<FileInfo>> list_directory(std::string_view url) override;
  Status make_directories(std::string_view url) override;
  Status rename(std::string_view from, std::string_view to, Existing existing) override;
  Status remove(std::string_view url, Recursive recursive) override;

 private:
  FileSystem& inner_;
  const std::shared_ptr<FaultyState> state_;
};

}  // namespace starling
