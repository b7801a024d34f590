#include "wire/proto_codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "wire/wire_testing.h"

namespace starling {
namespace {

using wire_testing::as_bytes_of;
using wire_testing::equal;
using wire_testing::joined;
using wire_testing::numbered;
using wire_testing::sample_message;
using wire_testing::whole;

StatusOr<Message> decode(std::string_view bytes, const ProtoLimits& limits = {}) {
  const std::span<const std::byte> slice = as_bytes_of(bytes);
  return decode_proto({&slice, 1}, nullptr, limits);
}

TEST(EncodeProto, GivesTheBytesOfGeneratedCode) {
  const Message message = sample_message();
  EXPECT_EQ(joined(encode_proto(message)), whole(message).SerializeAsString());
}

TEST(EncodeProto, GivesTheBytesOfGeneratedCodeForEverySizeAroundTheThreshold) {
  for (const int64_t bytes : {0, 1, 127, 128, 4095, 4096, 4097, 16383, 16384, 1 << 21}) {
    Message message;
    message.meta.set_name("x");
    message.tensors.push_back(numbered(DType::kUInt8, {bytes}));
    message.tensors.push_back(numbered(DType::kUInt8, {bytes / 2, 2}));
    EXPECT_EQ(joined(encode_proto(message)), whole(message).SerializeAsString()) << bytes;
  }
}

TEST(EncodeProto, AnEmptyMessageHasNoBytes) { EXPECT_EQ(joined(encode_proto(Message{})), ""); }

TEST(EncodeProto, AVoidReplyIsAVoidMessage) {
  v1::VoidMessage expected;
  to_proto(not_found("no table"), expected.mutable_status());
  EXPECT_EQ(joined(encode_proto(status_reply(not_found("no table")))),
            expected.SerializeAsString());
}

TEST(EncodeProto, LargeTensorsAreReferencedAndSmallOnesCopiedTogether) {
  Message message;
  message.tensors.push_back(numbered(DType::kUInt8, {100}));
  message.tensors.push_back(numbered(DType::kUInt8, {5000}));
  message.tensors.push_back(numbered(DType::kUInt8, {100}));
  const std::vector<Buffer> pieces = encode_proto(message);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[1].data(), message.tensors[1].buffer().data());
}

TEST(EncodeProto, FieldsFromTheFutureComeLastAsInGeneratedCode) {
  Message message = sample_message();
  auto* unknown = message.meta.GetReflection()->MutableUnknownFields(&message.meta);
  unknown->AddVarint(900, 5);
  unknown->AddLengthDelimited(2000, "later");
  EXPECT_EQ(joined(encode_proto(message)), whole(message).SerializeAsString());
}

TEST(DecodeProto, ReadsWhatGeneratedCodeWrites) {
  const Message message = sample_message();
  const StatusOr<Message> back = decode(whole(message).SerializeAsString());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(equal(*back, message));
}

TEST(DecodeProto, ReadsAnySplitIntoSlices) {
  const Message message = sample_message();
  const std::string bytes = whole(message).SerializeAsString();
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(1, 2, seed);
    std::vector<std::span<const std::byte>> slices;
    std::span<const std::byte> left = as_bytes_of(bytes);
    while (!left.empty()) {
      const size_t most = seed % 2 == 0 ? 8 : 3000;
      const size_t n = std::min<size_t>(left.size(), rng.below(most));  // empty slices too
      slices.push_back(left.first(n));
      left = left.subspan(n);
    }
    slices.push_back({});
    const StatusOr<Message> back = decode_proto(slices, nullptr);
    ASSERT_TRUE(back.ok()) << seed << ": " << back.status();
    ASSERT_TRUE(equal(*back, message)) << seed;
  }
}

TEST(DecodeProto, TensorsAreAligned) {
  const StatusOr<Message> back = decode(whole(sample_message()).SerializeAsString());
  for (const Tensor& tensor : back->tensors) {
    if (tensor.bytes() == 0) continue;
    const auto address = reinterpret_cast<uintptr_t>(tensor.buffer().data());
    EXPECT_EQ(address % (tensor.bytes() < 4096 ? 8 : 64), 0u) << tensor.describe();
  }
}

TEST(DecodeProto, TakesLargeTensorsFromThePool) {
  BufferPool pool;
  Message message;
  message.tensors.push_back(numbered(DType::kUInt8, {1 << 20}));
  const std::string bytes = whole(message).SerializeAsString();
  const std::span<const std::byte> slice = as_bytes_of(bytes);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(decode_proto({&slice, 1}, &pool).ok());
  EXPECT_EQ(pool.stats().made, 1u);
  EXPECT_EQ(pool.stats().reused, 2u);
}

TEST(DecodeProto, ReadsTensorsInFrontOfOtherFieldsAndInPieces) {
  v1::TensorMessage tensors;
  v1::Tensor* tensor = tensors.add_tensors();
  tensor->set_dtype(v1::DTYPE_UINT8);
  tensor->add_shape(2);
  tensor->set_data("ab");
  v1::TensorMessage name;
  name.set_name("users");
  v1::TensorMessage header;
  header.mutable_header()->set_lane(3);
  const std::string t = tensors.SerializeAsString();
  const StatusOr<Message> back =
      decode(t + name.SerializeAsString() + t + header.SerializeAsString());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->meta.name(), "users");
  EXPECT_EQ(back->meta.header().lane(), 3u);
  ASSERT_EQ(back->tensors.size(), 2u);
  EXPECT_EQ(back->tensors[1].buffer().view(), "ab");
}

