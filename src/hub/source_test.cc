#include "hub/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "store/file_systems.h"
#include "store/streams.h"

namespace starling {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SourceTest : public testing::Test {
 protected:
  SourceTest() : files_(FileSystems::standard({.incarnation = Incarnation{1}}, clock_)) {}

  void write(const std::string& path, const std::string& text) {
    const Status status = write_file(*files_, path, text);
    ASSERT_TRUE(status.ok()) << status;
  }
  std::vector<v1::WorkItem> list(const std::vector<std::string>& patterns) {
    const auto items = list_items(*files_, patterns, options_);
    EXPECT_TRUE(items.ok()) << items.status();
    return items.ok() ? *items : std::vector<v1::WorkItem>();
  }
  StatusOr<std::string> read(const v1::WorkItem& item) {
    STARLING_ASSIGN_OR_RETURN(const auto source, ItemSource::open(*files_, item, options_, clock_));
    std::string out;
    while (true) {
      STARLING_ASSIGN_OR_RETURN(const OwnedChunk chunk, source->next());
      if (chunk.chunk.bytes.empty()) return out;
      out += chunk.chunk.bytes;
    }
  }
  std::string read_all_items(const std::vector<v1::WorkItem>& items) {
    std::string out;
    for (const v1::WorkItem& item : items) {
      const auto text = read(item);
      EXPECT_TRUE(text.ok()) << text.status();
      if (text.ok()) out += *text;
    }
    return out;
  }

  RealClock clock_;
  std::unique_ptr<FileSystems> files_;
  SourceOptions options_;
};

std::string lines(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += std::string(i % 7, 'x') + std::to_string(i) + "\n";
  return out;
}

TEST_F(SourceTest, RangesOfAPlainFileHaveEveryLineOnceWhereverTheyAreCut) {
  for (const bool has_end : {true, false}) {
    std::string text = lines(100);
    if (!has_end) text.pop_back();
    write("mem://s/a", text);
    for (uint64_t bytes = 1; bytes < 60; bytes += 3) {
      options_.item_bytes = bytes;
      options_.chunk_bytes = 1 + bytes % 11;
      EXPECT_EQ(read_all_items(list({"mem://s/a"})), text) << "items of " << bytes;
    }
  }
}

TEST_F(SourceTest, CompressedFilesAreReadWhole) {
  const std::string text = lines(1000);
  for (const char* path : {"mem://s/a.gz", "mem://s/a.zst"}) {
    auto writer = open_compressed(*files_, path);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->write(bytes_of(text)).ok());
    ASSERT_TRUE((*writer)->publish().ok());
  }
  options_.item_bytes = 10;
  const auto items = list({"mem://s/a.*"});
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(read_all_items(items), text + text);
}

TEST_F(SourceTest, ATruncatedFileIsAnErrorAndNotAnEnd) {
  auto writer = open_compressed(*files_, "mem://s/a.gz");
  ASSERT_TRUE((*writer)->write(bytes_of(lines(1000))).ok());
  ASSERT_TRUE((*writer)->publish().ok());
  const auto bytes = read_file(*files_, "mem://s/a.gz");
  write("mem://s/a.gz", bytes->substr(0, bytes->size() / 2));
  EXPECT_EQ(read(list({"mem://s/a.gz"})[0]).status().code(), StatusCode::kDataLoss);
  // A plain file that has become shorter since the items were made.
  write("mem://s/b", lines(100));
  const auto items = list({"mem://s/b"});
  write("mem://s/b", lines(10));
  const auto read_again = read(items[0]);
  EXPECT_EQ(read_again.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(message_of(read_again.status())), HasSubstr("mem://s/b: the file has"));
}

TEST_F(SourceTest, AVanishedFileIsNamed) {
  write("mem://s/a", "1\n");
  const auto items = list({"mem://s/a"});
  ASSERT_TRUE(files_->remove("mem://s/a", Recursive::kNo).ok());
  const auto text = read(items[0]);
  EXPECT_EQ(text.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(message_of(text.status())), HasSubstr("mem://s/a"));
  EXPECT_EQ(list_items(*files_, {"mem://s/z*"}, options_).status().code(), StatusCode::kNotFound);
}

TEST_F(SourceTest, EmptyFilesHaveNoItemsAndOneLineIsOne) {
  write("mem://s/a", "");
  write("mem://s/b", "one");
  const auto items = list({"mem://s/*"});
  ASSERT_EQ(items.size(), 1U);
  EXPECT_EQ(items[0].item(), 0U);
  EXPECT_EQ(read_all_items(items), "one");
}

