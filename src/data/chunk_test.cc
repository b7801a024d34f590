#include "data/chunk.h"

#include <gtest/gtest.h>

#include <string>

namespace starling {
namespace {

size_t lines_of(std::string_view bytes, bool at_end = false) {
  return whole_records(RecordKind::kLines, bytes, at_end, 100).value();
}

TEST(ChunkTest, LinesAreCutBehindTheLastNewline) {
  EXPECT_EQ(lines_of("a\nbc\nd"), 5u);
  EXPECT_EQ(lines_of("abc"), 0u);
  EXPECT_EQ(lines_of(""), 0u);
  EXPECT_EQ(lines_of("\n"), 1u);
}

TEST(ChunkTest, TheLastLineOfAFileMayLackItsNewline) {
  EXPECT_EQ(lines_of("a\nbc", true), 4u);
  EXPECT_EQ(lines_of("", true), 0u);
}

TEST(ChunkTest, ALineWithoutEndIsRefusedByLimit) {
  const StatusOr<size_t> cut = whole_records(RecordKind::kLines, std::string(101, 'x'), false, 100);
  EXPECT_EQ(cut.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(whole_records(RecordKind::kLines, std::string(100, 'x'), false, 100).value(), 0u);
}

TEST(ChunkTest, PrefixedRecordsAreCutWhole) {
  const std::string bytes(
      "\x02"
      "ab"
      "\x00"
      "\x03"
      "xy",
      7);
  EXPECT_EQ(whole_records(RecordKind::kPrefixed, bytes, false, 100).value(), 4u);
  EXPECT_EQ(whole_records(RecordKind::kPrefixed, bytes.substr(0, 4), true, 100).value(), 4u);
  EXPECT_EQ(count_records(RecordKind::kPrefixed, bytes.substr(0, 4)), 2u);
}

TEST(ChunkTest, AFileThatEndsInsideOfARecordIsLossOfData) {
  const std::string bytes(
      "\x02"
      "ab"
      "\x03"
      "xy",
      6);
  EXPECT_EQ(whole_records(RecordKind::kPrefixed, bytes, true, 100).status().code(),
            StatusCode::kDataLoss);
  // A length whose own bytes are cut off.
  EXPECT_EQ(whole_records(RecordKind::kPrefixed, "\x80", true, 100).status().code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(
      whole_records(RecordKind::kPrefixed, std::string(6, '\xff'), false, 100).status().code(),
      StatusCode::kDataLoss);
}

TEST(ChunkTest, ALargePrefixedRecordIsRefusedByLimit) {
  EXPECT_EQ(whole_records(RecordKind::kPrefixed, "\x65", false, 100).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(ChunkTest, RecordsAreCounted) {
  EXPECT_EQ(count_records(RecordKind::kLines, "a\n\nb\n"), 3u);
  EXPECT_EQ(count_records(RecordKind::kLines, "a\nb"), 2u);
  EXPECT_EQ(count_records(RecordKind::kLines, ""), 0u);
}

TEST(ChunkTest, APartStartsBehindTheLineThatItCuts) {
  EXPECT_EQ(first_line_of_part("\nabc"), 1u);
  EXPECT_EQ(first_line_of_part("xy\nabc"), 3u);
  EXPECT_EQ(first_line_of_part("xy"), std::string_view::npos);
}

}  // namespace
}  // namespace starling