// Hand-written so that no generated encoder's habits hide what the format allows.
std::string tensor_field(std::string_view content) {
  return std::string("\xc2\x3e") + static_cast<char>(content.size()) + std::string(content);
}

TEST(DecodeProto, ReadsAllThatTheFormatAllowsInsideOfATensor) {
  using namespace std::string_literals;
  const std::string data = "\x1a\x02"s + "ab";
  for (const std::string& content : {
           "\x08\x08\x12\x01\x02"s + data,              // packed
           "\x08\x08\x10\x02"s + data,                  // not packed
           data + "\x10\x02\x08\x08",                   // any order
           "\x08\x08\x10\x02\x1a\x01x"s + data,         // the last data counts
           "\x08\x01\x08\x08\x10\x02"s + data,          // the last type counts
           "\x08\x08\x10\x02\x7a\x01z"s + data,         // an unknown field
           "\x08\x08\x10\x02\x7b\x08\x05\x7c"s + data,  // an unknown group
           "\x08\x88\x00\x10\x82\x80\x00"s + data,      // long numbers
           "\x08\x08\x12\x01\x02\x12\x01\x01"s + data,  // extents are appended
       }) {
    const StatusOr<Message> back = decode(tensor_field(content));
    ASSERT_TRUE(back.ok()) << back.status() << testing::PrintToString(content);
    EXPECT_EQ(back->tensors[0].buffer().view(), "ab");
    v1::TensorMessage generated;
    ASSERT_TRUE(generated.ParseFromString(tensor_field(content)));
    EXPECT_TRUE(equal(*from_proto(generated.tensors(0)), back->tensors[0]));
  }
}

TEST(DecodeProto, KeepsFieldsFromTheFuture) {
  v1::TensorMessage proto = whole(sample_message());
  auto* unknown = proto.GetReflection()->MutableUnknownFields(&proto);
  unknown->AddVarint(900, 5);
  unknown->AddGroup(901)->AddFixed32(1, 7);
  unknown->AddFixed64(902, 7);
  const std::string bytes = proto.SerializeAsString();
  const StatusOr<Message> back = decode(bytes);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(joined(encode_proto(*back)), bytes);
}

TEST(DecodeProto, RefusesWhatDoesNotFit) {
  v1::TensorMessage proto;
  v1::Tensor* tensor = proto.add_tensors();
  EXPECT_EQ(message_of(decode(proto.SerializeAsString()).status()), "tensor 0: dtype 0 is unknown");
  tensor->set_dtype(v1::DTYPE_FLOAT32);
  tensor->add_shape(3);
  tensor->set_data("1234");
  EXPECT_EQ(message_of(decode(proto.SerializeAsString()).status()),
            "tensor 0: float32[3] needs 12 bytes, has 4");
  tensor->set_shape(0, 1);
  EXPECT_TRUE(decode(proto.SerializeAsString()).ok());
  tensor->set_dtype(static_cast<v1::DType>(11));
  EXPECT_FALSE(decode(proto.SerializeAsString()).ok());
}

TEST(DecodeProto, RefusesBrokenEncodings) {
  using namespace std::string_literals;
  for (const std::string& bytes : {
           "\xc2"s, "\xc2\x3e"s, "\xc2\x3e\x05"s,
           "\x00"s,                                              // field 0
           "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s,      // length 2^64 - 1
           "\xc2\x3e\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s,  // the same in a tensor
           "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s,  // eleven bytes
           "\xfb\x01"s, "\xfc\x01"s, "\xfb\x01\x84\x02"s,        // groups that do not close
           "\x0f"s, "\x0e"s,                                     // wire types 6 and 7
           "\x12\x02\xff\xff"s,                                  // a name that is not UTF-8
       }) {
    EXPECT_EQ(decode(bytes).status().code(), StatusCode::kInvalidArgument)
        << testing::PrintToString(bytes);
  }
}

TEST(DecodeProto, EveryCutIsRefused) {
  Message message;
  message.tensors.push_back(numbered(DType::kUInt64, {3, 5}));
  const std::string bytes = whole(message).SerializeAsString();
  for (size_t size = 1; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode(bytes.substr(0, size)).ok()) << size;
  }
}

TEST(DecodeProto, LimitsAreNamed) {
  const std::string bytes = whole(sample_message()).SerializeAsString();
  EXPECT_EQ(message_of(decode(bytes, {.tensors_max = 5}).status()),
            "message has more than 5 tensors");
  EXPECT_EQ(decode(bytes, {.meta_bytes_max = 10}).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(decode(bytes, {.payload_bytes_max = 1000}).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(DecodeProto, AnEmptyBodyIsAnEmptyMessage) {
  const StatusOr<Message> back = decode_proto({}, nullptr);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(equal(*back, Message{}));
}

TEST(VoidMessage, IsASubsetOfTensorMessage) {
  EXPECT_EQ(static_cast<int>(v1::VoidMessage::kStatusFieldNumber),
            static_cast<int>(v1::TensorMessage::kStatusFieldNumber));
}

TEST(TensorMessage, PutsTensorsBehindEveryOtherField) {
  const auto* descriptor = v1::TensorMessage::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    EXPECT_LE(descriptor->field(i)->number(), v1::TensorMessage::kTensorsFieldNumber);
  }
}

}  // namespace
}  // namespace starling
