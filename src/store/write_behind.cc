#include "store/write_behind.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace starling {

StatusOr<std::unique_ptr<Writer>> WriteBehind::start(std::unique_ptr<Writer> target,
                                                     WriteBehindOptions options) {
  constexpr size_t kBytesMax = size_t{4} << 30;
  if (options.chunk_bytes == 0 || options.chunks == 0 ||
      options.chunks > kBytesMax / options.chunk_bytes) {
    return invalid_argument(
        "write-behind: {} chunks of {} bytes; allowed are 1 byte to {} bytes together",
        options.chunks, options.chunk_bytes, kBytesMax);
  }
  std::unique_ptr<WriteBehind> writer(new WriteBehind(std::move(target), options));
  writer->thread_ =
      Thread({.name = "write-behind", .core = {}}, [self = writer.get()] { self->empty(); });
  return std::unique_ptr<Writer>(std::move(writer));
}

WriteBehind::WriteBehind(std::unique_ptr<Writer> target, WriteBehindOptions options)
    : target_(std::move(target)), options_(options), ring_(options.chunks) {}

WriteBehind::~WriteBehind() { stop(); }

void WriteBehind::stop() {
  {
    MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool WriteBehind::wait_for_chunk(uint64_t number) {
  MutexLock lock(mutex_);
  // Without a deadline: the owner may take as long as it likes, and its destructor ends the wait.
  while (!is_stopping_ && filled_ == number) changed_.wait(mutex_, Deadline::never());
  return !is_stopping_;
}

void WriteBehind::empty() {
  for (uint64_t number = 0; wait_for_chunk(number); ++number) {
    const Chunk& chunk = ring_[static_cast<size_t>(number % options_.chunks)];
    const Status status = target_->write(std::span(chunk.bytes.get(), chunk.filled));
    {
      MutexLock lock(mutex_);
      written_ = number + 1;
      failed_ = status;
    }
    changed_.notify_all();
    if (!status.ok()) return;
  }
}

Status WriteBehind::wait_for_room(size_t chunks) {
  MutexLock lock(mutex_);
  // Without a deadline: the target has its own.
  while (failed_.ok() && filled_ - written_ >= chunks) changed_.wait(mutex_, Deadline::never());
  return failed_;
}

void WriteBehind::hand_over() {
  ring_[static_cast<size_t>(filling_ % options_.chunks)].filled = std::exchange(at_, 0);
  {
    MutexLock lock(mutex_);
    filled_ = ++filling_;
  }
  changed_.notify_all();
}

Status WriteBehind::write(std::span<const std::byte> bytes) {
  if (is_published_) return failed_precondition("{}: write: already published", url());
  while (!bytes.empty()) {
    if (at_ == 0) STARLING_RETURN_IF_ERROR(wait_for_room(options_.chunks));
    PageBuffer& chunk = ring_[static_cast<size_t>(filling_ % options_.chunks)].bytes;
    if (chunk == nullptr) chunk = allocate_pages(options_.chunk_bytes);
    const size_t count = std::min(bytes.size(), options_.chunk_bytes - at_);
    std::memcpy(chunk.get() + at_, bytes.data(), count);
    at_ += count;
    bytes = bytes.subspan(count);
    if (at_ == options_.chunk_bytes) hand_over();
  }
  return absl::OkStatus();
}

Status WriteBehind::publish() {
  if (is_published_) return failed_precondition("{}: publish: already published", url());
  if (at_ > 0) hand_over();
  STARLING_RETURN_IF_ERROR(wait_for_room(1));
  is_published_ = true;
  stop();
  return target_->publish();
}

}  // namespace starling
