#include "store/append_log.h"

#include <gmock/gmock.h>

#include "store/faulty.h"
#include "store/local/file_system.h"
#include "store/memory/file_system.h"
#include "store/test_tools.h"

namespace starling {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kUrl = "mem://x/log";

struct Opened {
  StatusOr<std::unique_ptr<AppendLog>> log;
  std::vector<std::string> records;
};

Opened open(FileSystem& fs, const std::string& url = kUrl) {
  Opened opened{absl::UnknownError(""), {}};
  opened.log = AppendLog::open(fs, url, [&](std::span<const std::byte> record) {
    opened.records.emplace_back(reinterpret_cast<const char*>(record.data()), record.size());
    return absl::OkStatus();
  });
  return opened;
}

std::vector<std::string> records_of(const std::string& bytes) {
  MemoryFileSystem fs;
  EXPECT_OK(write_file(fs, kUrl, bytes));
  Opened opened = open(fs);
  return opened.log.ok() ? opened.records : std::vector<std::string>{test_status(opened.log)};
}

TEST(AppendLog, RecordsComeBackInOrder) {
  TemporaryDirectory directory;
  LocalFileSystem local;
  MemoryFileSystem memory;
  for (auto& [fs, url] : std::vector<std::pair<FileSystem*, std::string>>{
           {&local, directory.path() + "/d/log"}, {&memory, kUrl}}) {
    {
      Opened first = open(*fs, url);
      ASSERT_OK(first.log);
      EXPECT_THAT(first.records, IsEmpty());
      ASSERT_OK((*first.log)->append(bytes_of("one")));
      ASSERT_OK((*first.log)->append(bytes_of(random_bytes(100'000, 1))));
      ASSERT_OK((*first.log)->sync());
    }
    Opened second = open(*fs, url);
    ASSERT_OK(second.log);
    EXPECT_THAT(second.records, ElementsAre("one", random_bytes(100'000, 1)));
    EXPECT_EQ((*second.log)->cut_bytes(), 0u);
    ASSERT_OK((*second.log)->append(bytes_of("three")));
    EXPECT_EQ(open(*fs, url).records.size(), 3u);
  }
}

// Three records, synced after the second; the offset where the third starts comes back too.
std::string sample(uint64_t* third) {
  MemoryFileSystem fs;
  Opened opened = open(fs);
  EXPECT_OK((*opened.log)->append(bytes_of("first")));
  EXPECT_OK((*opened.log)->append(bytes_of("second")));
  EXPECT_OK((*opened.log)->sync());
  *third = (*opened.log)->size();
  EXPECT_OK((*opened.log)->append(bytes_of("third")));
  return contents(fs, kUrl);
}

TEST(AppendLog, ATornTailIsCutAtEveryByte) {
  uint64_t third = 0;
  const std::string whole = sample(&third);
  for (size_t cut = third; cut < whole.size(); ++cut) {
    MemoryFileSystem fs;
    ASSERT_OK(write_file(fs, kUrl, whole.substr(0, cut)));
    Opened opened = open(fs);
    ASSERT_OK(opened.log);
    EXPECT_THAT(opened.records, ElementsAre("first", "second"));
    EXPECT_EQ((*opened.log)->cut_bytes(), cut - third);
    ASSERT_OK((*opened.log)->append(bytes_of("again")));
    opened.log->reset();
    EXPECT_THAT(open(fs).records, ElementsAre("first", "second", "again"));
  }
}

TEST(AppendLog, ATailOfZerosOrGarbageIsCut) {
  uint64_t third = 0;
  const std::string whole = sample(&third);
  EXPECT_THAT(records_of(whole.substr(0, third) + std::string(5000, '\0')),
              ElementsAre("first", "second"));
  EXPECT_THAT(records_of(whole.substr(0, third) + random_bytes(5000, 1)),
              ElementsAre("first", "second"));
}

TEST(AppendLog, DamageBelowASyncIsDataLossAndNothingIsCut) {
  uint64_t third = 0;
  const std::string whole = sample(&third);
  for (size_t at = 8; at < third; ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    MemoryFileSystem fs;
    ASSERT_OK(write_file(fs, kUrl, damaged));
    Opened opened = open(fs);
    EXPECT_CODE(opened.log, kDataLoss) << at;
    EXPECT_THAT(test_status(opened.log), HasSubstr(kUrl));
    EXPECT_TRUE(contents(fs, kUrl) == damaged);
  }
}

TEST(AppendLog, AHoleInAnUnsyncedTailIsCutWithAllAfterIt) {
  MemoryFileSystem fs;
  Opened opened = open(fs);
  ASSERT_OK((*opened.log)->append(bytes_of("kept")));
  ASSERT_OK((*opened.log)->sync());
  const uint64_t hole = (*opened.log)->size();
  ASSERT_OK((*opened.log)->append(bytes_of("lost")));
  ASSERT_OK((*opened.log)->append(bytes_of("after")));
  std::string bytes = contents(fs, kUrl);
  // Pages reach the disk in any order: this one did not.
  bytes.replace(hole, 28, std::string(28, '\0'));
  EXPECT_THAT(records_of(bytes), ElementsAre("kept"));
}

TEST(AppendLog, WhatWasSyncedSurvivesAPowerCutAtAnyTearing) {
  for (uint64_t torn = 0; torn < 80; ++torn) {
    MemoryFileSystem disk;
    FaultyFileSystem fs(disk);
    Opened opened = open(fs);
    ASSERT_OK(opened.log);
    ASSERT_OK((*opened.log)->append(bytes_of("durable")));
    ASSERT_OK((*opened.log)->sync());
    ASSERT_OK((*opened.log)->append(bytes_of("maybe")));
    ASSERT_OK((*opened.log)->append(bytes_of("perhaps")));
    ASSERT_OK(fs.power_cut(torn));
    EXPECT_CODE((*opened.log)->append(bytes_of("dead")), kUnavailable);
    Opened again = open(fs);
    ASSERT_OK(again.log);
    ASSERT_GE(again.records.size(), 1u);
    EXPECT_EQ(again.records[0], "durable");
    EXPECT_LE(again.records.size(), 1 + torn / 29);
  }
}

TEST(AppendLog, AFailedAppendStopsTheLogUntilItIsOpenedAgain) {
  MemoryFileSystem disk;
  FaultyFileSystem fs(disk);
  Opened opened = open(fs);
  ASSERT_OK((*opened.log)->append(bytes_of("one")));
  fs.add({.op = FileOp::kAppend,
          .nth = 1,
          .status = resource_exhausted("disk full"),
          .cut_bytes = 10});
  EXPECT_CODE((*opened.log)->append(bytes_of("two")), kResourceExhausted);
  EXPECT_CODE((*opened.log)->append(bytes_of("three")), kResourceExhausted);
  EXPECT_CODE((*opened.log)->sync(), kResourceExhausted);
  Opened again = open(fs);
  EXPECT_THAT(again.records, ElementsAre("one"));
  EXPECT_EQ((*again.log)->cut_bytes(), 10u);
}

TEST(AppendLog, AnotherFileIsNotTouched) {
  MemoryFileSystem fs;
  for (const char* text : {"some other file", "short"}) {
    ASSERT_OK(write_file(fs, kUrl, text));
    EXPECT_CODE(open(fs).log, kFailedPrecondition);
    EXPECT_EQ(contents(fs, kUrl), text);
  }
}

TEST(AppendLog, ATornHeadIsWrittenAnew) {
  for (const std::string& head :
       {std::string("STLLO"), std::string(8, '\0'), std::string(5, '\0')}) {
    MemoryFileSystem fs;
    ASSERT_OK(write_file(fs, kUrl, head));
    Opened opened = open(fs);
    ASSERT_OK(opened.log);
    ASSERT_OK((*opened.log)->append(bytes_of("one")));
    EXPECT_THAT(open(fs).records, ElementsAre("one"));
  }
}

TEST(AppendLog, RecordsOutOfRangeAreRefused) {
  MemoryFileSystem fs;
  auto log =
      AppendLog::open(fs, kUrl, [](auto) { return absl::OkStatus(); }, {.record_bytes_max = 10});
  ASSERT_OK(log);
  EXPECT_CODE((*log)->append(bytes_of("")), kInvalidArgument);
  EXPECT_CODE((*log)->append(bytes_of("12345678901")), kInvalidArgument);
  EXPECT_OK((*log)->append(bytes_of("1234567890")));
}

TEST(AppendLog, AVisitorsErrorEndsTheOpening) {
  uint64_t third = 0;
  MemoryFileSystem fs;
  ASSERT_OK(write_file(fs, kUrl, sample(&third)));
  EXPECT_CODE(AppendLog::open(fs, kUrl, [](auto) { return data_loss("not a ledger record"); }),
              kDataLoss);
}

// Every byte of the format, so that a change is seen: docs/format/append_log.md.
TEST(AppendLog, TheBytesAreThoseOfTheFormat) {
  MemoryFileSystem fs;
  Opened opened = open(fs);
  ASSERT_OK((*opened.log)->append(bytes_of("abc")));
  const std::string whole = contents(fs, kUrl);
  ASSERT_EQ(whole.size(), 8u + 24 + 3);
  EXPECT_EQ(whole.substr(0, 8), "STLLOG01");
  EXPECT_EQ(whole.substr(8, 16), std::string("LOGR\x03\0\0\0\x08\0\0\0\0\0\0\0", 16));
  std::string hex;
  for (size_t i = 24; i < 32; ++i)
    hex += fmt::format("{:02x}", static_cast<unsigned char>(whole[i]));
  EXPECT_EQ(hex, "af00f438f905ea52");
  EXPECT_EQ(whole.substr(32), "abc");
}

}  // namespace
}  // namespace starling
