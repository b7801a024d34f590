#include "wire/message.h"

#include <gtest/gtest.h>

#include "wire/enums.h"
#include "wire/wire_testing.h"

namespace starling {
namespace {

TEST(StatusProto, RoundTripsEveryCode) {
  for (int code = 1; code <= 16; ++code) {
    const Status status(static_cast<StatusCode>(code), "ps-3: table users is full");
    v1::Status proto;
    to_proto(status, &proto);
    EXPECT_EQ(from_proto(proto), status);
  }
}

TEST(Enums, ANumberThatTheEnumDoesNotHaveIsNamed) {
  EXPECT_TRUE(check_enum(v1::NAN_POLICY_SKIP_ROW, "t.nan_policy").ok());
  const Status status = check_enum(static_cast<v1::NanPolicy>(7), "t.nan_policy");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(message_of(status), "t.nan_policy is 7, which NanPolicy does not have");
  EXPECT_FALSE(check_enum(static_cast<v1::NanPolicy>(-1), "t.nan_policy").ok());
}

TEST(StatusProto, OkIsEmpty) {
  v1::Status proto;
  proto.set_code(3);
  proto.set_reason(v1::REASON_FENCED);
  to_proto(absl::OkStatus(), &proto);
  EXPECT_EQ(proto.ByteSizeLong(), 0u);
  EXPECT_TRUE(from_proto(proto).ok());
}

TEST(StatusProto, AnUnknownCodeBecomesUnknown) {
  v1::Status proto;
  proto.set_code(17);
  proto.set_message("from the future");
  EXPECT_EQ(from_proto(proto), Status(StatusCode::kUnknown, "from the future"));
  proto.set_code(0xffffffff);
  EXPECT_EQ(from_proto(proto).code(), StatusCode::kUnknown);
}

// proto3 parsers refuse strings that are not UTF-8, so such a message would lose the whole reply.
TEST(StatusProto, ForeignBytesInTheMessageDoNotBreakTheReply) {
  const Message reply =
      status_reply(Status(StatusCode::kNotFound, "table \xff\xfe\xc3( and \xc3\xa9"));
  v1::TensorMessage parsed;
  ASSERT_TRUE(parsed.ParseFromString(reply.meta.SerializeAsString()));
  EXPECT_EQ(parsed.status().message(),
            "table ?"
            "?"
            "?( and \xc3\xa9");
}

TEST(StatusProto, KeepsWellFormedUtf8) {
  const std::string text = "h\xc3\xa9llo \xe2\x82\xac \xf0\x9f\x90\xa6";
  EXPECT_EQ(status_reply(Status(StatusCode::kAborted, text)).meta.status().message(), text);
}

TEST(StatusProto, ReplacesEverySortOfBadUtf8) {
  // Overlong, surrogate, beyond U+10FFFF, cut short, stray continuation.
  for (const std::string& bad :
       {std::string("\xc0\xaf"), std::string("\xed\xa0\x80"), std::string("\xf4\x90\x80\x80"),
        std::string("\xe2\x82"), std::string("\x80"), std::string("\xf8")}) {
    const Message reply = status_reply(Status(StatusCode::kAborted, bad));
    EXPECT_EQ(reply.meta.status().message(), std::string(bad.size(), '?'));
  }
}

TEST(StatusOf, AReplyWithoutStatusEndedWell) {
  EXPECT_TRUE(status_of(Message{}).ok());
  EXPECT_EQ(status_of(status_reply(not_found("x"))).code(), StatusCode::kNotFound);
}

TEST(TensorProto, RoundTrips) {
  for (const Tensor& tensor : wire_testing::sample_message().tensors) {
    v1::Tensor proto;
    to_proto(tensor, &proto);
    const StatusOr<Tensor> back = from_proto(proto);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(wire_testing::equal(*back, tensor)) << tensor.describe();
  }
}

TEST(TensorProto, RefusesUnknownTypesAndShapesThatDoNotFit) {
  v1::Tensor proto;
  EXPECT_EQ(from_proto(proto).status().code(), StatusCode::kInvalidArgument);
  proto.set_dtype(static_cast<v1::DType>(267));  // 267 % 256 == 11
  EXPECT_EQ(from_proto(proto).status().code(), StatusCode::kInvalidArgument);
  proto.set_dtype(v1::DTYPE_INT32);
  proto.set_data("12345");
  EXPECT_EQ(from_proto(proto).status().code(), StatusCode::kInvalidArgument);
  proto.set_data("1234");
  EXPECT_TRUE(from_proto(proto).ok());
}

TEST(DTypeProto, HasTheNumbersOfBase) {
  EXPECT_EQ(v1::DType_MAX + 1, kDTypes);
  for (int i = 1; i < kDTypes; ++i) {
    std::string name = v1::DType_Name(static_cast<v1::DType>(i));
    std::transform(name.begin(), name.end(), name.begin(), ::tolower);
    EXPECT_EQ(name, "dtype_" + std::string(dtype_name(static_cast<DType>(i))));
  }
}

}  // namespace
}  // namespace starling
