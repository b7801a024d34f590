#include "base/buffer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "base/sanitized.h"

namespace starling {
namespace {

bool aligned(const Buffer& buffer) {
  return reinterpret_cast<uintptr_t>(buffer.data()) % kBufferAlignment == 0;
}

long page_faults() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

TEST(Buffer, SlicesShareTheBytesAndKeepThemAlive) {
  bool released = false;
  char bytes[] = "starling";
  Buffer slice;
  {
    Buffer whole = Buffer::adopt(bytes, 8, [&] { released = true; });
    slice = whole.slice(4, 4);
  }
  EXPECT_FALSE(released);
  EXPECT_EQ(slice.view(), "ling");
  EXPECT_EQ(slice.data(), reinterpret_cast<std::byte*>(bytes) + 4);
  slice = Buffer();
  EXPECT_TRUE(released);
}

TEST(Buffer, ASliceOutsideIsABug) {
  const Buffer buffer = Buffer::copy_of("abc");
  EXPECT_DEATH((void)buffer.slice(2, 2), "slice outside");
  EXPECT_DEATH((void)buffer.slice(4, 0), "slice outside");
  EXPECT_DEATH((void)buffer.slice(1, SIZE_MAX), "slice outside");
}

TEST(Buffer, EveryAllocationIsAligned) {
  BufferPool pool;
  for (const size_t bytes : {1, 63, 64, 65, 4097, 40000, 3 << 20}) {
    EXPECT_TRUE(aligned(Buffer::allocate(bytes))) << bytes;
    EXPECT_TRUE(aligned(pool.allocate(bytes))) << bytes;
    EXPECT_EQ(pool.allocate(bytes).size(), bytes);
  }
}

TEST(BufferPool, ReusesABlockOfTheSameSize) {
  BufferPool pool;
  const std::byte* first = pool.allocate(100000).data();
  EXPECT_EQ(pool.allocate(100000).data(), first);
  EXPECT_EQ(pool.stats().made, 1u);
  EXPECT_EQ(pool.stats().reused, 1u);
  EXPECT_EQ(pool.stats().lent_bytes, 0u);
}

TEST(BufferPool, ASteadyStateMakesNoPageFaults) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's shadow memory makes page faults of its own";
  BufferPool pool;
  constexpr size_t kBytes = size_t{8} << 20;
  { Buffer warm = pool.allocate(kBytes); }
  const long before = page_faults();
  for (int i = 0; i < 100; ++i) {
    Buffer buffer = pool.allocate(kBytes);
    std::memset(buffer.mutable_data(), i, buffer.size());
  }
  EXPECT_LT(page_faults() - before, 16);  // 2,048 pages each time without the pool
}

TEST(BufferPool, ANewBlockIsAlreadyPresent) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's shadow memory makes page faults of its own";
  BufferPool pool;
  Buffer buffer = pool.allocate(size_t{1} << 20);
  const long before = page_faults();
  std::memset(buffer.mutable_data(), 1, buffer.size());
  EXPECT_LT(page_faults() - before, 8);
}

TEST(BufferPool, SmallBlocksShareAHugePage) {
  BufferPool pool;
  constexpr size_t kBytes = size_t{256} << 10;
  std::vector<Buffer> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(pool.allocate(kBytes));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks[0].data()) % (size_t{2} << 20), 0u);
  for (size_t i = 1; i < blocks.size(); ++i)
    EXPECT_EQ(blocks[i].data(), blocks[i - 1].data() + kBytes);
}

TEST(BufferPool, BlocksDoNotOverlapAcrossRuns) {
  BufferPool pool;
  std::vector<Buffer> blocks;
  for (size_t i = 0; i < 40; ++i) {  // over several runs of 8 MB, of which each leaves a rest
    blocks.push_back(pool.allocate(size_t{300'000} + 30'000 * i));
    std::memset(blocks[i].mutable_data(), static_cast<int>(i), blocks[i].size());
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto mine = [i](std::byte b) { return b == std::byte(i); };
    EXPECT_TRUE(std::ranges::all_of(blocks[i].bytes(), mine)) << i;
  }
}

TEST(BufferPool, GivesBackWhatIsOverItsBound) {
  BufferPool pool({.block_bytes_min = 4096, .cached_bytes_max = 100000});
  { Buffer a = pool.allocate(80000), b = pool.allocate(80000); }
  EXPECT_LE(pool.stats().cached_bytes, 100000u);
  EXPECT_GT(pool.stats().cached_bytes, 0u);
}

TEST(BufferPool, BlocksOutliveThePool) {
  Buffer buffer;
  {
    BufferPool pool;
    buffer = pool.allocate(1 << 20);
  }
  std::memset(buffer.mutable_data(), 7, buffer.size());
  EXPECT_EQ(buffer.data()[buffer.size() - 1], std::byte{7});
}

TEST(BufferPool, BlocksMayBeDroppedOnOtherThreads) {
  BufferPool pool;
  for (int i = 0; i < 50; ++i) {
    Buffer buffer = pool.allocate(50000 + 1000 * static_cast<size_t>(i));
    buffer.mutable_data()[0] = std::byte{1};
    std::thread([buffer = std::move(buffer)] {}).join();
  }
  EXPECT_EQ(pool.stats().lent_bytes, 0u);
}

TEST(BufferPool, WastesAtMostAQuarterOfABlock) {
  BufferPool pool;
  for (size_t bytes = 33000; bytes < (size_t{64} << 20); bytes = bytes * 9 / 8) {
    Buffer buffer = pool.allocate(bytes);
    EXPECT_LE(pool.stats().lent_bytes, bytes + bytes / 4 + 4096) << bytes;
    EXPECT_GE(pool.stats().lent_bytes, bytes);
  }
}

}  // namespace
}  // namespace starling
