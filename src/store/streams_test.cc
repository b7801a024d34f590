#include "store/streams.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "store/local/file_system.h"
#include "store/memory/file_system.h"
#include "store/test_tools.h"

namespace starling {
namespace {

using ::testing::HasSubstr;

std::string half_compressible(size_t bytes) {
  std::string text;
  for (uint64_t i = 0; text.size() < bytes; ++i) text += fmt::format("{}\t{}\n", i, mix64(i));
  text.resize(bytes);
  return text;
}

class StreamsTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::string url(const std::string& name) const { return "mem://x/" + name + GetParam(); }
  std::string packed(const std::string& text) {
    auto writer = open_compressed(fs_, url("packed"));
    EXPECT_OK(writer);
    EXPECT_OK((*writer)->write(bytes_of(text)));
    EXPECT_OK((*writer)->publish());
    return contents(fs_, url("packed"));
  }
  StatusOr<std::string> unpacked(const std::string& bytes, size_t step = 1 << 20) {
    const auto reader = decompress(std::make_unique<StringReader>(bytes, step, url("source")),
                                   Compression::kBySuffix);
    return read_all(*reader, 1 << 30);
  }
  MemoryFileSystem fs_;
};

INSTANTIATE_TEST_SUITE_P(Suffix, StreamsTest, ::testing::Values(".gz", ".zst"));

TEST_P(StreamsTest, WhatIsCompressedComesBack) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{100'000}, size_t{3'000'001}}) {
    const std::string text = half_compressible(bytes);
    const std::string small = packed(text);
    const auto back = unpacked(small);
    ASSERT_OK(back);
    EXPECT_TRUE(*back == text) << bytes;
    if (bytes > 1000) {
      EXPECT_LT(small.size(), text.size());
    }
  }
}

