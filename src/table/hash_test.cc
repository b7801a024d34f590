#include "table/hash.h"

#include <gtest/gtest.h>

#include "table/table_model.h"

namespace starling {
namespace {

// Stored images and the placement of every job depend on these numbers.
TEST(Hash, TheMixIsFrozen) {
  EXPECT_EQ(mixed_hash(Key{0}), 0xe220a8397b1dcdafu);
  EXPECT_EQ(mixed_hash(Key{1}), 0x910a2dec89025cc1u);
  EXPECT_EQ(mixed_hash(Key{0xdeadbeef}), 0x4adfb90f68c9eb9bu);
  EXPECT_EQ(mixed_hash(Key{UINT64_MAX}), 0xe4d971771b652c20u);
  EXPECT_EQ(name_hash("users"), 0x8f7cd0be08b0a269u);
}

TEST(Hash, BucketTagAndSlotAreCutFromFixedBits) {
  const uint64_t hash = 0xabcde00012345678;
  EXPECT_EQ(bucket_bits(hash), 0xabcu);
  EXPECT_EQ(tag_bits(hash), 0xde);
  EXPECT_EQ(slot_bits(hash, 16), 0x1u);
  EXPECT_EQ(slot_bits(0xffffffffffffffff, 7), 6u);
  EXPECT_EQ(slot_bits(0, 7), 0u);
}

TEST(Hash, ARangeIsCutIntoEqualBuckets) {
  const Placement placement{1000, 1000 + 4096 * 10};
  EXPECT_FALSE(placement.holds(Key{999}));
  EXPECT_TRUE(placement.holds(Key{1000}));
  EXPECT_FALSE(placement.holds(Key{1000 + 4096 * 10}));
  EXPECT_EQ(placement.bucket(Key{1000}, 0), 0u);
  EXPECT_EQ(placement.bucket(Key{1009}, 0), 0u);
  EXPECT_EQ(placement.bucket(Key{1010}, 0), 1u);
  EXPECT_EQ(placement.bucket(Key{1000 + 4096 * 10 - 1}, 0), 4095u);
  const Placement whole{0, UINT64_MAX};
  EXPECT_EQ(whole.bucket(Key{UINT64_MAX - 1}, 0), 4095u);
}

TEST(Hash, EveryKeyHasAHashOfItsOwn) {
  for (const uint64_t key : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 63, UINT64_MAX}) {
    EXPECT_EQ(value(key_with_hash(mixed_hash(Key{key}))), key);
  }
}

}  // namespace
}  // namespace starling
