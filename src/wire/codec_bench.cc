// What a message costs to encode and decode, beside the generated code doing the same.
#include <benchmark/benchmark.h>

#include <string>

#include "wire/frame.h"
#include "wire/proto_codec.h"
#include "wire/wire_testing.h"

namespace starling {
namespace {

// A request as a step sends it, with one tensor of this many bytes.
Message request(int64_t bytes) {
  Message message;
  v1::Header* header = message.meta.mutable_header();
  header->set_role(v1::ROLE_TRAINER);
  header->set_role_id(3);
  header->set_incarnation(0x1234567812345678);
  header->set_generation(1);
  header->set_request_id(1000);
  header->set_map_version(2);
  header->set_lane(1);
  message.tensors.push_back(wire_testing::numbered(DType::kUInt8, {bytes}));
  return message;
}

void frame(benchmark::State& state) {
  const Message message = request(state.range(0));
  FrameHeader header;
  header.request_id = 1;
  for (auto _ : state) {
    const StatusOr<EncodedFrame> frame = encode_frame(header, message);
    const auto head = frame->head.bytes();
    const StatusOr<FrameHeader> got = decode_header(head.first<kFrameHeaderBytes>(), {});
    // The payload arrives in its final buffer, which is the transport's to fill.
    const Buffer payload = frame->pieces.empty()
                               ? Buffer::copy_of(head.subspan(kFrameHeaderBytes + got->meta_bytes))
                               : frame->pieces[0];
    benchmark::DoNotOptimize(
        decode_message(*got, head.subspan(kFrameHeaderBytes, got->meta_bytes), payload));
  }
}
BENCHMARK(frame)->Arg(8)->Arg(4096)->Arg(256 << 10)->Arg(6'800'000);

void proto_codec(benchmark::State& state) {
  const Message message = request(state.range(0));
  BufferPool pool;
  for (auto _ : state) {
    const std::vector<Buffer> pieces = encode_proto(message);
    std::vector<std::span<const std::byte>> slices;
    for (const Buffer& piece : pieces) slices.push_back(piece.bytes());
    benchmark::DoNotOptimize(decode_proto(slices, &pool));
  }
}
BENCHMARK(proto_codec)->Arg(8)->Arg(4096)->Arg(256 << 10)->Arg(6'800'000);

void generated(benchmark::State& state) {
  const Message message = request(state.range(0));
  for (auto _ : state) {
    const std::string bytes = wire_testing::whole(message).SerializeAsString();
    v1::TensorMessage parsed;
    benchmark::DoNotOptimize(parsed.ParseFromString(bytes));
  }
}
BENCHMARK(generated)->Arg(8)->Arg(4096)->Arg(256 << 10)->Arg(6'800'000);

}  // namespace
}  // namespace starling

BENCHMARK_MAIN();
