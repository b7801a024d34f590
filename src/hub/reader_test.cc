#include "hub/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/faulty.h"
#include "store/file_systems.h"
#include "store/streams.h"

namespace starling {
namespace {

using testing::HasSubstr;

std::string lines(int count, int bad = -1) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    out += i == bad ? "x,y\n" : fmt::format("{},{},{}\n", i % 2, i, std::string(i % 50, 'a'));
  }
  return out;
}

class ReaderTest : public testing::Test {
 protected:
  ReaderTest() : files_(FileSystems::standard({.incarnation = Incarnation{1}}, clock_)) {
    FormatOptions options;
    options.name = "csv";
    std::vector<FieldOptions> fields(3);
    fields[0].name = "label";
    fields[0].kind = FieldKind::kLabel;
    fields[0].column = "0";
    fields[1].name = "number";
    fields[1].kind = FieldKind::kDense;
    fields[1].column = "1";
    fields[2].name = "text";
    fields[2].column = "2";
    const auto format = Format::make(options, fields);
    EXPECT_TRUE(format.ok()) << format.status();
    format_ = *format;
  }

  void write(const std::string& path, const std::string& text) {
    auto writer = open_compressed(*files_, path);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->write(bytes_of(text)).ok());
    ASSERT_TRUE((*writer)->publish().ok());
  }
  // All numbers and keys of a file, in the order in which they come.
  StatusOr<std::vector<double>> read(const std::string& path, uint32_t threads,
                                     BadLinesOptions bad = {}, const std::string& bad_path = "") {
    SourceOptions source;
    source.chunk_bytes = 700;
    source.record_bytes_max = line_bytes_max_;
    source.skips_long = bad.skip;
    STARLING_ASSIGN_OR_RETURN(const auto items, list_items(*files_, {path}, source));
    BadLines bad_lines(bad);
    BadLog log(bad_path, log_files_ == nullptr ? *files_ : *log_files_);
    ParsePool pool(format_, {.threads = threads, .bad_kept = bad_lines.kept_max()}, clock_);
    std::vector<double> out;
    for (const v1::WorkItem& item : items) {
      STARLING_ASSIGN_OR_RETURN(const auto input, ItemSource::open(*files_, item, source, clock_));
      SampleReader reader(*input, pool, bad_lines, log, {.chunks_max = 2 * threads});
      while (true) {
        STARLING_ASSIGN_OR_RETURN(const auto samples, reader.next());
        if (samples == nullptr) break;
        for (uint32_t i = 0; i < samples->samples(); ++i) {
          out.push_back(samples->dense(i)[0]);
          for (const Key key : samples->sample_keys(i)) {
            out.push_back(static_cast<double>(value(key)));
          }
        }
      }
      counts_ = reader.counts();
    }
    return out;
  }

  RealClock clock_;
  std::unique_ptr<FileSystems> files_;
  std::shared_ptr<const Format> format_;
  ParseCounts counts_;
  uint64_t line_bytes_max_ = 64 << 20;
  FileSystem* log_files_ = nullptr;  // where bad lines go; null: files_
};

TEST_F(ReaderTest, TheStreamIsTheSameForAnyNumberOfThreadsAndAnyCompression) {
  for (const char* path : {"mem://r/a", "mem://r/a.gz", "mem://r/a.zst"}) write(path, lines(3000));
  const auto plain = read("mem://r/a", 1);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_GE(plain->size(), 3000U);
  for (const char* path : {"mem://r/a", "mem://r/a.gz", "mem://r/a.zst"}) {
    for (const uint32_t threads : {1U, 2U, 8U}) {
      const auto again = read(path, threads);
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(*again, *plain) << path << " by " << threads;
    }
  }
}

TEST_F(ReaderTest, ABadLineIsNamedByFileAndLineWhoeverParsedIt) {
  write("mem://r/a", lines(3000, 2345));
  for (const uint32_t threads : {1U, 8U}) {
    const auto read_bad = read("mem://r/a", threads);
    EXPECT_EQ(read_bad.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(message_of(read_bad.status())), HasSubstr("mem://r/a:2346"));
  }
}

TEST_F(ReaderTest, SkippedLinesAreCountedAndWritten) {
  write("mem://r/a", lines(100, 50));
  const auto skipped = read("mem://r/a", 2, {.skip = true, .skip_max = 1}, "mem://r/bad");
  ASSERT_TRUE(skipped.ok()) << skipped.status();
  EXPECT_EQ(counts_.bad, 1U);
  EXPECT_EQ(counts_.records, 100U);
  const auto written = read_file(*files_, "mem://r/bad");
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(*written, "x,y\n");
  EXPECT_EQ(read("mem://r/a", 2, {.skip = true, .skip_max = 0}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(ReaderTest, ALineAboveTheLimitIsSkippedAndCountedAsAnyBadLine) {
  line_bytes_max_ = 1000;
  write("mem://r/a", lines(100) + std::string(5000, 'x') + "\n" + lines(20));
  for (const uint32_t threads : {1U, 4U}) {
    const auto skipped = read("mem://r/a", threads, {.skip = true, .skip_max = 1});
    ASSERT_TRUE(skipped.ok()) << skipped.status();
    EXPECT_EQ(counts_.bad, 1U);
    EXPECT_EQ(counts_.samples, 120U);
    EXPECT_EQ(counts_.records, 121U);
    const auto too_many = read("mem://r/a", threads, {.skip = true, .skip_max = 0});
    EXPECT_EQ(too_many.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(message_of(too_many.status())), HasSubstr("mem://r/a:101"));
    EXPECT_EQ(read("mem://r/a", threads).status().code(), StatusCode::kResourceExhausted);
  }
}

TEST_F(ReaderTest, AFullDiskUnderTheFileOfBadLinesIsAnError) {
  write("mem://r/a", lines(100, 50));
  FaultyFileSystem full(*files_);
  full.add({.op = FileOp::kAppend,
            .status = resource_exhausted("mem://r/bad: no space left on device"),
            .is_lasting = true});
  log_files_ = &full;
  const auto stopped = read("mem://r/a", 2, {.skip = true, .skip_max = 5}, "mem://r/bad");
  EXPECT_EQ(stopped.status().code(), StatusCode::kResourceExhausted) << stopped.status();
  EXPECT_THAT(std::string(message_of(stopped.status())), HasSubstr("bad_lines_path mem://r/bad"));
}

TEST_F(ReaderTest, AFileThatVanishesOrBreaksInTheMiddleIsAnError) {
  write("mem://r/a", lines(3000));
  FaultyFileSystem broken(*files_);
  broken.add({.op = FileOp::kRead,
              .nth = 5,
              .status = not_found("mem://r/a: the file is gone"),
              .is_lasting = true});
  SourceOptions source;
  source.chunk_bytes = 700;
  const auto items = list_items(*files_, {"mem://r/a"}, source);
  ASSERT_TRUE(items.ok()) << items.status();
  const auto input = ItemSource::open(broken, items->front(), source, clock_);
  ASSERT_TRUE(input.ok()) << input.status();
  Status ended;
  while (ended.ok()) {
    const auto chunk = (*input)->next();
    ended = chunk.status();
    ASSERT_TRUE(!chunk.ok() || !chunk->is_end()) << "an end where the file broke";
  }
  EXPECT_EQ(ended.code(), StatusCode::kNotFound) << ended;
}

}  // namespace
}  // namespace starling
