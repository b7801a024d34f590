// Message is what every RPC sends and answers: the TensorMessage of the .proto files with its
// tensors beside it, so that their bytes are never copied into protobuf's memory.
//
// Uses: base, the generated messages. Threads: a value.
#pragma once

#include <vector>

#include "base/status.h"
#include "base/tensor.h"
#include "starling/v1/tensor.pb.h"

namespace starling {

struct Message {
  // meta.tensors() is empty while the tensors live in `tensors`; the encoders check it.
  v1::TensorMessage meta;
  std::vector<Tensor> tensors;
};

// Fills `out` with the code and the message; what else `out` said is cleared.
void to_proto(const Status& status, v1::Status* out);
// OK for code 0; a code that gRPC does not have becomes Unknown.
Status from_proto(const v1::Status& status);

// The status of a reply: OK when it carries none.
inline Status status_of(const Message& reply) {
  return reply.meta.has_status() ? from_proto(reply.meta.status()) : absl::OkStatus();
}
// A reply that says nothing but this status.
Message status_reply(const Status& status);

// The protobuf form of a tensor; copies the bytes. For tools and tests: the codecs never go through
// it.
void to_proto(const Tensor& tensor, v1::Tensor* out);
// InvalidArgument when the type is unknown or the shape does not fit the bytes.
StatusOr<Tensor> from_proto(const v1::Tensor& tensor);

}  // namespace starling