TEST_P(StreamsTest, AByteAtATimeGivesTheSame) {
  const std::string text = half_compressible(20'000);
  EXPECT_TRUE(*unpacked(packed(text), 1) == text);
}

TEST_P(StreamsTest, SmallReadsGiveTheSame) {
  const std::string text = half_compressible(300'000);
  const auto reader = decompress(std::make_unique<StringReader>(packed(text), 1000, url("s")),
                                 Compression::kBySuffix);
  std::string back;
  std::array<std::byte, 777> some{};
  while (true) {
    const auto got = reader->read(some);
    ASSERT_OK(got);
    if (*got == 0) break;
    back.append(reinterpret_cast<const char*>(some.data()), *got);
  }
  EXPECT_TRUE(back == text);
}

TEST_P(StreamsTest, ConcatenatedStreamsReadAsOne) {
  const std::string a = half_compressible(50'000);
  const std::string joined = packed(a) + packed("") + packed("tail");
  const auto back = unpacked(joined);
  ASSERT_OK(back);
  EXPECT_TRUE(*back == a + "tail");
}

TEST_P(StreamsTest, EveryCutIsDataLoss) {
  const std::string small = packed(half_compressible(2'000));
  for (size_t cut = 0; cut < small.size(); ++cut) {
    const auto back = unpacked(small.substr(0, cut));
    EXPECT_CODE(back, kDataLoss) << cut;
    EXPECT_THAT(test_status(back), HasSubstr(url("source")));
  }
}

TEST_P(StreamsTest, ACutInASecondStreamIsDataLoss) {
  const std::string second = packed("second");
  EXPECT_CODE(unpacked(packed("first") + second.substr(0, second.size() - 1)), kDataLoss);
}

TEST_P(StreamsTest, FlippedBitsNeverGiveOtherBytes) {
  const std::string text = half_compressible(3'000);
  const std::string small = packed(text);
  int refused = 0;
  for (size_t i = 0; i < small.size() * 8; i += 3) {
    std::string damaged = small;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ (1 << (i % 8)));
    const auto back = unpacked(damaged);
    if (back.ok()) {
      EXPECT_TRUE(*back == text) << "bit "
                                 << i;  // bits of the head that mean nothing, such as gzip's time
    } else {
      ++refused;
      EXPECT_NE(back.status().code(), StatusCode::kInternal);
    }
  }
  EXPECT_GT(refused, 100);
}

TEST_P(StreamsTest, GarbageIsDataLoss) { EXPECT_CODE(unpacked(random_bytes(1000, 1)), kDataLoss); }

TEST_P(StreamsTest, ALevelOutOfRangeIsRefused) {
  EXPECT_CODE(open_compressed(fs_, url("x"), {.compression = Compression::kBySuffix, .level = 20}),
              kInvalidArgument);
}

TEST_P(StreamsTest, TheCommandLineToolsAgree) {
  const std::string tool = GetParam() == ".gz" ? "gzip" : "zstd";
  if (std::system((tool + " --version > /dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << tool << " is not installed";
  TemporaryDirectory directory;
  LocalFileSystem local;
  const std::string plain = directory.path() + "/theirs";
  const std::string text = half_compressible(1'000'000);
  ASSERT_OK(write_file(local, plain, text));
  ASSERT_EQ(std::system(fmt::format("{} -q {}", tool, plain).c_str()), 0);
  auto reader = open_decompressed(local, plain + GetParam());
  ASSERT_OK(reader);
  EXPECT_TRUE(*read_all(**reader, 1 << 30) == text);
  const std::string ours = directory.path() + "/ours";
  ASSERT_OK(write_file(local, ours + GetParam(), packed(text)));
  ASSERT_EQ(std::system(fmt::format("{} -q -d {}", tool, ours + GetParam()).c_str()), 0);
  EXPECT_TRUE(contents(local, ours) == text);
}

TEST(ReadAll, GivesAllOrSaysThatItIsTooMuch) {
  for (const size_t bytes : {0, 1, 16'383, 16'384, 16'385, 16'386, 32'770, 100'000}) {
    const std::string text = half_compressible(bytes);
    for (const size_t step : {7'000, 1 << 20}) {
      for (const uint64_t bytes_max : {uint64_t{bytes}, uint64_t{bytes} + 1, UINT64_MAX - 1}) {
        StringReader reader(text, step);
        EXPECT_TRUE(*read_all(reader, bytes_max) == text) << bytes << " by " << step;
      }
      if (bytes == 0) continue;
      StringReader reader(text, step);
      EXPECT_CODE(read_all(reader, bytes - 1), kResourceExhausted);
    }
  }
}

TEST(Streams, OtherSuffixesArePlain) {
  MemoryFileSystem fs;
  ASSERT_OK(write_file(fs, "mem://x/file.txt", "text"));
  auto reader = open_decompressed(fs, "mem://x/file.txt");
  ASSERT_OK(reader);
  EXPECT_EQ(*read_all(**reader, 100), "text");
  auto forced = open_decompressed(fs, "mem://x/file.txt", Compression::kGzip);
  ASSERT_OK(forced);
  EXPECT_CODE(read_all(**forced, 100), kDataLoss);
}

TEST(Streams, ZerosAfterAGzipStreamArePadding) {
  MemoryFileSystem fs;
  auto writer = open_compressed(fs, "mem://x/a.gz");
  ASSERT_OK(writer);
  ASSERT_OK((*writer)->write(bytes_of("text")));
  ASSERT_OK((*writer)->publish());
  const std::string padded = contents(fs, "mem://x/a.gz") + std::string(1000, '\0');
  const auto reader = decompress(std::make_unique<StringReader>(padded), Compression::kGzip);
  EXPECT_EQ(*read_all(*reader, 100), "text");
}

TEST(Streams, AZstdWindowLargerThanTheLimitIsRefused) {
  // A frame head that asks for a window of 2 GiB: magic, descriptor, window descriptor (exponent
  // 21, 10 + 21 bits).
  const std::string head("\x28\xb5\x2f\xfd\x00\xa8", 6);
  const auto reader =
      decompress(std::make_unique<StringReader>(head + std::string(100, '\0')), Compression::kZstd);
  EXPECT_CODE(read_all(*reader, 100), kResourceExhausted);
}

}  // namespace
}  // namespace starling
