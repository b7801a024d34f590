#include "wire/frame.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <string>

#include "wire/method.h"
#include "wire/wire_testing.h"

namespace starling {
namespace {

using wire_testing::as_bytes_of;
using wire_testing::equal;
using wire_testing::numbered;
using wire_testing::sample_message;

using HeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

HeaderBytes encoded(const FrameHeader& header) {
  HeaderBytes bytes;
  encode_header(header, bytes);
  return bytes;
}

FrameHeader request_header() {
  FrameHeader header;
  header.method = static_cast<uint16_t>(Method::kPsPull);
  header.request_id = 0x0102030405060708;
  header.lane = 3;
  header.deadline_us = 1'000'000;
  return header;
}

std::string whole(const EncodedFrame& frame) {
  return std::string(frame.head.view()) + wire_testing::joined(frame.pieces);
}

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

StatusOr<Message> decode_whole(std::string_view frame, FrameHeader* header) {
  STARLING_ASSIGN_OR_RETURN(
      *header, decode_header(as_bytes_of(frame).first<kFrameHeaderBytes>(), FrameLimits{}));
  const std::string_view meta = frame.substr(kFrameHeaderBytes, header->meta_bytes);
  const std::string_view payload = frame.substr(kFrameHeaderBytes + header->meta_bytes);
  return decode_message(*header, as_bytes_of(meta), Buffer::copy_of(payload));
}

TEST(FrameHeader, RoundTrips) {
  FrameHeader header = request_header();
  header.kind = FrameKind::kReply;
  header.status = 5;
  header.meta_bytes = 1000;
  header.tensor_count = 12;
  header.payload_bytes = 1 << 20;
  header.flags = kFlagLent;
  const StatusOr<FrameHeader> back = decode_header(encoded(header), {});
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, header);
}

TEST(FrameHeader, AnyFlippedBitIsNoticed) {
  const HeaderBytes good = encoded(request_header());
  ASSERT_TRUE(decode_header(good, {}).ok());
  for (size_t bit = 0; bit < 8 * kFrameHeaderBytes; ++bit) {
    HeaderBytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    const Status status = decode_header(bad, {}).status();
    const bool in_version = bit / 8 == 4;
    EXPECT_EQ(status.code(), in_version ? StatusCode::kFailedPrecondition : StatusCode::kDataLoss)
        << bit;
  }
}

TEST(FrameHeader, AnotherVersionIsNamedWithOurs) {
  HeaderBytes bytes = encoded(request_header());
  bytes[4] = std::byte{9};
  const Status status = decode_header(bytes, {}).status();
  EXPECT_EQ(message_of(status), "frame has version 9, we speak 1");
}

TEST(FrameHeader, LimitsAreNamed) {
  FrameHeader header = request_header();
  header.meta_bytes = (16 << 20) + 1;
  Status status = decode_header(encoded(header), {}).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(message_of(status), "meta of 16777217 bytes, the limit is 16777216");

  header.meta_bytes = 100;
  header.tensor_count = 1;
  header.payload_bytes = 4097;
  status = decode_header(encoded(header), {.payload_bytes_max = 4096}).status();
  EXPECT_EQ(message_of(status), "payload of 4097 bytes, the limit is 4096");

  header.payload_bytes = 0;
  header.tensor_count = 11;
  status = decode_header(encoded(header), {.tensors_max = 10}).status();
  EXPECT_EQ(message_of(status), "11 tensors, the limit is 10");
}

TEST(FrameHeader, WhatDoesNotFitTogetherIsRefused) {
  const std::vector<std::function<void(FrameHeader&)>> breaks = {
      [](FrameHeader& h) { h.kind = static_cast<FrameKind>(0); },
      [](FrameHeader& h) { h.kind = static_cast<FrameKind>(9); },
      [](FrameHeader& h) { h.status = 1; },  // a request has none
      [](FrameHeader& h) { h.kind = FrameKind::kReply, h.status = 17; },
      [](FrameHeader& h) { h.flags = 2; },
      [](FrameHeader& h) { h.flags = kFlagLent; },  // only replies
      [](FrameHeader& h) { h.kind = FrameKind::kPing, h.meta_bytes = 8; },
      [](FrameHeader& h) { h.kind = FrameKind::kGoaway, h.payload_bytes = 8; },
      [](FrameHeader& h) { h.payload_bytes = 8; },  // no tensor to hold it
      [](FrameHeader& h) { h.meta_bytes = 9, h.tensor_count = 2; },
  };
  for (size_t i = 0; i < breaks.size(); ++i) {
    FrameHeader header = request_header();
    breaks[i](header);
    EXPECT_EQ(decode_header(encoded(header), {}).status().code(), StatusCode::kInvalidArgument)
        << i;
  }
}

TEST(ControlFrame, IsABareHeader) {
  FrameHeader header;
  header.kind = FrameKind::kPing;
  header.request_id = 42;
  const Buffer frame = encode_control(header);
  ASSERT_EQ(frame.size(), kFrameHeaderBytes);
  EXPECT_EQ(*decode_header(frame.bytes().first<kFrameHeaderBytes>(), {}), header);
}

TEST(PayloadOffset, SmallTensorsStartAt8AndLargeOnesAt64) {
  EXPECT_EQ(payload_offset(0, 1), 0u);
  EXPECT_EQ(payload_offset(1, 1), 8u);
  EXPECT_EQ(payload_offset(8, 4095), 8u);
  EXPECT_EQ(payload_offset(8, 4096), 64u);
  EXPECT_EQ(payload_offset(3, 0), 3u);
}

TEST(Frame, RoundTripsTensorsOfAllSorts) {
  const Message message = sample_message();
  const StatusOr<EncodedFrame> frame = encode_frame(request_header(), message);
  ASSERT_TRUE(frame.ok()) << frame.status();
  FrameHeader header;
  const StatusOr<Message> back = decode_whole(whole(*frame), &header);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(equal(*back, message));
  EXPECT_EQ(header.method, static_cast<uint16_t>(Method::kPsPull));
  EXPECT_EQ(header.request_id, 0x0102030405060708u);
  EXPECT_EQ(header.payload_bytes, payload_bytes(message.tensors));
}

TEST(Frame, TensorsAreAlignedSlicesOfThePayload) {
  const Message message = sample_message();
  const std::string frame = whole(*encode_frame(request_header(), message));
  const auto header = *decode_header(as_bytes_of(frame).first<kFrameHeaderBytes>(), {});
  const auto meta = as_bytes_of(frame).subspan(kFrameHeaderBytes, header.meta_bytes);
  const Buffer payload = Buffer::copy_of(frame.substr(kFrameHeaderBytes + header.meta_bytes));
  const StatusOr<Message> back = decode_message(header, meta, payload);
  ASSERT_TRUE(back.ok()) << back.status();
  for (const Tensor& tensor : back->tensors) {
    const auto address = reinterpret_cast<uintptr_t>(tensor.buffer().data());
    EXPECT_GE(tensor.buffer().data(), payload.data());
    EXPECT_LE(tensor.buffer().data() + tensor.bytes(), payload.data() + payload.size());
    if (tensor.bytes() != 0) {
      EXPECT_EQ(address % (tensor.bytes() < 4096 ? 8 : 64), 0u) << tensor.describe();
    }
  }
}

TEST(Frame, AnUnalignedPayloadIsCopiedSoThatTensorsAreAligned) {
  Message message;
  message.tensors.push_back(numbered(DType::kUInt64, {4}));
  const std::string frame = whole(*encode_frame(request_header(), message));
  const auto header = *decode_header(as_bytes_of(frame).first<kFrameHeaderBytes>(), {});
  const auto meta = as_bytes_of(frame).subspan(kFrameHeaderBytes, header.meta_bytes);
  const Buffer payload =
      Buffer::copy_of("x" + frame.substr(kFrameHeaderBytes + header.meta_bytes)).slice(1, 32);
  const StatusOr<Message> back = decode_message(header, meta, payload);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(back->tensors[0].buffer().data()) % 8, 0u);
  EXPECT_TRUE(equal(*back, message));
}

