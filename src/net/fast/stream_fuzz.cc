// Any bytes as a stream of frames through a socket: at once and in crumbs a reader makes the same
// of them, and never takes in more than its limits allow.
//
// An input begins with the size of the crumbs. Mutations hardly ever keep the checksum of a header
// right, so each frame stands there with its FrameHeader as it lies in memory, which is encoded.
#include <google/protobuf/stubs/logging.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "fuzz/fuzz.h"
#include "net/fast/socket.h"
#include "net/fast/stream.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file

constexpr FrameLimits kLimits = {
    .meta_bytes_max = 1 << 12, .payload_bytes_max = 1 << 13, .tensors_max = 1 << 8};

// What behind the header belongs to the frame, as far as it can be told.
size_t rest_bytes(const FrameHeader& header, std::string_view rest) {
  if ((header.flags & kFlagLent) == 0) return header.meta_bytes + header.payload_bytes;
  uint32_t pieces = 0;
  constexpr size_t kCountAt = 24;
  if (rest.size() >= size_t{header.meta_bytes} + kLendHeadBytes) {
    std::memcpy(&pieces, rest.data() + header.meta_bytes + kCountAt, sizeof(pieces));
  }
  return header.meta_bytes + lend_bytes(pieces);
}

std::string stream_of(std::string_view input) {
  std::string out;
  while (input.size() >= sizeof(FrameHeader)) {
    FrameHeader header;
    std::memcpy(static_cast<void*>(&header), input.data(), sizeof(header));
    input.remove_prefix(sizeof(header));
    std::array<std::byte, kFrameHeaderBytes> bytes;
    encode_header(header, bytes);
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const size_t rest = std::min(input.size(), rest_bytes(header, input));
    out.append(input.substr(0, rest));
    input.remove_prefix(rest);
  }
  return out.append(input);
}

// Two ends, made once: making them would cost more than all else.
class Wire {
 public:
  Wire() {
    std::array<int, 2> ends;
    STARLING_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0,
                   "two ends of a socket");
    in_ = Socket(ends[0]);
    out_ = Socket(ends[1]);
  }
  void send(std::string_view bytes) {
    STARLING_CHECK(
        ::send(in_.fd(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
        "the socket takes a crumb");
  }
  int fd() const { return out_.fd(); }
  void drain() {
    std::array<char, 1 << 16> rest;
    while (::recv(out_.fd(), rest.data(), rest.size(), 0) > 0) continue;
  }

 private:
  Socket in_;
  Socket out_;
};

// All that a reader makes of the bytes, and how it ended.
std::string read_in(FrameKind takes, const std::string& bytes, size_t crumb) {
  static Metrics metrics;
  static FastCounters counters(metrics);
  static BufferPool pool;
  static Wire wire;
  FrameReader reader(takes, kLimits, pool, counters);
  FrameReader::Admit admit = [](const FrameHeader&) { return true; };
  std::string told;
  for (size_t at = 0; at < bytes.size(); at += crumb) {
    const size_t count = std::min(crumb, bytes.size() - at);
    wire.send(std::string_view(bytes).substr(at, count));
    FrameReader::Result result;
    while ((result = reader.read(wire.fd(), admit)) == FrameReader::Result::kFrame) {
      Frame& frame = reader.frame();
      STARLING_CHECK(
          frame.header.meta_bytes <= kLimits.meta_bytes_max &&
              frame.payload().size() <= lend_bytes(kLimits.tensors_max) + kLimits.payload_bytes_max,
          "a frame beyond the limits");
      told.append(reinterpret_cast<const char*>(frame.meta().data()), frame.meta().size());
      told.append(frame.payload().view()).append("\n");
    }
    if (result == FrameReader::Result::kBroken) {
      wire.drain();
      return told + reader.why().ToString();
    }
    STARLING_CHECK(result == FrameReader::Result::kEmpty && !reader.holds_more(),
                   "a reader that found the socket empty has used it all");
  }
  return told + (reader.midway() ? "midway" : "whole");
}

template <FrameKind takes>
void check(std::span<const std::byte> input) {
  if (input.size() < 2) return;
  const std::string_view text = text_of(input);
  const std::string bytes = stream_of(text.substr(1));
  // A socket takes this much at once.
  if (bytes.size() > 1 << 16) return;
  // At least a fifth of the stream: calls of the system are what an input costs.
  const size_t crumb = 1 + static_cast<uint8_t>(text[0]) + bytes.size() / 5;
  STARLING_CHECK(read_in(takes, bytes, bytes.size() + 1) == read_in(takes, bytes, crumb),
                 "crumbs do not matter");
}

// A frame as inputs have it.
std::string as_seed(std::string_view wire) {
  const auto bytes = std::as_bytes(std::span(wire));
  const FrameHeader header = decode_header(bytes.first<kFrameHeaderBytes>(), {}).value();
  std::string out(sizeof(header), '\0');
  std::memcpy(out.data(), &header, sizeof(header));
  return out.append(wire.substr(kFrameHeaderBytes));
}

std::string frame_of(FrameKind kind, size_t payload_bytes) {
  Message message;
  message.tensors.push_back(Tensor::allocate(DType::kUInt8, {static_cast<int64_t>(payload_bytes)}));
  std::memset(message.tensors[0].mutable_values<uint8_t>().data(), 7, payload_bytes);
  const EncodedFrame frame =
      encode_frame({.kind = kind, .method = 21, .request_id = 5}, message).value();
  std::string bytes(frame.head.view());
  for (const Buffer& piece : frame.pieces) bytes += piece.view();
  return as_seed(bytes);
}

std::string lent_frame() {
  Message message;
  message.tensors.push_back(Tensor::allocate(DType::kUInt8, {100}));
  return as_seed(encode_lent_frame({.kind = FrameKind::kReply, .request_id = 6}, message,
                                   {.lend_id = 3, .generation = 4, .generation_address = 4096})
                     ->view());
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  google::protobuf::SetLogHandler(nullptr);
  const std::string ping =
      as_seed(encode_control({.kind = FrameKind::kPing, .request_id = 9}).view());
  const auto request = [](size_t bytes) { return frame_of(FrameKind::kRequest, bytes); };
  const auto reply = [](size_t bytes) { return frame_of(FrameKind::kReply, bytes); };
  return {{"requests",
           check<FrameKind::kRequest>,
           {"\x01" + request(8) + ping + request(8) + request(200),
            "\x05" + ping + request(8) + ping + request(5000)}},
          {"replies",
           check<FrameKind::kReply>,
           {"\x30" + reply(1) + lent_frame() + ping,
            "\x7f" + lent_frame() + lent_frame() + reply(8), "\x05" + ping + reply(5000)}}};
}
