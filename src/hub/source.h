// Work items are what hubs share: ranges of plain files, whole files where they must be read from
// their start. ItemSource gives the bytes of one, cut at the ends of records.
//
// Uses: base, wire, store, data. Threads: an ItemSource has one owner; its store reads ahead on a
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/status.h"
#include "data/chunk.h"
#include "data/format.h"
#include "store/file_system.h"
#include "wire/message.h"

namespace starling {

struct SourceOptions {
  std::string pipe_command;  // words between spaces; no shell
  RecordKind records = RecordKind::kLines;
  bool has_header = false;
  uint64_t record_bytes_max = 64 << 20;
  bool skips_long = false;         // lines above it are stepped over and told; else an error
  uint64_t item_bytes = 64 << 20;  // of a range of a plain file
  size_t chunk_bytes = 1 << 20;
  BufferPool* pool = nullptr;  // of chunks; none: the allocator
};

// The items of a dataset, in the order of the patterns, then of URLs. Empty files have none.
//
// NotFound: a file or pattern that gives nothing; the message names it.
StatusOr<std::vector<v1::WorkItem>> list_items(FileSystem& files,
                                               const std::vector<std::string>& patterns,
                                               const SourceOptions& options);

// Bytes with their place in the file.
struct OwnedChunk {
  Buffer buffer;
  Chunk chunk;  // points into it
  // In place of bytes: a line above the limit that was stepped over.
  std::optional<BadLine> too_long;

  bool is_end() const { return chunk.bytes.empty() && !too_long.has_value(); }
};

class ItemSource {
 public:
  // `files` and `clock` outlive it. Codes as FileSystem::open_read.
  static StatusOr<std::unique_ptr<ItemSource>> open(FileSystem& files, const v1::WorkItem& item,
                                                    const SourceOptions& options,
                                                    const Clock& clock);

  // Empty at the end of the item.
  //
  // DataLoss: the file is damaged, or shorter than it was when the items were made.
  // ResourceExhausted: a record above the limit that may not be stepped over.
  StatusOr<OwnedChunk> next();
  // The first bytes of the item, with its first line where it starts a file.
  std::string_view head() const { return head_; }
  const std::string& path() const { return item_.path(); }
  uint64_t bytes_read() const { return bytes_read_; }

 private:
  ItemSource(const v1::WorkItem& item, const SourceOptions& options)
      : item_(item), options_(options) {}
  Status fill();
  Status find_first_line();
  StatusOr<OwnedChunk> step_over(std::string why);
  OwnedChunk cut(size_t length);
  std::string_view pending() const { return {buffer_.view().data() + begin_, end_ - begin_}; }
  void drop(size_t length);

  const v1::WorkItem item_;
  const SourceOptions options_;
  std::unique_ptr<Reader> reader_;
  std::string head_;
  Buffer buffer_;
  size_t begin_ = 0;     // in buffer_: read and not handed out
  size_t end_ = 0;       // behind it
  uint64_t offset_ = 0;  // of pending() in the file
  uint64_t line_ = 0;    // of the first record in pending(); 0: not known
  uint64_t bytes_read_ = 0;
  bool is_at_end_ = false;
  bool is_over_ = false;
};

}  // namespace starling
