// The body of a gRPC call: byte for byte what generated code writes and reads, without its copies
// of tensor bytes.
//
// Uses: base, message.h. Threads: free functions over values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "wire/message.h"

namespace starling {

// Tensors of fewer bytes are copied next to the fields around them: a slice of its own costs more
// than the copy.
inline constexpr size_t kProtoCopyBytes = 4096;

struct ProtoLimits {
  uint64_t meta_bytes_max = 16 << 20;  // all that is not a tensor
  uint64_t payload_bytes_max = uint64_t{1} << 30;
  uint32_t tensors_max = 1 << 20;
};

// The serialization of meta with the tensors filled in, in pieces to be sent one behind the other.
// Large tensors' bytes are shared with their tensors. Serves TensorMessage and VoidMessage alike:
// the latter is a subset of the former.
std::vector<Buffer> encode_proto(const Message& message);

// Parses a message that lies in `slices`. The tensors' bytes are copied once, into one buffer that
// they share (from `pool` when given), laid out as a frame's payload. Fields it does not know are
// kept in meta; those inside of a tensor are dropped.
//
// InvalidArgument: broken encoding, an unknown dtype, a shape that does not fit its bytes.
// ResourceExhausted: a limit, which the message names.
StatusOr<Message> decode_proto(std::span<const std::span<const std::byte>> slices, BufferPool* pool,
                               const ProtoLimits& limits = {});

}  // namespace starling
