#include "base/tensor.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

TEST(Tensor, BytesFollowFromTypeAndShape) {
  EXPECT_EQ(*tensor_bytes(DType::kFloat32, std::vector<int64_t>{3, 5}), 60u);
  EXPECT_EQ(*tensor_bytes(DType::kBFloat16, std::vector<int64_t>{}), 2u);  // a scalar
  EXPECT_EQ(*tensor_bytes(DType::kUInt64, std::vector<int64_t>{0, 7}), 0u);
}

TEST(Tensor, IllegalShapesAreRefused) {
  auto code = [](DType dtype, std::vector<int64_t> shape) {
    return tensor_bytes(dtype, shape).status().code();
  };
  EXPECT_EQ(code(DType::kFloat32, {-1}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(DType::kInvalid, {1}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(static_cast<DType>(77), {1}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(DType::kFloat32, {1, 1, 1, 1, 1, 1, 1, 1, 1}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(DType::kFloat32, {int64_t{1} << 40, int64_t{1} << 40}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code(DType::kFloat32, {0, int64_t{1} << 40, int64_t{1} << 40}),
            StatusCode::kInvalidArgument);
}

TEST(Tensor, BytesMustFillTheShape) {
  EXPECT_TRUE(Tensor::make(DType::kInt32, {2}, Buffer::allocate(8)).ok());
  const auto bad = Tensor::make(DType::kInt32, {2}, Buffer::allocate(9));
  EXPECT_EQ(message_of(bad.status()), "tensor int32[2] needs 8 bytes, has 9");
}

TEST(Tensor, ValuesRoundTrip) {
  const Tensor tensor = Tensor::of<float>({2, 2}, std::vector<float>{1, 2, 3, 4});
  EXPECT_EQ(tensor.describe(), "float32[2, 2]");
  EXPECT_EQ(tensor.values<float>()[3], 4.0f);
  EXPECT_EQ(tensor.elements(), 4);
  EXPECT_DEATH((void)tensor.values<int32_t>(), "another type");
}

TEST(Tensor, ExpectNamesWhatIsWrong) {
  const Tensor tensor = Tensor::vector_of<int64_t>({1, 2});
  EXPECT_TRUE(tensor.expect("keys", DType::kInt64, 1).ok());
  EXPECT_EQ(message_of(tensor.expect("keys", DType::kUInt64, 1)),
            "keys: dtype is int64, expected uint64");
  EXPECT_EQ(message_of(tensor.expect("keys", DType::kInt64, 2)),
            "keys: shape has 1 extents, expected 2");
}

}  // namespace
}  // namespace starling
