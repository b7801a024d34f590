// Memory that starts at a page, for what the kernel copies file data into.
//
// malloc lets large memory start 16 bytes into a page, and a copy from the page cache to there runs
// at less than half the speed: the processor takes each load for one that needs the store 16 bytes
// before, because their addresses agree in the low 12 bits. docs/design/store_speed.md has the
// numbers. Uses: std. Threads: any.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace starling {

inline constexpr std::align_val_t kPageAlignment{4096};

struct PagesCloser {
  void operator()(std::byte* bytes) const { ::operator delete[](bytes, kPageAlignment); }
};
using Pages = std::unique_ptr<std::byte[], PagesCloser>;

// Uninitialised.
inline Pages allocate_pages(size_t bytes) {
  return Pages(static_cast<std::byte*>(::operator new[](bytes, kPageAlignment)));
}

}  // namespace starling
