// WriteBehind gathers bytes into large chunks and writes them to a target on a thread of its own,
// so that making bytes overlaps with disk and network.
//
// Uses: base. Threads: one owner writes; the thread `write-behind` empties, and is joined by
// publish() or the destructor.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "store/file_system.h"
#include "store/pages.h"

namespace starling {

struct WriteBehindOptions {
  size_t chunk_bytes = 1 << 20;  // of one write to the target; the last may be smaller
  size_t chunks = 4;             // at most this many are held
};

class WriteBehind final : public Writer {
 public:
  // InvalidArgument: an option is 0, or together they exceed 4 GiB.
  static StatusOr<std::unique_ptr<Writer>> start(std::unique_ptr<Writer> target,
                                                 WriteBehindOptions options = {});
  // What waits is dropped.
  ~WriteBehind() override;

  // An error of the target is told by a later call.
  Status write(std::span<const std::byte> bytes) override;
  Status publish() override;
  const std::string& url() const override { return target_->url(); }

 private:
  struct Chunk {
    PageBuffer bytes;
    size_t filled = 0;
  };

  WriteBehind(std::unique_ptr<Writer> target, WriteBehindOptions options);
  void empty();
  // Waits until the chunk `number` has been filled; false when it never will be.
  bool wait_for_chunk(uint64_t number);
  // Waits until fewer than `chunks` wait, or the target has failed.
  Status wait_for_room(size_t chunks);
  void hand_over();
  void stop();

  const std::unique_ptr<Writer> target_;
  const WriteBehindOptions options_;

  // A chunk belongs to the thread while written_ <= its number < filled_, else to the owner.
  std::vector<Chunk> ring_;

  Mutex mutex_;
  CondVar changed_;
  uint64_t filled_ ABSL_GUARDED_BY(mutex_) = 0;   // chunks filled so far
  uint64_t written_ ABSL_GUARDED_BY(mutex_) = 0;  // chunks written so far
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Status failed_ ABSL_GUARDED_BY(mutex_);

  // The owner's own.
  uint64_t filling_ = 0;  // number of the chunk being filled
  size_t at_ = 0;         // in it
  bool is_published_ = false;
  Thread thread_;
};

}  // namespace starling
