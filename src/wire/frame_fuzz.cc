// Any bytes as one frame: header, meta and payload, or header, meta and lend block. What decodes is
// encoded again and must come back the same.
#include <google/protobuf/stubs/logging.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "wire/frame.h"
#include "wire/wire_testing.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file
using wire_testing::must;

constexpr FrameLimits kLimits = {
    .meta_bytes_max = 1 << 16, .payload_bytes_max = 1 << 17, .tensors_max = 1 << 12};

std::string whole(const EncodedFrame& frame) {
  return std::string(frame.head.view()) + wire_testing::joined(frame.pieces);
}

void check_message(const FrameHeader& header, std::span<const std::byte> meta,
                   std::span<const std::byte> payload) {
  const StatusOr<Message> message = decode_message(header, meta, Buffer::copy_of(payload));
  if (!message.ok()) return;
  uint64_t sum = 0;
  for (const Tensor& tensor : message->tensors) {
    for (const std::byte byte : tensor.buffer().bytes()) sum += static_cast<uint64_t>(byte);
  }
  must(sum <= payload.size() * 255, "tensors lie inside of the payload");
  const StatusOr<EncodedFrame> again = encode_frame(header, *message, {});
  must(again.ok(), "what was decoded can be encoded");
  const std::string bytes = whole(*again);
  const auto view = wire_testing::as_bytes_of(bytes);
  const StatusOr<FrameHeader> second = decode_header(view.first<kFrameHeaderBytes>(), {});
  must(second.ok(), "an encoded header decodes");
  must(second->payload_bytes == header.payload_bytes, "the payload keeps its size");
  const StatusOr<Message> back =
      decode_message(*second, view.subspan(kFrameHeaderBytes, second->meta_bytes),
                     Buffer::copy_of(view.subspan(kFrameHeaderBytes + second->meta_bytes)));
  must(back.ok() && wire_testing::equal(*back, *message), "a message survives its frame");
}

void check_lend(const FrameHeader& header, std::span<const std::byte> meta,
                std::span<const std::byte> block) {
  const StatusOr<LendBlock> lend = decode_lend(header, block);
  if (!lend.ok()) return;
  const StatusOr<std::vector<uint64_t>> offsets = lend_offsets(header, meta, *lend);
  if (!offsets.ok()) return;
  for (size_t i = 0; i < offsets->size(); ++i) {
    must((*offsets)[i] <= header.payload_bytes &&
             lend->pieces[i].bytes <= header.payload_bytes - (*offsets)[i],
         "a lent piece fits into the payload");
  }
  std::vector<std::byte> again(block.size());
  encode_lend(*lend, again);
  must(std::memcmp(again.data(), block.data(), block.size()) == 0, "a lend block survives");
}

// Mutations hardly ever keep the checksum right: it is mended, so that what lies behind is reached
// too.
StatusOr<FrameHeader> decode_mended(std::span<const std::byte, kFrameHeaderBytes> bytes) {
  StatusOr<FrameHeader> header = decode_header(bytes, kLimits);
  if (header.ok()) return header;
  const std::byte* data = bytes.data();
  FrameHeader fields;
  std::memcpy(&fields.kind, data + 5, 1);
  std::memcpy(&fields.method, data + 6, 2);
  std::memcpy(&fields.request_id, data + 8, 8);
  std::memcpy(&fields.lane, data + 16, 4);
  std::memcpy(&fields.status, data + 20, 4);
  std::memcpy(&fields.deadline_us, data + 24, 8);
  std::memcpy(&fields.meta_bytes, data + 32, 4);
  std::memcpy(&fields.tensor_count, data + 36, 4);
  std::memcpy(&fields.payload_bytes, data + 40, 8);
  std::memcpy(&fields.flags, data + 48, 4);
  std::array<std::byte, kFrameHeaderBytes> mended;
  encode_header(fields, mended);
  header = decode_header(mended, kLimits);
  if (header.ok()) must(*header == fields, "a header survives");
  return header;
}

// A frame whose header says that its payload is lent goes to the decoder of lend blocks, any other
// to that of messages.
void check_frame(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrameHeaderBytes) return;
  const StatusOr<FrameHeader> header = decode_mended(bytes.first<kFrameHeaderBytes>());
  if (!header.ok() || header->meta_bytes > bytes.size() - kFrameHeaderBytes) return;
  const auto meta = bytes.subspan(kFrameHeaderBytes, header->meta_bytes);
  const auto rest = bytes.subspan(kFrameHeaderBytes + header->meta_bytes);
  if ((header->flags & kFlagLent) != 0) {
    check_lend(*header, meta, rest);
  } else {
    check_message(*header, meta, rest);
  }
}

std::string lent(const Message& message, const FrameHeader& header) {
  return std::string(encode_lent_frame(header, message,
                                       {.lend_id = 3, .generation = 4, .generation_address = 4096})
                         ->view());
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  google::protobuf::SetLogHandler(nullptr);
  FrameHeader header;
  header.method = 21;
  header.request_id = 77;
  FuzzDecoder message{"message", check_frame, {}};
  message.seeds.push_back(whole(*encode_frame(header, wire_testing::small_message())));
  message.seeds.push_back(whole(*encode_frame(header, Message{})));
  header.kind = FrameKind::kReply;
  message.seeds.push_back(whole(*encode_frame(header, status_reply(not_found("no table users")))));
  message.seeds.push_back(
      std::string(encode_control({.kind = FrameKind::kPing, .request_id = 9}).view()));
  Message one = wire_testing::small_message();
  one.tensors.resize(1);
  return {message,
          {"lend_block",
           check_frame,
           {lent(wire_testing::small_message(), header), lent(one, header)}}};
}
