#include "wire/frame.h"

#include <algorithm>
#include <array>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "wire/bytes.h"
#include "wire/fields.h"

namespace starling {
namespace {

using wire_internal::all_zero;
using wire_internal::MessageFields;
using wire_internal::put;
using wire_internal::take;
using wire_internal::TensorField;

constexpr size_t kChecksumAt = 56;
constexpr uint32_t kCodeMax = 16;
// Tag, length and dtype: no tensor's entry in meta is shorter, so a count can be checked against
// meta's size.
constexpr uint32_t kTensorEntryBytesMin = 5;

alignas(kLargeAlignment) constexpr std::array<std::byte, kLargeAlignment> kZeros{};

uint64_t checksum(std::span<const std::byte> header) {
  return XXH3_64bits(header.data(), kChecksumAt);
}

bool has_message(FrameKind kind) {
  return kind == FrameKind::kRequest || kind == FrameKind::kReply;
}

Status check_parts(const FrameHeader& header) {
  if (!has_message(header.kind)) {
    if (header.meta_bytes != 0 || header.tensor_count != 0 || header.payload_bytes != 0 ||
        header.flags != 0) {
      return invalid_argument("frame of kind {} has a message", static_cast<int>(header.kind));
    }
  }
  if (header.status != 0 && header.kind != FrameKind::kReply && header.kind != FrameKind::kGoaway) {
    return invalid_argument("frame of kind {} has status {}", static_cast<int>(header.kind),
                            header.status);
  }
  if ((header.flags & kFlagLent) != 0 && header.kind != FrameKind::kReply) {
    return invalid_argument("only a reply may be lent");
  }
  if (header.tensor_count > header.meta_bytes / kTensorEntryBytesMin) {
    return invalid_argument("{} tensors cannot be described in {} bytes of meta",
                            header.tensor_count, header.meta_bytes);
  }
  if (header.tensor_count == 0 && header.payload_bytes != 0) {
    return invalid_argument("{} bytes of payload without a tensor", header.payload_bytes);
  }
  return absl::OkStatus();
}

Status check_limits(const FrameHeader& header, const FrameLimits& limits) {
  if (header.meta_bytes > limits.meta_bytes_max) {
    return resource_exhausted("meta of {} bytes, the limit is {}", header.meta_bytes,
                              limits.meta_bytes_max);
  }
  if (header.payload_bytes > limits.payload_bytes_max) {
    return resource_exhausted("payload of {} bytes, the limit is {}", header.payload_bytes,
                              limits.payload_bytes_max);
  }
  if (header.tensor_count > limits.tensors_max) {
    return resource_exhausted("{} tensors, the limit is {}", header.tensor_count,
                              limits.tensors_max);
  }
  return absl::OkStatus();
}

// Fills the header's sizes from the message; gives the part of meta that generated code writes.
StatusOr<size_t> measure(const Message& message, const FrameLimits& limits, FrameHeader* header) {
  const size_t generated_bytes = wire_internal::meta_bytes(message.meta);
  uint64_t bytes = generated_bytes;
  for (const Tensor& tensor : message.tensors) {
    bytes += wire_internal::tensor_head_bytes(tensor, false);
  }
  if (bytes > limits.meta_bytes_max) {
    return resource_exhausted("meta of {} bytes, the limit is {}", bytes, limits.meta_bytes_max);
  }
  if (message.tensors.size() > limits.tensors_max) {
    return resource_exhausted("{} tensors, the limit is {}", message.tensors.size(),
                              limits.tensors_max);
  }
  header->meta_bytes = static_cast<uint32_t>(bytes);
  header->tensor_count = static_cast<uint32_t>(message.tensors.size());
  header->payload_bytes = payload_bytes(message.tensors);
  header->status = 0;
  if (header->kind == FrameKind::kReply) {
    header->status = std::min(message.meta.status().code(), kCodeMax);
  }
  STARLING_RETURN_IF_ERROR(check_limits(*header, limits));
  return generated_bytes;
}

// Header and meta at the front of `out`; gives what is left. measure() came before, for the same
// message.
std::span<std::byte> write_head(const FrameHeader& header, const Message& message,
                                size_t generated_bytes, std::span<std::byte> out) {
  encode_header(header, out.first<kFrameHeaderBytes>());
  std::byte* at = out.data() + kFrameHeaderBytes;
  wire_internal::write_meta(message.meta, at);
  at += generated_bytes;
  for (const Tensor& tensor : message.tensors) {
    at = wire_internal::write_tensor_head(tensor, false, at);
  }
  return out.subspan(kFrameHeaderBytes + header.meta_bytes);
}

void write_payload(std::span<const Tensor> tensors, std::span<std::byte> out) {
  uint64_t end = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.bytes() == 0) continue;
    const uint64_t begin = payload_offset(end, tensor.bytes());
    std::memset(out.data() + end, 0, begin - end);
    std::memcpy(out.data() + begin, tensor.buffer().data(), tensor.bytes());
    end = begin + tensor.bytes();
  }
}

