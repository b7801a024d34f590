// Memory that starts at a page, for what the kernel copies file data into.
//
// malloc lets large memory start 16 bytes into a page, and a copy from the page cache to there runs
// at less than half the speed: the processor takes each load for one that needs the store 16 bytes
// before, because their addresses agree in the low 12 bits. docs/design/store_speed.md has the
// numbers. Uses: base. Threads: any.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/check.h"

namespace starling {

struct PageBufferCloser {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};
using PageBuffer = std::unique_ptr<std::byte[], PageBufferCloser>;

// Uninitialised.
inline PageBuffer allocate_pages(size_t bytes) {
  constexpr size_t kSmallBytes = 4096;
  constexpr size_t kHugeBytes = 2 << 20;
  // From here on the kernel is asked for huge pages: the first touch of 128 MiB is then 64 page
  // faults, not 32,768. Smaller buffers are touched over and over, and their faults are few.
  constexpr size_t kHugeFromBytes = 8 << 20;
  const size_t unit = bytes >= kHugeFromBytes ? kHugeBytes : kSmallBytes;
  const size_t rounded = (bytes + unit - 1) / unit * unit;
  void* memory = std::aligned_alloc(unit, rounded);
  STARLING_CHECK(memory != nullptr, "out of memory");
  // A kernel that refuses leaves small pages, which work as well.
  if (unit == kHugeBytes) ::madvise(memory, rounded, MADV_HUGEPAGE);
  return PageBuffer(static_cast<std::byte*>(memory));
}

}  // namespace starling
