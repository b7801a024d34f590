// ReadAhead reads a source on a thread of its own into a bounded ring, so that parsing overlaps
// with disk and network.
//
// Uses: base. Threads: one owner reads; the thread `read-ahead` fills, and is interrupted and
// joined by the destructor.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "store/file_system.h"
#include "store/pages.h"

namespace starling {

struct ReadAheadOptions {
  size_t chunk_bytes = 1 << 20;  // of one read of the source
  size_t chunks = 8;             // at most this many are held
};

class ReadAhead final : public Reader {
 public:
  // InvalidArgument: an option is 0, or together they exceed 4 GiB.
  static StatusOr<std::unique_ptr<Reader>> start(std::unique_ptr<Reader> source,
                                                 ReadAheadOptions options = {});
  ~ReadAhead() override;

  StatusOr<size_t> read(std::span<std::byte> into) override;
  void interrupt() override { source_->interrupt(); }
  const std::string& url() const override { return source_->url(); }

 private:
  struct Chunk {
    PageBuffer bytes;
    size_t filled = 0;
  };

  ReadAhead(std::unique_ptr<Reader> source, ReadAheadOptions options);
  void fill();
  // Waits until chunk `number` may be filled; false when nobody will read it.
  bool wait_for_room(uint64_t number);

  const std::unique_ptr<Reader> source_;
  const ReadAheadOptions options_;

  // A chunk belongs to the filler while filled_ <= its number < taken_ + chunks, else to the
  // reader.
  std::vector<Chunk> ring_;

  Mutex mutex_;
  CondVar changed_;
  uint64_t filled_ ABSL_GUARDED_BY(mutex_) = 0;  // chunks filled so far
  uint64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;   // chunks used up so far
  bool is_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Status ended_with_ ABSL_GUARDED_BY(mutex_);

  // The reader's own.
  uint64_t reading_ = 0;  // number of the chunk being read
  size_t at_ = 0;         // in it
  Thread thread_;
};

}  // namespace starling