std::vector<Buffer> payload_pieces(std::span<const Tensor> tensors) {
  std::vector<Buffer> pieces;
  pieces.reserve(2 * tensors.size());
  uint64_t end = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.bytes() == 0) continue;
    const uint64_t begin = payload_offset(end, tensor.bytes());
    if (begin != end) pieces.push_back(Buffer::share(nullptr, kZeros.data(), begin - end));
    pieces.push_back(tensor.buffer());
    end = begin + tensor.bytes();
  }
  return pieces;
}

Status split_meta(const FrameHeader& header, std::span<const std::byte> meta,
                  MessageFields* fields) {
  if (meta.size() != header.meta_bytes) {
    return invalid_argument("meta has {} bytes, the header says {}", meta.size(),
                            header.meta_bytes);
  }
  STARLING_RETURN_IF_ERROR(wire_internal::split_fields({&meta, 1}, header.tensor_count, fields));
  if (fields->tensors.size() != header.tensor_count) {
    return invalid_argument("meta describes {} tensors, the header says {}", fields->tensors.size(),
                            header.tensor_count);
  }
  uint64_t end = 0;
  for (size_t i = 0; i < fields->tensors.size(); ++i) {
    const TensorField& field = fields->tensors[i];
    if (field.data_bytes != 0) {
      return invalid_argument("tensor {} has {} bytes inside of meta", i, field.data_bytes);
    }
    const uint64_t begin = payload_offset(end, field.bytes);
    if (begin < end || begin > header.payload_bytes || field.bytes > header.payload_bytes - begin) {
      return invalid_argument("tensor {} of {} bytes starts at {} of a payload of {}", i,
                              field.bytes, begin, header.payload_bytes);
    }
    end = begin + field.bytes;
  }
  if (end != header.payload_bytes) {
    return invalid_argument("tensors end at {}, the payload has {} bytes", end,
                            header.payload_bytes);
  }
  return absl::OkStatus();
}

}  // namespace

void encode_header(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> out) {
  put(out, 0, kFrameMagic);
  put(out, 4, kFrameVersion);
  put(out, 5, header.kind);
  put(out, 6, header.method);
  put(out, 8, header.request_id);
  put(out, 16, header.lane);
  put(out, 20, header.status);
  put(out, 24, header.deadline_us);
  put(out, 32, header.meta_bytes);
  put(out, 36, header.tensor_count);
  put(out, 40, header.payload_bytes);
  put(out, 48, header.flags);
  put(out, 52, uint32_t{0});
  put(out, kChecksumAt, checksum(out));
}

StatusOr<FrameHeader> decode_header(std::span<const std::byte, kFrameHeaderBytes> bytes,
                                    const FrameLimits& limits) {
  if (const auto magic = take<uint32_t>(bytes, 0); magic != kFrameMagic) {
    return data_loss("frame starts with {:#010x}, not with {:#010x}", magic, kFrameMagic);
  }
  if (const auto version = take<uint8_t>(bytes, 4); version != kFrameVersion) {
    return failed_precondition("frame has version {}, we speak {}", version, kFrameVersion);
  }
  if (take<uint64_t>(bytes, kChecksumAt) != checksum(bytes)) {
    return data_loss("frame header has a wrong checksum");
  }
  if (take<uint32_t>(bytes, 52) != 0)
    return data_loss("frame header's reserved bytes are not zero");
  const auto kind = take<uint8_t>(bytes, 5);
  if (kind < static_cast<uint8_t>(FrameKind::kRequest) ||
      kind > static_cast<uint8_t>(FrameKind::kGoaway)) {
    return invalid_argument("frame has unknown kind {}", kind);
  }
  FrameHeader header;
  header.kind = static_cast<FrameKind>(kind);
  header.method = take<uint16_t>(bytes, 6);
  header.request_id = take<uint64_t>(bytes, 8);
  header.lane = take<uint32_t>(bytes, 16);
  header.status = take<uint32_t>(bytes, 20);
  header.deadline_us = take<uint64_t>(bytes, 24);
  header.meta_bytes = take<uint32_t>(bytes, 32);
  header.tensor_count = take<uint32_t>(bytes, 36);
  header.payload_bytes = take<uint64_t>(bytes, 40);
  header.flags = take<uint32_t>(bytes, 48);
  if (header.status > kCodeMax)
    return invalid_argument("frame has unknown status {}", header.status);
  if ((header.flags & ~kFlagsKnown) != 0) {
    return invalid_argument("frame has unknown flags {:#x}", header.flags);
  }
  STARLING_RETURN_IF_ERROR(check_limits(header, limits));
  STARLING_RETURN_IF_ERROR(check_parts(header));
  return header;
}

