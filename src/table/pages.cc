#include "table/pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

namespace starling {

namespace {

constexpr size_t kPageBytes = 4096;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Pages Pages::map(size_t bytes, PageSize size) {
  bytes = round_up(bytes, kPageBytes);
  // One huge page more than asked, so that an aligned start lies inside; what is left over is
  // unmapped.
  void* raw = mmap(nullptr, bytes + kHugePageBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return {};
  auto* start = static_cast<std::byte*>(raw);
  const size_t before = round_up(reinterpret_cast<uintptr_t>(start), kHugePageBytes) -
                        reinterpret_cast<uintptr_t>(start);
  if (before != 0) munmap(start, before);
  if (before != kHugePageBytes) munmap(start + before + bytes, kHugePageBytes - before);
  Pages pages;
  pages.data_ = start + before;
  pages.bytes_ = bytes;
  // Only whole huge pages: a huge page over the tail would cost memory that nobody asked for.
  const size_t huge = bytes / kHugePageBytes * kHugePageBytes;
  if (huge != 0 && size == PageSize::kHuge) madvise(pages.data_, huge, MADV_HUGEPAGE);
  return pages;
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

void Pages::ensure(size_t bytes) {
  if (bytes <= present_) return;
  const size_t target = std::min(round_up(bytes, kHugePageBytes), bytes_);
  // By use and not by MADV_POPULATE_WRITE, which holds a lock of the whole process meanwhile: a
  // thread that maps memory would wait for it.
  for (size_t at = present_; at < target; at += kPageBytes) {
    *reinterpret_cast<volatile std::byte*>(data_ + at) = std::byte{0};
  }
  present_ = target;
}

void Pages::release_past(size_t bytes) {
  const size_t keep = std::min(round_up(bytes, kHugePageBytes), bytes_);
  if (keep >= present_) return;
  madvise(data_ + keep, present_ - keep, MADV_DONTNEED);
  present_ = keep;
}

}  // namespace starling
