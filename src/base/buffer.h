// Buffer is a run of bytes with a shared owner: slices cost no copy, foreign memory can be adopted,
// large blocks come from a BufferPool and go back to it.
//
// Uses: std. Threads: a Buffer is a value; copies of it may live on any threads. Whoever writes
// into the bytes must be the only one to look. BufferPool may be used from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

namespace starling {

inline constexpr size_t kBufferAlignment = 64;

class Buffer {
 public:
  Buffer() = default;
  // Uninitialised, 64-byte aligned.
  static Buffer allocate(size_t bytes);
  static Buffer copy_of(std::span<const std::byte> bytes);
  static Buffer copy_of(std::string_view bytes);
  // Calls `release` once, when the last slice has gone, from the thread that drops it.
  static Buffer adopt(void* data, size_t bytes, std::function<void()> release);
  // Points into memory that `owner` keeps alive.
  static Buffer share(std::shared_ptr<const void> owner, const void* data, size_t bytes);

  const std::byte* data() const { return data_; }
  std::byte* mutable_data() { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::span<std::byte> mutable_bytes() { return {data_, size_}; }
  std::string_view view() const { return {reinterpret_cast<const char*>(data_), size_}; }

  // The bytes [offset, offset + bytes), which must lie inside; shares the owner.
  Buffer slice(size_t offset, size_t bytes) const;
  // How many Buffers share the owner; 0 for an empty one. Exact only while no other thread copies.
  long owners() const { return owner_.use_count(); }

 private:
  friend class BufferPool;
  Buffer(std::shared_ptr<const void> owner, std::byte* data, size_t bytes)
      : owner_(std::move(owner)), data_(data), size_(bytes) {}

  std::shared_ptr<const void> owner_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

struct BufferPoolOptions {
  size_t block_bytes_min = 32 << 10;          // smaller requests go to the allocator
  size_t cached_bytes_max = size_t{1} << 30;  // blocks beyond it are given back to the system
};

// Keeps large blocks for reuse, already mapped and touched, so that a steady state makes no page
// faults.
class BufferPool {
 public:
  explicit BufferPool(BufferPoolOptions options = {});
  // Blocks still in use outlive the pool and are freed when they are dropped.
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Uninitialised (an old block's bytes may show), 64-byte aligned, every page already present.
  Buffer allocate(size_t bytes);

  struct Stats {
    uint64_t made = 0;        // blocks asked from the system
    uint64_t reused = 0;      // blocks taken from the cache
    size_t cached_bytes = 0;  // waiting for reuse
    size_t lent_bytes = 0;    // in use
  };
  Stats stats() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace starling