uint64_t payload_bytes(std::span<const Tensor> tensors) {
  uint64_t end = 0;
  for (const Tensor& tensor : tensors) {
    end = payload_offset(end, tensor.bytes()) + tensor.bytes();
  }
  return end;
}

StatusOr<EncodedFrame> encode_frame(FrameHeader header, const Message& message,
                                    const FrameLimits& limits) {
  STARLING_ASSIGN_OR_RETURN(const size_t generated_bytes, measure(message, limits, &header));
  const bool is_inline = header.payload_bytes <= kInlinePayloadBytes;
  EncodedFrame frame;
  frame.head = Buffer::allocate(kFrameHeaderBytes + header.meta_bytes +
                                (is_inline ? header.payload_bytes : 0));
  const std::span<std::byte> rest =
      write_head(header, message, generated_bytes, frame.head.mutable_bytes());
  if (is_inline) {
    write_payload(message.tensors, rest);
  } else {
    frame.pieces = payload_pieces(message.tensors);
  }
  return frame;
}

Buffer encode_control(const FrameHeader& header) {
  STARLING_CHECK(!has_message(header.kind) && check_parts(header).ok(), "a control frame is bare");
  Buffer buffer = Buffer::allocate(kFrameHeaderBytes);
  encode_header(header, buffer.mutable_bytes().first<kFrameHeaderBytes>());
  return buffer;
}

StatusOr<Message> decode_message(const FrameHeader& header, std::span<const std::byte> meta,
                                 Buffer payload) {
  if (payload.size() != header.payload_bytes) {
    return invalid_argument("payload has {} bytes, the header says {}", payload.size(),
                            header.payload_bytes);
  }
  MessageFields fields;
  STARLING_RETURN_IF_ERROR(split_meta(header, meta, &fields));
  Message message;
  STARLING_RETURN_IF_ERROR(
      wire_internal::parse_rest({&meta, 1}, fields, header.meta_bytes, &message.meta));
  if (reinterpret_cast<uintptr_t>(payload.data()) % kSmallAlignment != 0) {
    payload = Buffer::copy_of(payload.bytes());
  }
  message.tensors.reserve(fields.tensors.size());
  uint64_t offset = 0;
  for (TensorField& field : fields.tensors) {
    offset = payload_offset(offset, field.bytes);
    STARLING_ASSIGN_OR_RETURN(Tensor tensor, Tensor::make(field.dtype, std::move(field.shape),
                                                          payload.slice(offset, field.bytes)));
    message.tensors.push_back(std::move(tensor));
    offset += field.bytes;
  }
  return message;
}

StatusOr<Buffer> encode_lent_frame(FrameHeader header, const Message& message, LendBlock lend,
                                   const FrameLimits& limits) {
  STARLING_CHECK(header.kind == FrameKind::kReply, "only a reply may be lent");
  STARLING_ASSIGN_OR_RETURN(const size_t generated_bytes, measure(message, limits, &header));
  header.flags |= kFlagLent;
  lend.pieces.clear();
  for (const Tensor& tensor : message.tensors) {
    if (tensor.bytes() == 0) continue;
    lend.pieces.push_back({reinterpret_cast<uintptr_t>(tensor.buffer().data()), tensor.bytes()});
  }
  if (lend.pieces.empty() || lend.pieces.size() > kLendPiecesMax) {
    return invalid_argument("a lent reply has {} pieces, 1 to {} are allowed", lend.pieces.size(),
                            kLendPiecesMax);
  }
  const size_t block_bytes = lend_bytes(static_cast<uint32_t>(lend.pieces.size()));
  Buffer frame = Buffer::allocate(kFrameHeaderBytes + header.meta_bytes + block_bytes);
  encode_lend(lend, write_head(header, message, generated_bytes, frame.mutable_bytes()));
  return frame;
}

