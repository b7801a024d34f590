#include "wire/rows.h"

#include <algorithm>

namespace starling {
namespace {

uint64_t rows_of(const Tensor& tensor) {
  return tensor.shape().empty() ? 1 : static_cast<uint64_t>(tensor.shape()[0]);
}

// The rows [begin, begin + rows) of a tensor share its memory.
StatusOr<Tensor> slice_rows(const Tensor& tensor, uint64_t begin, uint64_t rows) {
  std::vector<int64_t> shape = tensor.shape();
  if (shape.empty()) shape = {1};
  const uint64_t total = rows_of(tensor);
  const uint64_t row_bytes = total == 0 ? 0 : tensor.bytes() / total;
  shape[0] = static_cast<int64_t>(rows);
  return Tensor::make(tensor.dtype(), std::move(shape),
                      tensor.buffer().slice(begin * row_bytes, rows * row_bytes));
}

uint64_t end_of(const v1::RowRange& range) {
  const bool is_open = range.rows_max() == 0 || range.begin() > UINT64_MAX - range.rows_max();
  return is_open ? UINT64_MAX : range.begin() + range.rows_max();
}

}  // namespace

StatusOr<uint64_t> cut_rows(const v1::RowRange& range, Message& reply) {
  const uint64_t end = end_of(range);
  uint64_t at = 0;  // rows of the tensors before
  for (Tensor& tensor : reply.tensors) {
    const uint64_t rows = rows_of(tensor);
    const uint64_t first = std::clamp(range.begin(), at, at + rows) - at;
    const uint64_t last = std::clamp(end, at, at + rows) - at;
    at += rows;
    if (first == 0 && last == rows) continue;
    STARLING_ASSIGN_OR_RETURN(tensor, slice_rows(tensor, first, last - first));
  }
  return at;
}

uint64_t cut_ids(const v1::RowRange& range, uint64_t rows,
                 google::protobuf::RepeatedPtrField<std::string>& ids) {
  const uint64_t total = rows + static_cast<uint64_t>(ids.size());
  const auto first = static_cast<int>(std::clamp(range.begin(), rows, total) - rows);
  const auto last = static_cast<int>(std::clamp(end_of(range), rows, total) - rows);
  ids.DeleteSubrange(last, ids.size() - last);
  ids.DeleteSubrange(0, std::min(first, last));
  return total;
}

}  // namespace starling
