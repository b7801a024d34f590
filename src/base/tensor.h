// Tensor is a typed, shaped view of a Buffer: what messages carry.
//
// Uses: std. Threads: a value, as Buffer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/check.h"
#include "base/status.h"

namespace starling {

// The numbers are those of the proto enum and of every stored format; they never change.
enum class DType : uint8_t {
  kInvalid = 0,
  kFloat32 = 1,
  kFloat64 = 2,
  kFloat16 = 3,
  kBFloat16 = 4,
  kInt8 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kUInt8 = 8,
  kUInt32 = 9,
  kUInt64 = 10,
};
inline constexpr int kDTypes = 11;

// 0 for kInvalid and for numbers that are no type.
constexpr size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
    case DType::kUInt32:
      return 4;
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kUInt64:
      return 8;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kInt8:
    case DType::kUInt8:
      return 1;
    case DType::kInvalid:
      break;
  }
  return 0;
}

std::string_view dtype_name(DType dtype);

template <typename T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::kFloat32;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::kFloat64;
}
template <>
constexpr DType dtype_of<int8_t>() {
  return DType::kInt8;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::kInt32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::kInt64;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::kUInt8;
}
template <>
constexpr DType dtype_of<uint32_t>() {
  return DType::kUInt32;
}
template <>
constexpr DType dtype_of<uint64_t>() {
  return DType::kUInt64;
}

inline constexpr size_t kTensorRankMax = 8;

// The bytes that a tensor of this type and shape has. InvalidArgument for an unknown type, a
// negative extent, more than kTensorRankMax extents or a product that overflows.
StatusOr<size_t> tensor_bytes(DType dtype, std::span<const int64_t> shape);

class Tensor {
 public:
  Tensor() = default;
  // InvalidArgument when the shape does not fit the bytes.
  static StatusOr<Tensor> make(DType dtype, std::vector<int64_t> shape, Buffer buffer);
  // Uninitialised; the shape is ours, so it must be legal.
  static Tensor allocate(DType dtype, std::vector<int64_t> shape, BufferPool* pool = nullptr);
  template <typename T>
  static Tensor of(std::vector<int64_t> shape, std::span<const T> values) {
    Tensor tensor = allocate(dtype_of<T>(), std::move(shape));
    STARLING_CHECK(tensor.buffer_.size() == values.size_bytes(), "values do not fill the shape");
    std::copy(values.begin(), values.end(), tensor.mutable_values<T>().begin());
    return tensor;
  }
  template <typename T>
  static Tensor vector_of(std::initializer_list<T> values) {
    return of<T>({static_cast<int64_t>(values.size())},
                 std::span<const T>(values.begin(), values.size()));
  }

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const Buffer& buffer() const { return buffer_; }
  size_t bytes() const { return buffer_.size(); }
  int64_t elements() const;

  // The type must be T's; a tensor from a peer is checked with expect() first.
  template <typename T>
  std::span<const T> values() const {
    STARLING_CHECK(dtype_ == dtype_of<T>(), "tensor read as another type than its own");
    return {reinterpret_cast<const T*>(buffer_.data()), buffer_.size() / sizeof(T)};
  }
  template <typename T>
  std::span<T> mutable_values() {
    STARLING_CHECK(dtype_ == dtype_of<T>(), "tensor read as another type than its own");
    return {reinterpret_cast<T*>(buffer_.mutable_data()), buffer_.size() / sizeof(T)};
  }

  // InvalidArgument naming `what`, both types or both ranks, when the tensor is not of this type
  // and number of extents.
  Status expect(std::string_view what, DType dtype, size_t rank) const;
  std::string describe() const;  // "float32[512, 16]"

 private:
  DType dtype_ = DType::kInvalid;
  std::vector<int64_t> shape_;
  Buffer buffer_;
};

}  // namespace starling
