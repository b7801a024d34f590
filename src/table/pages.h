// Memory asked from the system in whole pages, huge where the kernel gives them, present before it
// is used.
//
// Uses: base. Threads: any; a Pages has one owner.
#pragma once

#include <cstddef>
#include <utility>

namespace starling {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// kSmall: for memory that is filled in its order, by a thread that must not wait. Its pages come
// one by one as they are used, while a huge one may make the kernel move others out of its way
// first.
enum class PageSize { kHuge, kSmall };

// A run of zeroed memory whose start is aligned to a huge page. Nothing of it costs memory until it
// is made present.
class Pages {
 public:
  Pages() = default;
  // Empty (data() null) when the system has no room for `bytes`.
  static Pages map(size_t bytes, PageSize size = PageSize::kHuge);
  Pages(Pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        present_(std::exchange(other.present_, 0)) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(present_, other.present_);
    return *this;
  }
  ~Pages();

  std::byte* data() const { return data_; }
  size_t present_bytes() const { return present_; }

  // Makes the first `bytes` present, in steps of a huge page.
  void ensure(size_t bytes);
  // Gives back whole huge pages past the first `bytes`; they read as zero when made present again.
  void release_past(size_t bytes);

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  size_t present_ = 0;
};

}  // namespace starling
