// Any bytes as the body of a gRPC call, cut into slices. Decoding agrees with generated code: what
// both accept is the same message, and what comes out encodes to what generated code would write.
#include <google/protobuf/stubs/logging.h>

#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "wire/proto_codec.h"
#include "wire/wire_testing.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file
using wire_testing::must;

constexpr ProtoLimits kLimits = {
    .meta_bytes_max = 1 << 16, .payload_bytes_max = 1 << 17, .tensors_max = 1 << 12};

// Slices whose lengths depend on the content, so that an input is cut the same way every time.
std::vector<std::span<const std::byte>> cut(std::span<const std::byte> bytes) {
  std::vector<std::span<const std::byte>> slices;
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), 1 + static_cast<size_t>(bytes.front()) % 61);
    slices.push_back(bytes.first(n));
    bytes = bytes.subspan(n);
  }
  return slices;
}

// The tensors' own unknown fields are dropped by our decoder, so they are not compared.
bool same_tensors(const Message& message, const v1::TensorMessage& generated) {
  if (static_cast<int>(message.tensors.size()) != generated.tensors_size()) return false;
  for (int i = 0; i < generated.tensors_size(); ++i) {
    const StatusOr<Tensor> tensor = from_proto(generated.tensors(i));
    if (!tensor.ok() || !wire_testing::equal(*tensor, message.tensors[i])) return false;
  }
  return true;
}

void check(std::span<const std::byte> bytes) {
  const StatusOr<Message> message = decode_proto(cut(bytes), nullptr, kLimits);
  const StatusOr<Message> one_slice = decode_proto({&bytes, 1}, nullptr, kLimits);
  must(message.ok() == one_slice.ok(), "slices do not matter");
  if (!message.ok()) return;
  must(wire_testing::equal(*message, *one_slice), "slices do not matter");

  v1::TensorMessage generated;
  must(generated.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())),
       "generated code accepts it too");
  must(same_tensors(*message, generated), "generated code reads the same tensors");
  const std::string again = wire_testing::joined(encode_proto(*message));
  must(again == wire_testing::whole(*message).SerializeAsString(),
       "generated code writes the same bytes");
  const auto view = wire_testing::as_bytes_of(again);
  const StatusOr<Message> back = decode_proto({&view, 1}, nullptr, kLimits);
  must(back.ok() && wire_testing::equal(*back, *message), "a message survives");
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  google::protobuf::SetLogHandler(nullptr);
  Message option = wire_testing::small_message();
  option.meta.mutable_push_grad()->add_keys()->set_table("users");
  Message map = status_reply(failed_precondition("stale map"));
  for (uint32_t i = 0; i < 16; ++i) map.meta.mutable_status()->mutable_map()->add_bucket_shard(i);
  std::vector<std::string> seeds;
  for (const Message& message :
       {wire_testing::small_message(), wire_testing::sample_message(), option, map}) {
    seeds.push_back(wire_testing::whole(message).SerializeAsString());
  }
  return {{"proto", check, seeds}};
}
