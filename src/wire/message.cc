#include "wire/message.h"

#include <string>
#include <string_view>

namespace starling {
namespace {

constexpr uint32_t kCodeMax = 16;  // UNAUTHENTICATED, the last that gRPC has

// The length of the well-formed UTF-8 character at the front of `text`, 0 when there is none.
size_t utf8_length(std::string_view text) {
  const auto at = [&](size_t i) -> uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const auto continues = [&](size_t i) { return (at(i) & 0xc0) == 0x80; };
  const uint32_t first = at(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first < 0xf0) {
    const bool overlong = first == 0xe0 && at(1) < 0xa0;
    const bool surrogate = first == 0xed && at(1) >= 0xa0;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first < 0xf5) {
    const bool overlong = first == 0xf0 && at(1) < 0x90;
    const bool beyond = first == 0xf4 && at(1) >= 0x90;
    return continues(1) && continues(2) && continues(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

// proto3 parsers refuse a string that is not UTF-8, and an error message may quote a stranger's
// bytes.
std::string well_formed(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) {
      result += '?';
      text.remove_prefix(1);
    } else {
      result += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return result;
}

}  // namespace

void to_proto(const Status& status, v1::Status* out) {
  out->Clear();
  if (status.ok()) return;
  out->set_code(static_cast<uint32_t>(status.raw_code()));
  out->set_message(well_formed(message_of(status)));
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
