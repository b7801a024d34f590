// The conformance suite of ledgers, over every maker, and what the journal file survives.
#include <gtest/gtest.h>

#include <functional>

#include "scheduler/file_ledger.h"
#include "scheduler/memory_ledger.h"
#include "store/faulty.h"
#include "store/file_systems.h"

namespace starling {
namespace {

constexpr const char* kUrl = "mem://disk/job/ledger";

// Opens the same ledger again and again, as restarts do.
struct Maker {
  std::string name;
  std::function<std::function<std::unique_ptr<Ledger>()>()> make;
};
void PrintTo(const Maker& maker, std::ostream* out) { *out << maker.name; }

class LedgerTest : public testing::TestWithParam<Maker> {
 protected:
  std::function<std::unique_ptr<Ledger>()> open_ = GetParam().make();
  std::unique_ptr<Ledger> ledger_ = open_();

  Status put(const std::string& key, const std::string& value) {
    const std::vector<LedgerWrite> writes = {{key, value}};
    return ledger_->commit(writes).status();
  }
  void reopen() {
    ledger_.reset();
    ledger_ = open_();
    ASSERT_NE(ledger_, nullptr);
  }
};

TEST_P(LedgerTest, WhatWasSyncedIsThereAfterARestart) {
  ASSERT_TRUE(put("b", "2").ok());
  ASSERT_TRUE(put("a", "1").ok());
  ASSERT_TRUE(ledger_->sync().ok());
  reopen();
  EXPECT_EQ(ledger_->get("a")->value, "1");
  EXPECT_EQ(ledger_->get("b")->revision, 1);
  EXPECT_EQ(ledger_->get("c").status().code(), StatusCode::kNotFound);
}

TEST_P(LedgerTest, ListsAPrefixInOrder) {
  for (const char* key : {"n/2", "n/10", "m/1", "n/1", "o"}) ASSERT_TRUE(put(key, "x").ok());
  std::vector<std::string> keys;
  const auto entries = ledger_->list("n/");
  for (const LedgerEntry& entry : *entries) keys.push_back(entry.key);
  EXPECT_EQ(keys, (std::vector<std::string>{"n/1", "n/10", "n/2"}));
}

TEST_P(LedgerTest, AConditionThatDoesNotHoldWritesNothing) {
  ASSERT_TRUE(put("k", "1").ok());
  const std::vector<LedgerWrite> writes = {{"k", "2"}, {"other", "3"}};
  const std::vector<LedgerCondition> absent = {{"k", 0}};
  EXPECT_EQ(ledger_->commit(writes, absent).status().code(), StatusCode::kAborted);
  EXPECT_EQ(ledger_->get("k")->value, "1");
  EXPECT_FALSE(ledger_->get("other").ok());
  const std::vector<LedgerCondition> right = {{"k", ledger_->get("k")->revision}};
  EXPECT_TRUE(ledger_->commit(writes, right).ok());
  EXPECT_EQ(ledger_->get("k")->value, "2");
}

TEST_P(LedgerTest, WatchersHearOfChangesWhenTheyAreDurable) {
  std::vector<std::string> heard;
  const uint64_t id = ledger_->watch("n/", [&heard](const LedgerWrite& write, uint64_t revision) {
    heard.push_back(fmt::format("{}={}@{}", write.key, write.value.value_or("gone"), revision));
  });
  ASSERT_TRUE(put("n/1", "a").ok());
  ASSERT_TRUE(put("m/1", "b").ok());
  EXPECT_TRUE(heard.empty());
  ASSERT_TRUE(ledger_->sync().ok());
  const std::vector<LedgerWrite> erase = {{"n/1", std::nullopt}};
  ASSERT_TRUE(ledger_->commit(erase).ok());
  ASSERT_TRUE(ledger_->sync().ok());
  EXPECT_EQ(heard, (std::vector<std::string>{"n/1=a@1", "n/1=gone@3"}));
  ledger_->unwatch(id);
  ASSERT_TRUE(put("n/2", "c").ok());
  ASSERT_TRUE(ledger_->sync().ok());
  EXPECT_EQ(heard.size(), 2);
}

TEST_P(LedgerTest, RevisionsGrowOverRestartsAndSnapshots) {
  uint64_t last = 0;
  for (int round = 0; round < 40; ++round) {
    const std::vector<LedgerWrite> writes = {{"k", std::string(4000, 'x')}, {"gone", "y"}};
    ASSERT_TRUE(ledger_->commit(writes).ok());
    const std::vector<LedgerWrite> erase = {{"gone", std::nullopt}};
    const StatusOr<uint64_t> revision = ledger_->commit(erase);
    ASSERT_TRUE(revision.ok());
    EXPECT_GT(*revision, last);
    last = *revision;
    ASSERT_TRUE(ledger_->sync().ok());
    if (round % 7 == 0) reopen();
  }
  reopen();
  const std::vector<LedgerWrite> writes = {{"new", "1"}};
  EXPECT_EQ(*ledger_->commit(writes), last + 1);
  EXPECT_FALSE(ledger_->get("gone").ok());
}

std::function<std::unique_ptr<Ledger>()> memory_maker() {
  auto journal = std::make_shared<MemoryJournal>();
  return [journal] { return *MemoryLedger::open(*journal); };
}

std::function<std::unique_ptr<Ledger>()> file_maker() {
  auto fs = std::make_shared<MemoryFileSystem>();
  return [fs]() -> std::unique_ptr<Ledger> {
    return *FileLedger::open(*fs, kUrl, {.compact_bytes_min = 20000});
  };
}

INSTANTIATE_TEST_SUITE_P(Makers, LedgerTest,
                         testing::Values(Maker{"memory", memory_maker}, Maker{"file", file_maker}),
                         [](const auto& info) { return info.param.name; });

Status write(FileLedger& ledger, const std::string& key, const std::string& value) {
  const std::vector<LedgerWrite> writes = {{key, value}};
  STARLING_RETURN_IF_ERROR(ledger.commit(writes, {}).status());
  return ledger.sync();
}

TEST(FileLedgerTest, ATornTailIsCutAndTheRestIsThere) {
  for (const size_t torn : {1, 7, 20, 30}) {
    MemoryFileSystem disk;
    {
      auto ledger = *FileLedger::open(disk, kUrl);
      ASSERT_TRUE(write(*ledger, "a", "1").ok());
      ASSERT_TRUE(write(*ledger, "b", "2").ok());
    }
    std::string file = *read_file(disk, kUrl);
    // The last record came only in part.
    file.resize(file.size() - torn);
    ASSERT_TRUE(write_file(disk, kUrl, file).ok());
    auto ledger = FileLedger::open(disk, kUrl);
    ASSERT_TRUE(ledger.ok()) << ledger.status();
    EXPECT_EQ((*ledger)->get("a")->value, "1");
    EXPECT_FALSE((*ledger)->get("b").ok());
    EXPECT_GT((*ledger)->cut_bytes(), 0);
    ASSERT_TRUE(write(**ledger, "b", "3").ok());
    EXPECT_EQ((*FileLedger::open(disk, kUrl))->get("b")->value, "3");
  }
}

TEST(LedgerSpaceTest, AWriteWithoutAKeyIsDataLoss) {
  LedgerSpace space;
  ledger::Transaction transaction;
  transaction.add_writes()->set_key("a");
  transaction.add_writes()->set_value("lost by the next snapshot");
  const std::string record = transaction.SerializeAsString();
  EXPECT_EQ(space.apply_record(std::as_bytes(std::span(record))).code(), StatusCode::kDataLoss);
  EXPECT_TRUE(space.list("").empty());
}

TEST(FileLedgerTest, ADamagedRecordInTheMiddleIsDataLossAndNothingIsCut) {
  MemoryFileSystem disk;
  {
    auto ledger = *FileLedger::open(disk, kUrl);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(write(*ledger, fmt::format("k{}", i), "v").ok());
  }
  std::string file = *read_file(disk, kUrl);
  file[file.size() / 2] ^= 1;
  ASSERT_TRUE(write_file(disk, kUrl, file).ok());
  EXPECT_EQ(FileLedger::open(disk, kUrl).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(*read_file(disk, kUrl), file);
}

TEST(FileLedgerTest, CompactionKeepsTheFileSmall) {
  MemoryFileSystem disk;
  auto ledger = *FileLedger::open(disk, kUrl, {.compact_bytes_min = 10000});
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(write(*ledger, fmt::format("k{}", i % 5), std::string(200, 'a' + i % 26)).ok());
  }
  EXPECT_LT(ledger->file_bytes(), 11000);
  const std::string last = ledger->get("k4")->value;
  ledger = *FileLedger::open(disk, kUrl);
  EXPECT_EQ(ledger->get("k4")->value, last);
  EXPECT_EQ(ledger->list("")->size(), 5);
}

// Whatever call to the disk fails and whatever power cut follows: what a sync() answered OK for is
// there, and a transaction is there whole or not at all.
TEST(FileLedgerTest, APowerCutAtAnyCallLosesNothingThatWasSynced) {
  for (uint64_t at = 1; at < 120; ++at) {
    SCOPED_TRACE(at);
    MemoryFileSystem disk;
    FaultyFileSystem fs(disk);
    int synced = 0;
    {
      fs.add({.nth = at, .status = unavailable("no power"), .is_lasting = true});
      auto ledger = FileLedger::open(fs, kUrl, {.compact_bytes_min = 2000});
      for (int i = 1; ledger.ok() && i <= 30; ++i) {
        const std::vector<LedgerWrite> writes = {{"a", fmt::format("{:0100}", i)},
                                                 {"b", fmt::format("{:0100}", i)}};
        if (!(*ledger)->commit(writes, {}).ok() || !(*ledger)->sync().ok()) break;
        synced = i;
      }
      fs.clear();
      ASSERT_TRUE(fs.power_cut(at % 3 * 40).ok());
    }
    auto ledger = FileLedger::open(fs, kUrl);
    ASSERT_TRUE(ledger.ok()) << ledger.status();
    const StatusOr<LedgerEntry> a = (*ledger)->get("a");
    const StatusOr<LedgerEntry> b = (*ledger)->get("b");
    ASSERT_EQ(a.ok(), b.ok());
    ASSERT_TRUE(a.ok() || synced == 0);
    if (!a.ok()) continue;
    EXPECT_EQ(a->value, b->value);
    EXPECT_GE(std::stoi(a->value), synced);
  }
}

}  // namespace
}  // namespace starling