TEST(Frame, ASmallPayloadRidesInTheHead) {
  Message message;
  message.tensors.push_back(numbered(DType::kUInt8, {4096}));
  EXPECT_TRUE(encode_frame(request_header(), message)->pieces.empty());
}

TEST(Frame, ALargePayloadIsReferencedAndNotCopied) {
  Message message;
  message.tensors.push_back(numbered(DType::kUInt8, {10}));
  message.tensors.push_back(numbered(DType::kUInt8, {4097}));
  const StatusOr<EncodedFrame> frame = encode_frame(request_header(), message);
  ASSERT_TRUE(frame.ok());
  ASSERT_EQ(frame->pieces.size(), 3u);
  EXPECT_EQ(frame->pieces[0].data(), message.tensors[0].buffer().data());
  EXPECT_EQ(frame->pieces[1].view(), std::string(54, '\0'));
  EXPECT_EQ(frame->pieces[2].data(), message.tensors[1].buffer().data());
}

TEST(Frame, AnErrorReplyCarriesItsCodeInTheHeader) {
  FrameHeader header = request_header();
  header.kind = FrameKind::kReply;
  const Message reply = status_reply(not_found("no table users"));
  FrameHeader got;
  const StatusOr<Message> back = decode_whole(whole(*encode_frame(header, reply)), &got);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(got.status, 5u);
  EXPECT_EQ(status_of(*back), not_found("no table users"));
}

