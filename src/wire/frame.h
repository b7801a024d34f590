// The frame of grpc++: a fixed header, the TensorMessage without tensor bytes, then the tensors'
// bytes. docs/format/wire.md gives every byte.
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

inline constexpr size_t kFrameHeaderBytes = 64;
inline constexpr uint32_t kFrameMagic = 0x31525453;  // "STR1"
inline constexpr uint8_t kFrameVersion = 1;
// Payloads up to here are copied into the head, so that a small frame is one write.
inline constexpr size_t kInlinePayloadBytes = 4096;
// A tensor of at least this many bytes starts at a multiple of kLargeAlignment, a smaller one of
// kSmallAlignment.
inline constexpr size_t kLargeTensorBytes = 4096;
inline constexpr size_t kLargeAlignment = 64;
inline constexpr size_t kSmallAlignment = 8;

enum class FrameKind : uint8_t {
  kRequest = 1,
  kReply = 2,
  kCancel = 3,  // the caller gave request_id up
  kPing = 4,    // answered by a pong with the same request_id
  kPong = 5,
  kRelease =
      6,  // the lent reply of request_id has been copied (or dropped); its memory may be used again
  kResend = 7,  // the lent reply of request_id could not be pulled; send it on the stream
  kGoaway = 8,  // no new requests on this connection; those in flight are still answered
};

// The payload stays in the sender's memory; a lend block takes its place on the stream.
inline constexpr uint32_t kFlagLent = 1;
inline constexpr uint32_t kFlagsKnown = kFlagLent;

struct FrameHeader {
  FrameKind kind = FrameKind::kRequest;
  uint16_t method = 0;  // Method; any number gets through, so that an unknown one can be answered
  uint64_t request_id =
      0;  // chosen by the caller, unique among its open requests on the connection
  uint32_t lane = 0;
  uint32_t status = 0;       // of a reply: the gRPC code, 0 .. 16
  uint64_t deadline_us = 0;  // time left when sent; 0 is none
  uint32_t meta_bytes = 0;
  uint32_t tensor_count = 0;
  uint64_t payload_bytes = 0;  // the tensors with the padding between them
  uint32_t flags = 0;
  bool operator==(const FrameHeader&) const = default;
};

struct FrameLimits {
  uint32_t meta_bytes_max = 16 << 20;
  uint64_t payload_bytes_max = uint64_t{1} << 30;
  uint32_t tensors_max = 1 << 20;
};

void encode_header(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> out);

// DataLoss: the magic, the checksum or a reserved byte is wrong: the stream cannot be trusted any
// more, close it. FailedPrecondition: another version; the message names both. InvalidArgument: an
// unknown kind, flag or code, or a kind with a part it cannot have. ResourceExhausted: beyond a
// limit, which the message names. Close after any of them.
StatusOr<FrameHeader> decode_header(std::span<const std::byte, kFrameHeaderBytes> bytes,
                                    const FrameLimits& limits);

// Where a tensor of `bytes` starts when the payload is `offset` long so far: the one place that
// knows the padding. Empty tensors take no room and no padding.
constexpr uint64_t payload_offset(uint64_t offset, uint64_t bytes) {
  if (bytes == 0) return offset;
  const uint64_t unit = bytes < kLargeTensorBytes ? kSmallAlignment : kLargeAlignment;
  return (offset + unit - 1) / unit * unit;
}
// The payload of these tensors; nothing follows the last one.
uint64_t payload_bytes(std::span<const Tensor> tensors);

// What is to be written, in order: the head, then the pieces.
struct EncodedFrame {
  Buffer head;                 // header and meta, and the payload when that is small
  std::vector<Buffer> pieces;  // tensors' bytes, shared and not copied, with padding between
};

// Encodes header, meta and payload; sizes, count and (for replies) the status of `header` are taken
// from the message. InvalidArgument: meta or count beyond what the header can hold; `limits` are
// the receiver's.
StatusOr<EncodedFrame> encode_frame(FrameHeader header, const Message& message,
                                    const FrameLimits& limits = {});
// A frame without meta and payload: cancel, ping, pong, release, resend, goaway.
Buffer encode_control(const FrameHeader& header);

// Takes a message apart again. `payload` has header.payload_bytes; the tensors are slices of it, so
// it lives as long as any of them. It should be 64-byte aligned. InvalidArgument says which tensor
// is wrong and how.
StatusOr<Message> decode_message(const FrameHeader& header, std::span<const std::byte> meta,
                                 Buffer payload);

// Where a lent reply lies in the memory of the process that answers.
struct LendPiece {
  uint64_t address = 0;
  uint64_t bytes = 0;
  bool operator==(const LendPiece&) const = default;
};

// Stands in place of the payload when kFlagLent is set. The puller reads all pieces, one behind the
// other, then the word at generation_address; when that is no longer `generation` it drops what it
// read and asks for a resend.
struct LendBlock {
  uint64_t lend_id = 0;
  uint64_t generation = 0;
  uint64_t generation_address = 0;
  std::vector<LendPiece> pieces;
  bool operator==(const LendBlock&) const = default;
};

inline constexpr size_t kLendHeadBytes = 32;
inline constexpr size_t kLendPieceBytes = 16;
inline constexpr uint32_t kLendPiecesMax = 1 << 16;

// Header and meta of a reply whose payload stays here, then the lend block with one piece per
// tensor that has bytes. The caller sets lend_id and the generation fields of `lend`; its pieces
// are filled from the message.
StatusOr<Buffer> encode_lent_frame(FrameHeader header, const Message& message, LendBlock lend,
                                   const FrameLimits& limits = {});

void encode_lend(const LendBlock& lend, std::span<std::byte> out);
constexpr size_t lend_bytes(uint32_t pieces) { return kLendHeadBytes + pieces * kLendPieceBytes; }

// The number of pieces, read from the block's first 32 bytes, so that the reader knows how many
// bytes are still to come. InvalidArgument: above kLendPiecesMax, above the header's tensor_count,
// or reserved bytes are not zero.
StatusOr<uint32_t> decode_lend_count(const FrameHeader& header,
                                     std::span<const std::byte, kLendHeadBytes> bytes);
// InvalidArgument: wrong size, an empty piece, an address range that wraps, or pieces that do not
// fit the payload.
StatusOr<LendBlock> decode_lend(const FrameHeader& header, std::span<const std::byte> bytes);

// Reads the tensors' types and shapes of a lent frame and says where each piece goes in a payload
// buffer of header.payload_bytes: piece i fills [offsets[i], offsets[i] + pieces[i].bytes). Then
// decode_message() as usual. InvalidArgument: the pieces are not exactly the tensors that have
// bytes, in their order and size.
StatusOr<std::vector<uint64_t>> lend_offsets(const FrameHeader& header,
                                             std::span<const std::byte> meta,
                                             const LendBlock& lend);

}  // namespace starling
