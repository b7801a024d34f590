// Tail is a growing array whose new elements are not cleared: parsers write straight into it.
//
// Uses: std. Threads: a value of one owner.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

namespace starling {

template <typename T>
class Tail {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Tail() = default;
  Tail(const Tail& other) { assign(other); }
  Tail(Tail&& other) noexcept { swap(other); }
  Tail& operator=(const Tail& other) {
    if (this != &other) assign(other);
    return *this;
  }
  Tail& operator=(Tail&& other) noexcept {
    Tail(std::move(other)).swap(*this);
    return *this;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  T& operator[](size_t i) { return data_.get()[i]; }
  const T& operator[](size_t i) const { return data_.get()[i]; }
  std::span<const T> span() const { return {data_.get(), size_}; }

  // Room for n more behind the last; what is written there counts after take(). Valid until the
  // next call that may grow.
  T* room(size_t n) {
    if (capacity_ - size_ < n) [[unlikely]]
      reallocate(std::max(size_ + n, capacity_ + capacity_ / 2));
    return data_.get() + size_;
  }
  void take(size_t n) { size_ += n; }
  void push(T value) {
    *room(1) = value;
    ++size_;
  }
  void append(std::span<const T> values) {
    if (values.empty()) return;
    std::memcpy(room(values.size()), values.data(), values.size_bytes());
    size_ += values.size();
  }
  // Forgets what lies behind the first n.
  void cut(size_t n) { size_ = n; }
  // Gives back what is not used.
  void trim() {
    if (capacity_ != size_) reallocate(size_);
  }

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };

  void swap(Tail& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }
  void assign(const Tail& other) {
    size_ = 0;
    append(other.span());
  }
  void reallocate(size_t n) {
    if (n == 0) {
      data_.reset();
    } else {
      T* old = data_.release();
      T* grown = static_cast<T*>(std::realloc(old, n * sizeof(T)));
      if (grown == nullptr) {
        data_.reset(old);
        throw std::bad_alloc();
      }
      data_.reset(grown);
    }
    capacity_ = n;
  }

  std::unique_ptr<T[], Free> data_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace starling
