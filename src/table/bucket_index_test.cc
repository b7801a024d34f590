#include "table/bucket_index.h"

#include <gtest/gtest.h>

#include <set>

#include "table/table_model.h"

namespace starling {
namespace {

constexpr size_t kStride = 16;

class BucketIndexTest : public testing::Test {
 protected:
  RowNumber add(Key key, uint32_t bucket = 3) {
    EXPECT_TRUE(rows_.reserve(1).ok());
    const RowNumber row = rows_.take();
    std::memcpy(rows_.at(row), &key, sizeof key);
    set_stamp(rows_.at(row), 1);
    index_.insert(bucket, mixed_hash(key), row);
    return row;
  }

  RowSlabs rows_{kStride};
  BucketIndex index_{rows_};
};

TEST_F(BucketIndexTest, FindsWhatWasInsertedThroughAllGrowth) {
  std::map<Key, RowNumber> expected;
  for (uint64_t i = 0; i < 20000; ++i) expected[Key{i}] = add(Key{i});
  EXPECT_EQ(index_.rows_in(3), 20000u);
  for (const auto& [key, row] : expected) ASSERT_EQ(index_.find(3, mixed_hash(key), key), row);
  EXPECT_EQ(index_.find(3, mixed_hash(Key{20000}), Key{20000}), kNoRow);
  EXPECT_EQ(index_.find(4, mixed_hash(Key{1}), Key{1}), kNoRow);
}

TEST_F(BucketIndexTest, KeysOfOneGroupAndOneTagLiveTogether) {
  // The same bucket, tag and slot bits: they overflow into the groups behind, and wrap around.
  std::vector<Key> keys;
  for (uint64_t i = 0; i < 200; ++i)
    keys.push_back(key_with_hash((uint64_t{0xffe} << 52) | (i << 33) | 0xffffffff));
  std::vector<RowNumber> rows;
  for (const Key key : keys) rows.push_back(add(key, 0xffe));
  for (size_t i = 0; i < keys.size(); ++i)
    ASSERT_EQ(index_.find(0xffe, mixed_hash(keys[i]), keys[i]), rows[i]);
  for (size_t i = 0; i < keys.size(); i += 2) index_.erase(0xffe, mixed_hash(keys[i]), rows[i]);
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(index_.find(0xffe, mixed_hash(keys[i]), keys[i]), i % 2 == 0 ? kNoRow : rows[i]);
  }
}

TEST_F(BucketIndexTest, ShrinkAndDropGiveMemoryBack) {
  const size_t empty = index_.bytes();
  std::vector<RowNumber> rows;
  for (uint64_t i = 0; i < 400000; ++i) rows.push_back(add(Key{i}));
  const size_t full = index_.bytes();
  EXPECT_GT(full, empty + 400000 * 5);
  for (uint64_t i = 1000; i < 400000; ++i) index_.erase(3, mixed_hash(Key{i}), rows[i]);
  index_.shrink(3);
  EXPECT_LT(index_.bytes(), empty + (size_t{4} << 20) + kHugePageBytes);
  for (uint64_t i = 0; i < 1000; ++i)
    ASSERT_EQ(index_.find(3, mixed_hash(Key{i}), Key{i}), rows[i]);
  index_.drop(3);
  EXPECT_EQ(index_.rows_in(3), 0u);
  EXPECT_EQ(index_.find(3, mixed_hash(Key{5}), Key{5}), kNoRow);
}

TEST(RowSlabs, NumbersAreReusedAndMemoryIsZeroed) {
  RowSlabs rows(kStride);
  ASSERT_TRUE(rows.reserve(10).ok());
  std::set<RowNumber> taken;
  for (int i = 0; i < 10; ++i) {
    const RowNumber row = rows.take();
    EXPECT_NE(row, kNoRow);
    EXPECT_TRUE(taken.insert(row).second);
    std::memset(rows.at(row), 0xff, kStride);
  }
  rows.give(4);
  rows.give(7);
  EXPECT_EQ(rows.free_list(), (std::vector<RowNumber>{4, 7}));
  EXPECT_EQ(rows.live_rows(), 8u);
  const RowNumber again = rows.take();
  EXPECT_EQ(again, 7u);
  EXPECT_EQ(stamp_of(rows.at(again)), 0u);
  EXPECT_EQ(key_of(rows.at(again)), Key{0});
}

TEST(RowSlabs, TrimGivesChunksBack) {
  RowSlabs rows(1024);
  ASSERT_TRUE(rows.reserve(40000).ok());
  for (int i = 0; i < 40000; ++i) std::memset(rows.at(rows.take()), 0xff, 1024);
  const size_t full = rows.bytes();
  EXPECT_GE(full, size_t{40000} * 1024);
  rows.trim(11, {3});
  EXPECT_EQ(rows.end(), 11u);
  EXPECT_LE(rows.bytes(), full / 10);
  ASSERT_TRUE(rows.reserve(5000).ok());
  EXPECT_EQ(rows.take(), 3u);
  for (int i = 0; i < 4000; ++i) {
    const std::byte* row = rows.at(rows.take());
    for (size_t b = 0; b < 1024; b += 100) ASSERT_EQ(row[b], std::byte{0});
  }
}

TEST(RowSlabs, TooManyRowsAreRefused) {
  RowSlabs rows(kStride);
  EXPECT_EQ(rows.reserve(uint64_t{1} << 32).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace starling
