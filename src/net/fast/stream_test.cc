// Frames through a socket: whole, in crumbs, and with what is read beyond a header.
#include "net/fast/stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "net/fast/socket.h"

namespace starling {
namespace {

Message message_of_bytes(size_t bytes) {
  Message message;
  Tensor tensor = Tensor::allocate(DType::kUInt8, {static_cast<int64_t>(bytes)});
  for (size_t i = 0; i < bytes; ++i)
    tensor.mutable_values<uint8_t>()[i] = static_cast<uint8_t>(i * 7 + bytes);
  message.tensors.push_back(std::move(tensor));
  return message;
}

class StreamTest : public testing::Test {
 protected:
  StreamTest() : counters_(metrics_), writer_(counters_) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    out_ = Socket(ends[0]);
    in_ = Socket(ends[1]);
  }

  // The bytes that a writer makes of messages with these payloads, one after the other.
  std::string written(const std::vector<size_t>& payloads) {
    for (size_t i = 0; i < payloads.size(); ++i) {
      auto frame = encode_frame({.kind = FrameKind::kRequest, .request_id = i},
                                message_of_bytes(payloads[i]));
      EXPECT_TRUE(frame.ok());
      writer_.push(*std::move(frame));
    }
    std::string bytes;
    while (!writer_.empty()) {
      EXPECT_TRUE(writer_.flush(out_.fd()).ok());
      std::string some(1 << 16, '\0');
      for (ssize_t got; (got = ::recv(in_.fd(), some.data(), some.size(), 0)) > 0;)
        bytes.append(some, 0, static_cast<size_t>(got));
    }
    return bytes;
  }

  // Feeds the bytes in crumbs and takes every frame that comes out; spacers are left out.
  std::vector<size_t> read_in(FrameReader& reader, const std::string& bytes, size_t crumb) {
    FrameReader::Admit admit = [](const FrameHeader&) { return true; };
    std::vector<size_t> payloads;
    for (size_t at = 0; at < bytes.size(); at += crumb) {
      const size_t count = std::min(crumb, bytes.size() - at);
      EXPECT_EQ(::send(out_.fd(), bytes.data() + at, count, 0), static_cast<ssize_t>(count));
      while (reader.read(in_.fd(), admit) == FrameReader::Result::kFrame) {
        Frame& frame = reader.frame();
        if (frame.header.kind == FrameKind::kPong) continue;
        const auto message = decode_message(frame.header, frame.meta(), frame.payload());
        EXPECT_TRUE(message.ok()) << message.status();
        const Tensor expected = message_of_bytes(frame.header.payload_bytes).tensors[0];
        EXPECT_EQ(message->tensors.at(0).buffer().view(), expected.buffer().view());
        payloads.push_back(frame.header.payload_bytes);
      }
      EXPECT_FALSE(reader.holds_more()) << "a reader that found the socket empty has used it all";
    }
    return payloads;
  }
  uint64_t copied() { return counters_.copied_bytes.value(); }

