#include "store/block_stream.h"

#include <gmock/gmock.h>

#include "store/memory/file_system.h"
#include "store/test_tools.h"

namespace starling {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kSmallBlock = 64;
constexpr size_t kHead = 24;
constexpr size_t kBlock = 16 + kSmallBlock;

std::string packed(const std::string& text, uint32_t block_bytes = kSmallBlock) {
  MemoryFileSystem fs;
  auto target = fs.open_write("mem://x/file", Existing::kReplace);
  auto writer = write_blocks(*std::move(target), block_bytes);
  EXPECT_OK(writer);
  EXPECT_OK((*writer)->write(bytes_of(text)));
  EXPECT_OK((*writer)->publish());
  return contents(fs, "mem://x/file");
}

StatusOr<std::string> unpacked(const std::string& bytes, size_t step = 1 << 20) {
  const auto reader = read_blocks(std::make_unique<StringReader>(bytes, step, "test://file"));
  return read_all(*reader, 1 << 30);
}

TEST(BlockStream, WhatIsWrittenComesBack) {
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{10'000}}) {
    const std::string text = random_bytes(bytes, bytes);
    EXPECT_EQ(*unpacked(packed(text)), text);
    EXPECT_EQ(*unpacked(packed(text), 7), text);
  }
  const std::string large = random_bytes(5 << 20, 1);
  EXPECT_TRUE(*unpacked(packed(large, kBlockBytesDefault)) == large);
}

TEST(BlockStream, ReadsAndWritesOfAnySizeGiveTheSame) {
  const std::string text = random_bytes(1000, 3);
  for (const size_t piece : {size_t{1}, size_t{63}, size_t{64}, size_t{100}, size_t{999}}) {
    MemoryFileSystem fs;
    auto writer = write_blocks(*fs.open_write("mem://x/file", Existing::kReplace), kSmallBlock);
    ASSERT_OK(writer);
    for (size_t at = 0; at < text.size(); at += piece) {
      ASSERT_OK((*writer)->write(bytes_of(std::string_view(text).substr(at, piece))));
    }
    ASSERT_OK((*writer)->publish());
    EXPECT_EQ(contents(fs, "mem://x/file"), packed(text)) << piece;
    const auto reader = read_blocks(std::make_unique<StringReader>(packed(text)));
    std::string back;
    std::string some(piece, '\0');
    while (true) {
      const auto got = reader->read(std::as_writable_bytes(std::span(some)));
      ASSERT_OK(got);
      if (*got == 0) break;
      back.append(some, 0, *got);
    }
    EXPECT_EQ(back, text) << piece;
  }
}

TEST(BlockStream, EveryFlippedBitIsDataLoss) {
  const std::string whole = packed(random_bytes(200, 1));
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_CODE(unpacked(damaged), kDataLoss) << "bit " << bit;
  }
}

TEST(BlockStream, EveryCutIsDataLoss) {
  const std::string whole = packed(random_bytes(200, 1));
  for (size_t cut = 0; cut < whole.size(); ++cut)
    EXPECT_CODE(unpacked(whole.substr(0, cut)), kDataLoss) << cut;
}

TEST(BlockStream, AMissingBlockIsDataLossAtItsOffset) {
  std::string whole = packed(random_bytes(5 * kSmallBlock, 1));
  whole.erase(kHead + kBlock, kBlock);
  const auto back = unpacked(whole);
  EXPECT_CODE(back, kDataLoss);
  EXPECT_THAT(test_status(back),
              HasSubstr(fmt::format("test://file: block at {}", kHead + kBlock)));
}

TEST(BlockStream, SwappedAndDoubledBlocksAreDataLoss) {
  const std::string whole = packed(random_bytes(5 * kSmallBlock, 1));
  const std::string first = whole.substr(kHead, kBlock);
  const std::string second = whole.substr(kHead + kBlock, kBlock);
  const std::string rest = whole.substr(kHead + 2 * kBlock);
  EXPECT_CODE(unpacked(whole.substr(0, kHead) + second + first + rest), kDataLoss);
  EXPECT_CODE(unpacked(whole.substr(0, kHead) + first + first + second + rest), kDataLoss);
}

TEST(BlockStream, BytesAfterTheEndAreDataLoss) {
  EXPECT_CODE(unpacked(packed("text") + "x"), kDataLoss);
}

TEST(BlockStream, AnotherFileIsDataLoss) {
  EXPECT_CODE(unpacked("this is a text file, longer than the head of a block stream"), kDataLoss);
  EXPECT_CODE(unpacked(""), kDataLoss);
}

TEST(BlockStream, BlockSizesOutOfRangeAreRefused) {
  MemoryFileSystem fs;
  EXPECT_CODE(write_blocks(*fs.open_write("mem://x/f", Existing::kReplace), 63), kInvalidArgument);
  EXPECT_CODE(write_blocks(*fs.open_write("mem://x/f", Existing::kReplace), kBlockBytesMax + 1),
              kInvalidArgument);
}

// Every byte of the format, so that a change is seen: docs/format/block_stream.md.
TEST(BlockStream, TheBytesAreThoseOfTheFormat) {
  const std::string whole = packed("abc");
  ASSERT_EQ(whole.size(), kHead + 16 + 3 + 16 + 8);
  EXPECT_EQ(whole.substr(0, 16), std::string("STLBLK01\x40\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(whole.substr(24, 8), std::string("\x03\0\0\0\x01\0\0\0", 8));
  EXPECT_EQ(whole.substr(40, 3), "abc");
  EXPECT_EQ(whole.substr(43, 8), std::string("\x08\0\0\0\x02\0\0\0", 8));
  EXPECT_EQ(whole.substr(59, 8), std::string("\x03\0\0\0\0\0\0\0", 8));
  std::string hex;
  for (const size_t at : {size_t{16}, size_t{32}, size_t{51}}) {
    for (size_t i = 0; i < 8; ++i)
      hex += fmt::format("{:02x}", static_cast<unsigned char>(whole[at + i]));
    hex += " ";
  }
  EXPECT_EQ(hex, "3b1cb811f3b9a6d5 2acd78ece6cc79ea acb5f22b3b2dfacc ");
}

}  // namespace
}  // namespace starling
