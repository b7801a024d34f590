#include "wire/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling {
namespace {

Message reply_of_five_rows() {
  Message reply;
  reply.tensors.push_back(Tensor::of<float>({2, 2}, std::vector<float>{0, 1, 2, 3}));
  reply.tensors.push_back(Tensor::of<float>({3, 1}, std::vector<float>{4, 5, 6}));
  return reply;
}

std::vector<float> rows_of(uint64_t begin, uint64_t rows_max) {
  v1::RowRange range;
  range.set_begin(begin);
  range.set_rows_max(rows_max);
  Message reply = reply_of_five_rows();
  const StatusOr<uint64_t> total = cut_rows(range, reply);
  EXPECT_TRUE(total.ok()) << total.status();
  EXPECT_EQ(*total, 5U);
  std::vector<float> out;
  for (const Tensor& tensor : reply.tensors) {
    const auto values = tensor.values<float>();
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

TEST(Rows, AreCountedThroughAllTensors) {
  EXPECT_THAT(rows_of(0, 0), testing::ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(rows_of(1, 2), testing::ElementsAre(2, 3, 4));
  EXPECT_THAT(rows_of(3, 0), testing::ElementsAre(5, 6));
  EXPECT_THAT(rows_of(9, 4), testing::IsEmpty());
}

TEST(Rows, ARangeThatEndsBehindTheLastNumberEndsThere) {
  EXPECT_THAT(rows_of(4, UINT64_MAX), testing::ElementsAre(6));
  EXPECT_THAT(rows_of(UINT64_MAX, UINT64_MAX), testing::IsEmpty());
}

TEST(Rows, IdsStandBehindThoseOfTheTensors) {
  const auto ids_of = [](uint64_t begin, uint64_t rows_max) {
    v1::RowRange range;
    range.set_begin(begin);
    range.set_rows_max(rows_max);
    google::protobuf::RepeatedPtrField<std::string> ids;
    for (const char* id : {"a", "b", "c"}) ids.Add(id);
    EXPECT_EQ(cut_ids(range, 5, ids), 8U);
    return std::vector<std::string>(ids.begin(), ids.end());
  };
  EXPECT_THAT(ids_of(0, 0), testing::ElementsAre("a", "b", "c"));
  EXPECT_THAT(ids_of(0, 5), testing::IsEmpty());
  EXPECT_THAT(ids_of(4, 2), testing::ElementsAre("a"));
  EXPECT_THAT(ids_of(6, 1), testing::ElementsAre("b"));
  EXPECT_THAT(ids_of(7, UINT64_MAX), testing::ElementsAre("c"));
  EXPECT_THAT(ids_of(8, 4), testing::IsEmpty());
}

}  // namespace
}  // namespace starling
