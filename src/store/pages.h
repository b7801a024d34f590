// Memory that starts at a page, for what the kernel copies file data into.
//
// A copy from the page cache to an address a few bytes into a page runs at half the speed: the
// processor takes loads and stores with equal low 12 bits for the same address. Uses: std. Threads:
// any.
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