TEST_F(SourceTest, ALineAboveTheLimitIsRefused) {
  options_.record_bytes_max = 100;
  options_.chunk_bytes = 16;
  write("mem://s/a", "short\n" + std::string(200, 'x') + "\n");
  const auto text = read(list({"mem://s/a"})[0]);
  EXPECT_EQ(text.status().code(), StatusCode::kResourceExhausted) << text.status();
  EXPECT_THAT(std::string(message_of(text.status())), HasSubstr("mem://s/a"));
}

TEST_F(SourceTest, ALineAboveTheLimitIsSteppedOverWhereThatIsAllowed) {
  options_.record_bytes_max = 100;
  options_.chunk_bytes = 16;
  options_.skips_long = true;
  const std::string text = "short\n" + std::string(200, 'x') + "\nnext\n" + std::string(300, 'y');
  write("mem://s/a", text);
  const auto source = ItemSource::open(*files_, list({"mem://s/a"})[0], options_, clock_);
  std::string kept;
  std::vector<std::pair<uint64_t, uint64_t>> skipped;  // line, offset
  while (true) {
    const auto chunk = (*source)->next();
    ASSERT_TRUE(chunk.ok()) << chunk.status();
    if (chunk->is_end()) break;
    kept += chunk->chunk.bytes;
    if (!chunk->too_long.has_value()) continue;
    skipped.emplace_back(chunk->too_long->line, chunk->too_long->offset);
    EXPECT_THAT(chunk->too_long->reason, HasSubstr("line_bytes_max (100)"));
  }
  EXPECT_EQ(kept, "short\nnext\n");
  EXPECT_THAT(skipped, testing::ElementsAre(testing::Pair(2, 6), testing::Pair(4, 212)));
}

TEST_F(SourceTest, ALineOfAGigabyteIsRefusedByTheLimit) {
  options_.pipe_command = "head -c 1073741824 /dev/zero";
  write("mem://s/a", "1\n");
  const auto refused = read(list({"mem://s/a"})[0]);
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted) << refused.status();
  EXPECT_THAT(std::string(message_of(refused.status())), HasSubstr("line_bytes_max (67108864)"));
}

// Each part of a file that is one long line used to read on to the end of the file.
TEST_F(SourceTest, APartWithoutTheStartOfALineReadsNoFurtherThanItself) {
  options_.item_bytes = 1000;
  options_.chunk_bytes = 100;
  write("mem://s/a", std::string(10000, 'x') + "\n");
  const std::vector<v1::WorkItem> items = list({"mem://s/a"});
  ASSERT_EQ(items.size(), 11U);
  const auto source = ItemSource::open(*files_, items[3], options_, clock_);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_TRUE((*source)->next()->is_end());
  EXPECT_LE((*source)->bytes_read(), 1100U);
}

TEST_F(SourceTest, BytesGoThroughACommand) {
  options_.pipe_command = "tr a-z A-Z";
  write("mem://s/a", "ab\ncd\n");
  const auto items = list({"mem://s/a"});
  EXPECT_EQ(items[0].end(), 0U);
  EXPECT_EQ(read_all_items(items), "AB\nCD\n");
  options_.pipe_command = "false";
  EXPECT_EQ(read(items[0]).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(SourceTest, TheHeadOfAFileIsItsFirstLine) {
  options_.has_header = true;
  options_.chunk_bytes = 2;
  write("mem://s/a", "one,two\n1,2\n");
  const auto items = list({"mem://s/a"});
  const auto source = ItemSource::open(*files_, items[0], options_, clock_);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->head(), "one,two\n");
  EXPECT_EQ(read_all_items(items), "one,two\n1,2\n");
}

TEST_F(SourceTest, LinesAreNumberedFromTheStartOfAFile) {
  options_.chunk_bytes = 8;
  write("mem://s/a", "aaaa\nbb\nc\ndddd\n");
  const auto source = ItemSource::open(*files_, list({"mem://s/a"})[0], options_, clock_);
  uint64_t line = 1;
  size_t chunks = 0;
  while (true) {
    const auto chunk = (*source)->next();
    ASSERT_TRUE(chunk.ok()) << chunk.status();
    const std::string_view bytes = chunk->chunk.bytes;
    if (bytes.empty()) break;
    EXPECT_EQ(chunk->chunk.line, line);
    line += static_cast<uint64_t>(std::count(bytes.begin(), bytes.end(), '\n'));
    ++chunks;
  }
  EXPECT_EQ(line, 5U);
  EXPECT_GT(chunks, 1U);
}

}  // namespace
}  // namespace starling
