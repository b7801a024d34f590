// Slab cuts the tensors of one batch from one piece of memory: a batch has hundreds, most of them
// small.
//
// Uses: base. Threads: one owner; the tensors are free.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/check.h"
#include "base/tensor.h"

namespace starling {

class Slab {
 public:
  // Uninitialised; its bytes live as long as any tensor of the slab.
  Tensor tensor(DType dtype, std::vector<int64_t> shape) {
    size_t bytes = dtype_bytes(dtype);
    for (const int64_t extent : shape) bytes *= static_cast<size_t>(extent);
    StatusOr<Tensor> tensor = Tensor::make(dtype, std::move(shape), take(bytes));
    STARLING_CHECK(tensor.ok(), "a slice that does not fit its tensor");
    return *std::move(tensor);
  }
  Tensor numbers(size_t n) { return tensor(DType::kUInt32, {static_cast<int64_t>(n)}); }

  // The next tensors are those of another batch.
  void next_batch() {
    usual_bytes_ = std::max(kBytesMin, used_bytes_ + used_bytes_ / 8);
    used_bytes_ = 0;
    rest_ = {};
  }

 private:
  static constexpr size_t kBytesMin = 16 << 10;

  Buffer take(size_t bytes) {
    const size_t whole = (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    if (whole > rest_.size()) rest_ = Buffer::allocate(std::max(whole, usual_bytes_));
    Buffer out = rest_.slice(0, bytes);
    rest_ = rest_.slice(whole, rest_.size() - whole);
    used_bytes_ += whole;
    return out;
  }

  Buffer rest_;
  size_t used_bytes_ = 0;
  size_t usual_bytes_ = kBytesMin;  // about what the batch before took
};

}  // namespace starling
