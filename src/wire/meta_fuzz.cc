// Any bytes as the meta of a frame whose header fits it, so that every input reaches the parser;
// the payload is as long as the first two bytes say.
#include <google/protobuf/stubs/logging.h>

#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "wire/frame.h"
#include "wire/wire_testing.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file
using wire_testing::must;

std::string as_seed(const Message& message) {
  const StatusOr<EncodedFrame> frame = encode_frame({}, message);
  const auto header = *decode_header(frame->head.bytes().first<kFrameHeaderBytes>(), {});
  std::string seed;
  seed += static_cast<char>(header.payload_bytes);
  seed += static_cast<char>(header.payload_bytes >> 8);
  seed += static_cast<char>(header.tensor_count);
  return seed +
         wire_testing::as_string(frame->head.bytes().subspan(kFrameHeaderBytes, header.meta_bytes));
}

void check(std::span<const std::byte> bytes) {
  if (bytes.size() < 3) return;
  FrameHeader header;
  header.payload_bytes =
      static_cast<size_t>(bytes[0]) + size_t{256} * static_cast<size_t>(bytes[1]);
  header.tensor_count = static_cast<uint32_t>(bytes[2]);
  header.meta_bytes = static_cast<uint32_t>(bytes.size() - 3);
  const auto meta = bytes.subspan(3);
  Buffer payload = Buffer::allocate(header.payload_bytes);
  for (std::byte& byte : payload.mutable_bytes()) byte = std::byte{0xa5};
  const StatusOr<Message> message = decode_message(header, meta, payload);
  if (!message.ok()) return;
  must(message->meta.tensors().empty(), "tensors lie beside meta");
  must(payload_bytes(message->tensors) == header.payload_bytes, "tensors fill the payload");
  for (const Tensor& tensor : message->tensors) {
    must(tensor.bytes() == 0 ||
             (tensor.buffer().data() >= payload.data() &&
              tensor.buffer().data() + tensor.bytes() <= payload.data() + payload.size()),
         "tensors lie inside of the payload");
  }
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  google::protobuf::SetLogHandler(nullptr);
  Message option = wire_testing::small_message();
  option.meta.mutable_pull()->add_keys()->set_table("users");
  Message map = status_reply(failed_precondition("stale map"));
  map.meta.mutable_status()->mutable_map()->set_version(3);
  for (uint32_t i = 0; i < 16; ++i) map.meta.mutable_status()->mutable_map()->add_bucket_shard(i);
  return {{"meta",
           check,
           {as_seed(wire_testing::small_message()), as_seed(wire_testing::sample_message()),
            as_seed(option), as_seed(map), as_seed(Message{})}}};
}