TEST(Frame, AnEmptyMessageIsABareHeader) {
  const StatusOr<EncodedFrame> frame = encode_frame(request_header(), Message{});
  EXPECT_EQ(frame->head.size(), kFrameHeaderBytes);
  FrameHeader header;
  EXPECT_TRUE(equal(*decode_whole(whole(*frame), &header), Message{}));
}

TEST(Frame, TenThousandSmallTensorsTravelInOne) {
  Message message;
  for (int64_t i = 0; i < 10'000; ++i)
    message.tensors.push_back(numbered(DType::kFloat32, {i % 5}));
  FrameHeader header;
  const StatusOr<Message> back =
      decode_whole(whole(*encode_frame(request_header(), message)), &header);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(equal(*back, message));
}

TEST(Frame, TheSenderKeepsTheReceiversLimits) {
  const Message message = sample_message();
  EXPECT_EQ(encode_frame(request_header(), message, {.payload_bytes_max = 100}).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(encode_frame(request_header(), message, {.meta_bytes_max = 10}).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(encode_frame(request_header(), message, {.tensors_max = 5}).status().code(),
            StatusCode::kResourceExhausted);
}

class BrokenFrame : public testing::Test {
 protected:
  BrokenFrame() {
    message_.tensors.push_back(numbered(DType::kInt32, {2, 3}));
    frame_ = whole(*encode_frame(request_header(), message_));
    header_ = *decode_header(as_bytes_of(frame_).first<kFrameHeaderBytes>(), {});
    meta_ = frame_.substr(kFrameHeaderBytes, header_.meta_bytes);
    payload_ = Buffer::copy_of(frame_.substr(kFrameHeaderBytes + header_.meta_bytes));
  }
  // With a meta made from `proto` in place of the right one.
  Status decode_with(const v1::TensorMessage& proto) {
    const std::string meta = proto.SerializeAsString();
    FrameHeader header = header_;
    header.meta_bytes = static_cast<uint32_t>(meta.size());
    return decode_message(header, as_bytes_of(meta), payload_).status();
  }

  Message message_;
  std::string frame_;
  FrameHeader header_;
  std::string meta_;
  Buffer payload_;
};

TEST_F(BrokenFrame, IsWholeToBeginWith) {
  EXPECT_TRUE(decode_message(header_, as_bytes_of(meta_), payload_).ok());
}

TEST_F(BrokenFrame, TheCountMustBeTheHeaders) {
  FrameHeader header = header_;
  header.tensor_count = 2;
  EXPECT_EQ(message_of(decode_message(header, as_bytes_of(meta_), payload_).status()),
            "meta describes 1 tensors, the header says 2");
  header.tensor_count = 0;
  EXPECT_FALSE(decode_message(header, as_bytes_of(meta_), payload_).ok());
}

TEST_F(BrokenFrame, PartsMustHaveTheHeadersSizes) {
  EXPECT_FALSE(decode_message(header_, as_bytes_of(meta_), payload_.slice(0, 16)).ok());
  EXPECT_FALSE(decode_message(header_, as_bytes_of(meta_).first(3), payload_).ok());
}

TEST_F(BrokenFrame, ShapesMustFillThePayloadExactly) {
  v1::TensorMessage proto;
  v1::Tensor* tensor = proto.add_tensors();
  tensor->set_dtype(v1::DTYPE_INT32);
  tensor->add_shape(6);
  EXPECT_TRUE(decode_with(proto).ok());
  tensor->set_shape(0, 5);
  EXPECT_EQ(message_of(decode_with(proto)), "tensors end at 20, the payload has 24 bytes");
  tensor->set_shape(0, 7);
  EXPECT_EQ(message_of(decode_with(proto)), "tensor 0 of 28 bytes starts at 0 of a payload of 24");
  tensor->set_shape(0, INT64_MAX / 2);
  EXPECT_EQ(message_of(decode_with(proto)), "tensor 0: tensor shape overflows");
  tensor->set_shape(0, -6);
  EXPECT_EQ(message_of(decode_with(proto)), "tensor 0: tensor has a negative extent -6");
}

TEST_F(BrokenFrame, UnknownTypesAreRefused) {
  v1::TensorMessage proto;
  v1::Tensor* tensor = proto.add_tensors();
  tensor->add_shape(24);
  EXPECT_EQ(message_of(decode_with(proto)), "tensor 0: dtype 0 is unknown");
  for (const int dtype : {11, 256 + 8, -1}) {
    tensor->set_dtype(static_cast<v1::DType>(dtype));
    EXPECT_EQ(decode_with(proto).code(), StatusCode::kInvalidArgument) << dtype;
  }
  tensor->set_dtype(v1::DTYPE_UINT8);
  EXPECT_TRUE(decode_with(proto).ok());
}

TEST_F(BrokenFrame, BytesInsideOfMetaAreRefused) {
  v1::TensorMessage proto;
  v1::Tensor* tensor = proto.add_tensors();
  tensor->set_dtype(v1::DTYPE_UINT8);
  tensor->add_shape(24);
  tensor->set_data("24 bytes, all inside meta");
  EXPECT_EQ(message_of(decode_with(proto)), "tensor 0 has 25 bytes inside of meta");
}

TEST_F(BrokenFrame, NineExtentsAreRefused) {
  v1::TensorMessage proto;
  v1::Tensor* tensor = proto.add_tensors();
  tensor->set_dtype(v1::DTYPE_UINT8);
  for (int i = 0; i < 7; ++i) tensor->add_shape(1);
  tensor->add_shape(24);
  EXPECT_TRUE(decode_with(proto).ok());
  tensor->add_shape(1);
  EXPECT_EQ(decode_with(proto).code(), StatusCode::kInvalidArgument);
  for (int i = 0; i < 1000; ++i) tensor->add_shape(1);
  EXPECT_EQ(decode_with(proto).code(), StatusCode::kInvalidArgument);
}

TEST_F(BrokenFrame, EveryCutOfMetaIsRefused) {
  for (size_t bytes = 0; bytes < meta_.size(); ++bytes) {
    FrameHeader header = header_;
    header.meta_bytes = static_cast<uint32_t>(bytes);
    EXPECT_FALSE(decode_message(header, as_bytes_of(meta_).first(bytes), payload_).ok()) << bytes;
  }
}

// Frozen: a change here breaks every peer of another build. Raise kFrameVersion instead.
TEST(FrameGolden, BytesOfARequestNeverChange) {
  Message message;
  message.meta.mutable_header()->set_lane(3);
  message.meta.set_name("users");
  message.tensors.push_back(Tensor::vector_of<uint64_t>({1, 0xfffffffffffffffe}));
  message.tensors.push_back(Tensor::vector_of<uint8_t>({7}));
  message.tensors.push_back(Tensor::vector_of<float>({1.5F}));
  const StatusOr<EncodedFrame> frame = encode_frame(request_header(), message);
  ASSERT_TRUE(frame.ok());
  EXPECT_EQ(hex(whole(*frame)),
            "53545231010115000807060504030201030000000000000040420f0000000000"
            "23000000030000001c000000000000000000000000000000fe9068993091e2f4"
            "0a02580312057573657273c23e05080a120102c23e050808120101c23e050801"
            "1201010100000000000000feffffffffffffff07000000000000000000c03f");
}

TEST(FrameGolden, BytesOfALentReplyNeverChange) {
  FrameHeader header = request_header();
  header.kind = FrameKind::kReply;
  header.deadline_us = 0;
  header.meta_bytes = 11;
  header.tensor_count = 1;
  header.payload_bytes = 8192;
  header.flags = kFlagLent;
  const HeaderBytes bytes = encoded(header);
  EXPECT_EQ(hex(wire_testing::as_string(bytes)),
            "5354523101021500080706050403020103000000000000000000000000000000"
            "0b000000010000000020000000000000010000000000000017572e439f8309ea");
  LendBlock lend{5, 6, 0x7000, {{0x10000, 8192}}};
  std::string block(lend_bytes(1), '\0');
  encode_lend(lend, std::as_writable_bytes(std::span(block)));
  EXPECT_EQ(hex(block),
            "0500000000000000060000000000000000700000000000000100000000000000"
            "00000100000000000020000000000000");
}

}  // namespace
}  // namespace starling