void encode_lend(const LendBlock& lend, std::span<std::byte> out) {
  const auto count = static_cast<uint32_t>(lend.pieces.size());
  STARLING_CHECK(out.size() == lend_bytes(count), "room for exactly the lend block");
  put(out, 0, lend.lend_id);
  put(out, 8, lend.generation);
  put(out, 16, lend.generation_address);
  put(out, 24, count);
  put(out, 28, uint32_t{0});
  size_t at = kLendHeadBytes;
  for (const LendPiece& piece : lend.pieces) {
    put(out, at, piece.address);
    put(out, at + 8, piece.bytes);
    at += kLendPieceBytes;
  }
}

StatusOr<uint32_t> decode_lend_count(const FrameHeader& header,
                                     std::span<const std::byte, kLendHeadBytes> bytes) {
  const auto count = take<uint32_t>(bytes, 24);
  if (count == 0 || count > kLendPiecesMax || count > header.tensor_count) {
    return invalid_argument("lend block has {} pieces for {} tensors, 1 to {} are allowed", count,
                            header.tensor_count, kLendPiecesMax);
  }
  if (!all_zero(bytes.subspan<28, 4>())) {
    return invalid_argument("lend block's reserved bytes are not zero");
  }
  return count;
}

StatusOr<LendBlock> decode_lend(const FrameHeader& header, std::span<const std::byte> bytes) {
  if (bytes.size() < kLendHeadBytes) {
    return invalid_argument("lend block has {} bytes, at least {} are needed", bytes.size(),
                            kLendHeadBytes);
  }
  STARLING_ASSIGN_OR_RETURN(const uint32_t count,
                            decode_lend_count(header, bytes.first<kLendHeadBytes>()));
  if (bytes.size() != lend_bytes(count)) {
    return invalid_argument("lend block of {} pieces has {} bytes, {} are needed", count,
                            bytes.size(), lend_bytes(count));
  }
  LendBlock lend;
  lend.lend_id = take<uint64_t>(bytes, 0);
  lend.generation = take<uint64_t>(bytes, 8);
  lend.generation_address = take<uint64_t>(bytes, 16);
  lend.pieces.reserve(count);
  uint64_t left = header.payload_bytes;
  for (uint32_t i = 0; i < count; ++i) {
    const size_t at = kLendHeadBytes + i * kLendPieceBytes;
    const LendPiece piece = {take<uint64_t>(bytes, at), take<uint64_t>(bytes, at + 8)};
    if (piece.bytes == 0 || piece.bytes > left) {
      return invalid_argument("lent piece {} has {} bytes, {} of the payload are left", i,
                              piece.bytes, left);
    }
    if (piece.address == 0 || piece.address + piece.bytes < piece.address) {
      return invalid_argument("lent piece {} of {} bytes has a bad address", i, piece.bytes);
    }
    left -= piece.bytes;
    lend.pieces.push_back(piece);
  }
  return lend;
}

StatusOr<std::vector<uint64_t>> lend_offsets(const FrameHeader& header,
                                             std::span<const std::byte> meta,
                                             const LendBlock& lend) {
  MessageFields fields;
  STARLING_RETURN_IF_ERROR(split_meta(header, meta, &fields));
  std::vector<uint64_t> offsets;
  offsets.reserve(lend.pieces.size());
  uint64_t end = 0;
  for (const TensorField& field : fields.tensors) {
    if (field.bytes == 0) continue;
    const size_t i = offsets.size();
    if (i == lend.pieces.size() || lend.pieces[i].bytes != field.bytes) {
      return invalid_argument("lent piece {} has {} bytes, its tensor {}", i,
                              i == lend.pieces.size() ? 0 : lend.pieces[i].bytes, field.bytes);
    }
    offsets.push_back(payload_offset(end, field.bytes));
    end = offsets.back() + field.bytes;
  }
  if (offsets.size() != lend.pieces.size()) {
    return invalid_argument("{} lent pieces for {} tensors with bytes", lend.pieces.size(),
                            offsets.size());
  }
  return offsets;
}

}  // namespace starling
