#include "wire/message.h"

#include <string>

namespace starling {
namespace {

constexpr uint32_t kCodeMax = 16;  // UNAUTHENTICATED, the last that gRPC has

}  // namespace

void to_proto(const Status& status, v1::Status* out) {
  out->Clear();
  if (status.ok()) return;
  out->set_code(static_cast<uint32_t>(status.raw_code()));
  out->set_message(std::string(message_of(status)));
}

Status from_proto(const v1::Status& status) {
  if (status.code() == 0) return absl::OkStatus();
  const StatusCode code =
      status.code() <= kCodeMax ? static_cast<StatusCode>(status.code()) : StatusCode::kUnknown;
  return Status(code, status.message());
}

Message status_reply(const Status& status) {
  Message reply;
  to_proto(status, reply.meta.mutable_status());
  return reply;
}

void to_proto(const Tensor& tensor, v1::Tensor* out) {
  out->Clear();
  out->set_dtype(static_cast<v1::DType>(tensor.dtype()));
  out->mutable_shape()->Add(tensor.shape().begin(), tensor.shape().end());
  out->set_data(tensor.buffer().data(), tensor.bytes());
}

StatusOr<Tensor> from_proto(const v1::Tensor& tensor) {
  if (tensor.dtype() <= 0 || tensor.dtype() >= kDTypes) {
    return invalid_argument("dtype {} is unknown", static_cast<int>(tensor.dtype()));
  }
  return Tensor::make(static_cast<DType>(tensor.dtype()),
                      std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end()),
                      Buffer::copy_of(tensor.data()));
}

}  // namespace starling
