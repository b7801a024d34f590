#include "ps/reply.h"

#include "table/half.h"
#include "wire/rows.h"

namespace starling {
namespace {

Tensor converted(const Tensor& tensor, DType dtype) {
  Buffer halves = Buffer::allocate(tensor.bytes() / 2);
  encode_half(tensor.values<float>(), dtype, reinterpret_cast<uint16_t*>(halves.mutable_data()));
  return *Tensor::make(dtype, tensor.shape(), std::move(halves));
}

}  // namespace

Status check_reply_type(v1::DType dtype) {
  if (dtype == v1::DTYPE_INVALID || dtype == v1::DTYPE_FLOAT32 || dtype == v1::DTYPE_FLOAT16 ||
      dtype == v1::DTYPE_BFLOAT16) {
    return absl::OkStatus();
  }
  return invalid_argument("dtype must be FLOAT32, BFLOAT16 or FLOAT16");
}

StatusOr<uint64_t> shape_reply(const v1::RowRange& range, v1::DType dtype, Message& reply) {
  STARLING_RETURN_IF_ERROR(check_reply_type(dtype));
  STARLING_ASSIGN_OR_RETURN(const uint64_t total, cut_rows(range, reply));
  if (dtype == v1::DTYPE_FLOAT16 || dtype == v1::DTYPE_BFLOAT16) {
    for (Tensor& tensor : reply.tensors) {
      if (tensor.dtype() == DType::kFloat32) tensor = converted(tensor, static_cast<DType>(dtype));
    }
  }
  return total;
}

}  // namespace starling
