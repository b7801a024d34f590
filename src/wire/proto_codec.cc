#include "wire/proto_codec.h"

#include <cstring>
#include <string>

#include "wire/fields.h"
#include "wire/frame.h"

namespace starling {
namespace {

using wire_internal::copy_out;
using wire_internal::MessageFields;
using wire_internal::TensorField;

bool is_referenced(const Tensor& tensor) { return tensor.bytes() >= kProtoCopyBytes; }

StatusOr<uint64_t> checked_payload_bytes(const MessageFields& fields, const ProtoLimits& limits) {
  uint64_t total = 0;
  for (size_t i = 0; i < fields.tensors.size(); ++i) {
    const TensorField& field = fields.tensors[i];
    if (field.bytes != field.data_bytes) {
      return invalid_argument("tensor {}: {}[{}] needs {} bytes, has {}", i,
                              dtype_name(field.dtype), fmt::join(field.shape, ", "), field.bytes,
                              field.data_bytes);
    }
    // No overflow: the bytes are there, so the sum is no more than the message and its padding.
    total = payload_offset(total, field.bytes) + field.bytes;
  }
  if (total > limits.payload_bytes_max) {
    return resource_exhausted("message has {} bytes of tensors, the limit is {}", total,
                              limits.payload_bytes_max);
  }
  return total;
}

}  // namespace

std::vector<Buffer> encode_proto(const Message& message) {
  const size_t meta_bytes = wire_internal::meta_bytes(message.meta);
  const std::string unknown = wire_internal::unknown_fields(message.meta);
  size_t own_bytes = meta_bytes;
  size_t referenced = 0;
  for (const Tensor& tensor : message.tensors) {
    own_bytes += wire_internal::tensor_head_bytes(tensor, true);
    own_bytes += is_referenced(tensor) ? 0 : tensor.bytes();
    referenced += is_referenced(tensor) ? 1 : 0;
  }
  std::vector<Buffer> pieces;
  if (own_bytes == 0) return pieces;
  pieces.reserve(2 * referenced + 1);

  // All that is ours goes into one block; the pieces are slices of it and of the tensors.
  Buffer own = Buffer::allocate(own_bytes);
  std::byte* const base = own.mutable_data();
  std::byte* at = base;
  size_t begin = 0;
  const auto cut = [&] {
    const auto end = static_cast<size_t>(at - base);
    if (end > begin) pieces.push_back(own.slice(begin, end - begin));
    begin = end;
  };
  // Generated code writes the fields it does not know behind all others: they are moved there
  // below.
  wire_internal::write_meta(message.meta, at);
  at += meta_bytes - unknown.size();
  for (const Tensor& tensor : message.tensors) {
    at = wire_internal::write_tensor_head(tensor, true, at);
    if (is_referenced(tensor)) {
      cut();
      pieces.push_back(tensor.buffer());
    } else if (tensor.bytes() != 0) {
      std::memcpy(at, tensor.buffer().data(), tensor.bytes());
      at += tensor.bytes();
    }
  }
  if (!unknown.empty()) std::memcpy(at, unknown.data(), unknown.size());
  at += unknown.size();
  cut();
  return pieces;
}

StatusOr<Message> decode_proto(std::span<const std::span<const std::byte>> slices, BufferPool* pool,
                               const ProtoLimits& limits) {
  MessageFields fields;
  STARLING_RETURN_IF_ERROR(wire_internal::split_fields(slices, limits.tensors_max, &fields));
  STARLING_ASSIGN_OR_RETURN(const uint64_t total, checked_payload_bytes(fields, limits));
  Message message;
  STARLING_RETURN_IF_ERROR(
      wire_internal::parse_rest(slices, fields, limits.meta_bytes_max, &message.meta));

  Buffer payload = pool == nullptr ? Buffer::allocate(total) : pool->allocate(total);
  message.tensors.reserve(fields.tensors.size());
  uint64_t offset = 0;
  for (TensorField& field : fields.tensors) {
    offset = payload_offset(offset, field.bytes);
    if (field.bytes != 0)
      copy_out(slices, field.data, field.bytes, payload.mutable_data() + offset);
    STARLING_ASSIGN_OR_RETURN(Tensor tensor, Tensor::make(field.dtype, std::move(field.shape),
                                                          payload.slice(offset, field.bytes)));
    message.tensors.push_back(std::move(tensor));
    offset += field.bytes;
  }
  return message;
}

}  // namespace starling
