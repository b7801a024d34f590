#include "store/read_ahead.h"

#include <algorithm>
#include <cstring>

namespace starling {

StatusOr<std::unique_ptr<Reader>> ReadAhead::start(std::unique_ptr<Reader> source,
                                                   ReadAheadOptions options) {
  constexpr size_t kBytesMax = size_t{4} << 30;
  if (options.chunk_bytes == 0 || options.chunks == 0 ||
      options.chunks > kBytesMax / options.chunk_bytes) {
    return invalid_argument(
        "read-ahead: {} chunks of {} bytes; allowed are 1 byte to {} bytes together",
        options.chunks, options.chunk_bytes, kBytesMax);
  }
  std::unique_ptr<ReadAhead> reader(new ReadAhead(std::move(source), options));
  reader->thread_ =
      Thread({.name = "read-ahead", .core = {}}, [self = reader.get()] { self->fill(); });
  return std::unique_ptr<Reader>(std::move(reader));
}

ReadAhead::ReadAhead(std::unique_ptr<Reader> source, ReadAheadOptions options)
    : source_(std::move(source)), options_(options), ring_(options.chunks) {}

ReadAhead::~ReadAhead() {
  {
    MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  source_->interrupt();
  thread_.join();
}

bool ReadAhead::wait_for_room(uint64_t number) {
  MutexLock lock(mutex_);
  // Without a deadline: the reader may take as long as it likes, and its destructor ends the wait.
  while (!is_stopping_ && number >= taken_ + options_.chunks)
    changed_.wait(mutex_, Deadline::never());
  return !is_stopping_;
}

void ReadAhead::fill() {
  for (uint64_t number = 0; wait_for_room(number); ++number) {
    Chunk& chunk = ring_[static_cast<size_t>(number % options_.chunks)];
    if (chunk.bytes == nullptr) chunk.bytes = allocate_pages(options_.chunk_bytes);
    const StatusOr<size_t> got = source_->read(std::span(chunk.bytes.get(), options_.chunk_bytes));
    const bool is_end = !got.ok() || *got == 0;
    {
      MutexLock lock(mutex_);
      if (is_end) {
        is_ended_ = true;
        ended_with_ = got.status();
      } else {
        chunk.filled = *got;
        filled_ = number + 1;
      }
    }
    changed_.notify_all();
    if (is_end) return;
  }
}

StatusOr<size_t> ReadAhead::read(std::span<std::byte> into) {
  if (into.empty()) return size_t{0};
  {
    MutexLock lock(mutex_);
    // Without a deadline: the source has its own.
    while (filled_ == reading_ && !is_ended_) changed_.wait(mutex_, Deadline::never());
    if (filled_ == reading_) {
      STARLING_RETURN_IF_ERROR(ended_with_);
      return size_t{0};
    }
  }
  const Chunk& chunk = ring_[static_cast<size_t>(reading_ % options_.chunks)];
  const size_t count = std::min(into.size(), chunk.filled - at_);
  std::memcpy(into.data(), chunk.bytes.get() + at_, count);
  at_ += count;
  if (at_ == chunk.filled) {
    at_ = 0;
    ++reading_;
    {
      MutexLock lock(mutex_);
      taken_ = reading_;
    }
    changed_.notify_all();
  }
  return count;
}

}  // namespace starling
