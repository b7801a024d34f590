#include "ps/hot_keys.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace starling {
namespace {

constexpr size_t kEvery = 256;  // uses per sampled one

// Uses `key` as often as makes `samples` sampled uses.
void use(HotKeys& hot, uint64_t key, size_t samples) {
  const std::vector<Key> keys(samples * kEvery, static_cast<Key>(key));
  hot.count(keys);
}

TEST(HotKeys, FewKeysAreCountedExactly) {
  HotKeys hot;
  use(hot, 7, 3);
  use(hot, 9, 5);
  use(hot, 7, 4);
  const std::vector<HotKeys::Entry> top = hot.top(20);
  ASSERT_EQ(top.size(), 2u);
  EXPECT_EQ(value(top[0].key), 7u);
  EXPECT_EQ(top[0].uses, 7 * kEvery);
  EXPECT_EQ(value(top[1].key), 9u);
  EXPECT_EQ(top[1].uses, 5 * kEvery);
}

TEST(HotKeys, SamplingGoesThroughSmallBatches) {
  HotKeys hot;
  use(hot, 7, 4096 / kEvery);
  for (size_t i = 0; i < 2 * kEvery; ++i) hot.count(std::vector<Key>{static_cast<Key>(100 + i)});
  const std::vector<HotKeys::Entry> top = hot.top(20);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(value(top[0].key), 7u);
  EXPECT_EQ(value(top[1].key), 100u);
  EXPECT_EQ(top[1].uses, kEvery);
  EXPECT_EQ(value(top[2].key), 100 + kEvery);
}

TEST(HotKeys, HotKeysStandOutOfManyColdOnes) {
  HotKeys hot;
  Rng rng(1, 2, 3);
  constexpr uint64_t kHot = 10;
  for (size_t i = 0; i < 20'000; ++i) {
    use(hot, rng.below(2) == 0 ? rng.below(kHot) : kHot + rng.next_u64() / 2, 1);
  }
  const std::vector<HotKeys::Entry> top = hot.top(kHot);
  ASSERT_EQ(top.size(), kHot);
  for (const HotKeys::Entry& entry : top) {
    EXPECT_LT(value(entry.key), kHot);
    // Each had about 1000 sampled uses; one that came late may have inherited those of a cold key.
    EXPECT_GT(entry.uses, 800 * kEvery);
    EXPECT_LT(entry.uses, 1300 * kEvery);
  }
}

TEST(HotKeys, ANewKeyTakesTheLeastUsedCounter) {
  HotKeys hot;
  for (uint64_t key = 0; key < 512; ++key) use(hot, key, key == 300 ? 2 : 3);
  use(hot, 1000, 1);
  uint64_t uses = 0;
  for (const HotKeys::Entry& entry : hot.top(512)) {
    EXPECT_NE(value(entry.key), 300u);
    if (value(entry.key) == 1000) uses = entry.uses;
  }
  EXPECT_EQ(uses, 3 * kEvery);
}

}  // namespace
}  // namespace starling