  Metrics metrics_;
  FastCounters counters_;
  BufferPool pool_;
  FrameWriter writer_;
  Socket out_;
  Socket in_;
};

TEST_F(StreamTest, FramesComeOutAsTheyWentInHoweverTheyAreCutUp) {
  const std::vector<size_t> payloads = {8, 8, 5000, 8, 100, 4096, 8, 70'000, 5000, 8, 1, 20, 8};
  const std::string bytes = written(payloads);
  for (const size_t crumb : {1u, 7u, 48u, 64u, 100u, 113u, 5000u, 200'000u}) {
    FrameReader reader(FrameKind::kRequest, {}, pool_, counters_);
    EXPECT_EQ(read_in(reader, bytes, crumb), payloads) << crumb;
  }
}

TEST_F(StreamTest, AMessageOfTheOtherEndIsBrokenAtItsHeader) {
  for (const auto& [takes, comes] : {std::pair{FrameKind::kReply, FrameKind::kRequest},
                                     std::pair{FrameKind::kRequest, FrameKind::kReply}}) {
    FrameReader reader(takes, {}, pool_, counters_);
    FrameReader::Admit admit = [](const FrameHeader&) {
      ADD_FAILURE() << "about to allocate";
      return true;
    };
    const auto frame = encode_frame({.kind = comes}, message_of_bytes(8));
    ASSERT_TRUE(frame.ok());
    ASSERT_EQ(::send(out_.fd(), frame->head.data(), kFrameHeaderBytes, 0),
              static_cast<ssize_t>(kFrameHeaderBytes));
    EXPECT_EQ(reader.read(in_.fd(), admit), FrameReader::Result::kBroken);
    EXPECT_EQ(reader.why().code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(StreamTest, OnlySmallPayloadsAreEverCopied) {
  const std::string large = written({5000, 70'000, 5000});
  const std::string mixed = written({8, 5000, 8, 8, 70'000, 8});
  for (const size_t crumb : {1u, 64u, 100u, 200'000u}) {
    FrameReader reader(FrameKind::kRequest, {}, pool_, counters_);
    uint64_t before = copied();
    read_in(reader, large, crumb);
    EXPECT_EQ(copied(), before) << crumb;
    FrameReader second(FrameKind::kRequest, {}, pool_, counters_);
    before = copied();
    read_in(second, mixed, crumb);
    EXPECT_LE(copied() - before, 4u * 8) << crumb;
  }
}

TEST_F(StreamTest, ASpacerStandsOnlyBetweenATinyAndALargeFrame) {
  const auto spacers = [&](const std::vector<size_t>& payloads) {
    size_t bytes = 0;
    for (const size_t payload : payloads) {
      const auto frame = encode_frame({}, message_of_bytes(payload));
      bytes += frame->head.size() + (frame->pieces.empty() ? 0 : payload);
    }
    return (written(payloads).size() - bytes) / kFrameHeaderBytes;
  };
  EXPECT_EQ(spacers({5000, 200, 5000, 5000, 8, 8}), 0u);
  writer_.clear();
  EXPECT_EQ(spacers({8, 5000, 5000, 8, 8, 5000}), 2u);
}

TEST_F(StreamTest, AFrameThatIsDroppedTakesNoSpacerAway) {
  writer_.push(*encode_frame({}, message_of_bytes(8)));
  writer_.push(*encode_frame({}, message_of_bytes(200)), Ticket(), /*id=*/7);
  writer_.push(*encode_frame({}, message_of_bytes(5000)));
  ASSERT_TRUE(writer_.drop(7));
  const std::string bytes = written({});
  FrameReader reader(FrameKind::kRequest, {}, pool_, counters_);
  read_in(reader, bytes, bytes.size());
  EXPECT_LE(copied(), 8u);
}

TEST_F(StreamTest, AFrameThatIsDroppedTakesItsOwnSpacerAlong) {
  writer_.push(*encode_frame({}, message_of_bytes(8)));
  const size_t tiny = writer_.bytes();
  for (uint64_t id = 1; id <= 10; ++id) {
    writer_.push(*encode_frame({}, message_of_bytes(5000)), Ticket(), id);
    ASSERT_TRUE(writer_.drop(id));
    EXPECT_EQ(writer_.bytes(), tiny);
  }
  // The one that stays has one.
  writer_.push(*encode_frame({}, message_of_bytes(5000)));
  const std::string bytes = written({});
  FrameReader reader(FrameKind::kRequest, {}, pool_, counters_);
  EXPECT_EQ(read_in(reader, bytes, bytes.size()), (std::vector<size_t>{8, 5000}));
  EXPECT_LE(copied(), 8u);
}

TEST_F(StreamTest, AFrameThatIsDroppedLeavesItsSpacerToTheNextLargeOne) {
  writer_.push(*encode_frame({}, message_of_bytes(8)));
  writer_.push(*encode_frame({}, message_of_bytes(5000)), Ticket(), /*id=*/7);
  writer_.push(*encode_frame({}, message_of_bytes(200)));
  writer_.push(*encode_frame({}, message_of_bytes(6000)));
  const size_t before = writer_.bytes();
  const size_t dropped = encode_frame({}, message_of_bytes(5000))->head.size() + 5000;
  ASSERT_TRUE(writer_.drop(7));
  EXPECT_EQ(writer_.bytes(), before - dropped);
  const std::string bytes = written({});
  FrameReader reader(FrameKind::kRequest, {}, pool_, counters_);
  EXPECT_EQ(read_in(reader, bytes, bytes.size()), (std::vector<size_t>{8, 200, 6000}));
  EXPECT_LE(copied(), 8u);
}

}  // namespace
}  // namespace starling
