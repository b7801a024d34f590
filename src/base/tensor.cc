#include "base/tensor.h"

#include <algorithm>
#include <array>

namespace starling {

std::string_view dtype_name(DType dtype) {
  static constexpr std::array<std::string_view, kDTypes> kNames = {
      "invalid", "float32", "float64", "float16", "bfloat16", "int8",
      "int32",   "int64",   "uint8",   "uint32",  "uint64"};
  const auto index = static_cast<size_t>(dtype);
  return index < kNames.size() ? kNames[index] : "unknown";
}

StatusOr<size_t> tensor_bytes(DType dtype, std::span<const int64_t> shape) {
  size_t bytes = dtype_bytes(dtype);
  if (bytes == 0) return invalid_argument("dtype {} is unknown", static_cast<int>(dtype));
  if (shape.size() > kTensorRankMax) {
    return invalid_argument("tensor has {} extents, at most {} are allowed", shape.size(),
                            kTensorRankMax);
  }
  // A zero extent must not hide an overflow in the others: a consumer may multiply in another
  // order.
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) return invalid_argument("tensor has a negative extent {}", extent);
    if (extent == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, static_cast<size_t>(extent), &bytes) ||
               bytes > size_t{1} << 62) {
      return invalid_argument("tensor shape overflows");
    }
  }
  return empty ? 0 : bytes;
}

StatusOr<Tensor> Tensor::make(DType dtype, std::vector<int64_t> shape, Buffer buffer) {
  STARLING_ASSIGN_OR_RETURN(const size_t bytes, tensor_bytes(dtype, shape));
  if (bytes != buffer.size()) {
    return invalid_argument("tensor {}[{}] needs {} bytes, has {}", dtype_name(dtype),
                            fmt::join(shape, ", "), bytes, buffer.size());
  }
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  tensor.buffer_ = std::move(buffer);
  return tensor;
}

Tensor Tensor::allocate(DType dtype, std::vector<int64_t> shape, BufferPool* pool) {
  const StatusOr<size_t> bytes = tensor_bytes(dtype, shape);
  STARLING_CHECK(bytes.ok(), "allocating a tensor with an illegal shape");
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  tensor.buffer_ = pool == nullptr ? Buffer::allocate(*bytes) : pool->allocate(*bytes);
  return tensor;
}

int64_t Tensor::elements() const {
  const size_t each = dtype_bytes(dtype_);
  return each == 0 ? 0 : static_cast<int64_t>(buffer_.size() / each);
}

Status Tensor::expect(std::string_view what, DType dtype, size_t rank) const {
  if (dtype_ != dtype) {
    return invalid_argument("{}: dtype is {}, expected {}", what, dtype_name(dtype_),
                            dtype_name(dtype));
  }
  if (shape_.size() != rank) {
    return invalid_argument("{}: shape has {} extents, expected {}", what, shape_.size(), rank);
  }
  return absl::OkStatus();
}

std::string Tensor::describe() const {
  return fmt::format("{}[{}]", dtype_name(dtype_), fmt::join(shape_, ", "));
}

}  // namespace starling
