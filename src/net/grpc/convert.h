// Between gRPC's types and ours: bodies, statuses and deadlines.
//
// Uses: wire, gRPC. Threads: free functions over values.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <string_view>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/status.h"
#include "net/options.h"
#include "wire/message.h"

namespace starling {

// The encoded message. Tensors of kProtoCopyBytes and more are not copied: their slices keep the
// tensors' buffers alive until gRPC has sent them.
grpc::ByteBuffer to_body(const Message& message);

// The message in a received body; its tensors' bytes are copied once, into a buffer of `pool`.
// Codes as decode_proto().
StatusOr<Message> from_body(const grpc::ByteBuffer& body, const NetOptions& options,
                            BufferPool& pool);

// Cuts an overlong text: it travels in the trailers, whose size gRPC limits.
grpc::Status to_grpc(const Status& status);
Status from_grpc(const grpc::Status& status);

// On gRPC's clock, from what is left of a deadline at `now`.
gpr_timespec to_grpc(Deadline deadline, TimePoint now);
Deadline from_grpc(gpr_timespec deadline, TimePoint now);

// A size as gRPC's settings take it, which know no more than an int.
int clamp_int(uint64_t value);
int whole_ms(Duration duration);

}  // namespace starling
