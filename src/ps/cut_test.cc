// Cuts of shards driven by hand: what is saved is what was there, whoever reads it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/cut_testing.h"

namespace starling {
namespace {

using ::testing::HasSubstr;

class CutTest : public ::testing::Test {
 protected:
  const RealClock clock_{};
  const std::unique_ptr<FileSystems> fs_ =
      FileSystems::standard({.incarnation = Incarnation{7}}, clock_);
  const std::string directory_ = "mem://cuts/job";
};

void expect_same(const JobImage& a, const JobImage& b) {
  for (const auto& [name, images] : a.tables) {
    EXPECT_EQ(images, b.tables.at(name)) << "table " << name;
  }
  ASSERT_EQ(a.variables.size(), b.variables.size());
  for (const auto& [name, parts] : a.variables) {
    const auto& others = b.variables.at(name);
    ASSERT_EQ(parts.size(), others.size()) << name;
    for (const auto& [begin, part] : parts) {
      EXPECT_EQ(part.encode(), others.at(begin).encode()) << name << " from " << begin;
    }
  }
}

TEST_F(CutTest, ARestoreHasTheSameBitsOnAnyNumberOfShards) {
  for (const auto& [before, after] : {std::pair(1U, 1U), {1U, 3U}, {4U, 2U}}) {
    const std::string directory = fmt::format("{}-{}-{}", directory_, before, after);
    CutBench job(*fs_, before, every_kind());
    for (uint64_t round = 1; round <= 5; ++round) job.push(round);
    const JobImage saved = job.image();
    EXPECT_EQ(saved.tables, job.oracle_image());
    ASSERT_EQ(job.save(job.save_option(directory, 3)), absl::OkStatus());
    CutBench other(*fs_, after, every_kind());
    other.push(99);
    ASSERT_EQ(other.restore(directory), absl::OkStatus());
    expect_same(saved, other.image());
    // And both go on alike.
    job.push(6);
    other.push(6);
    expect_same(job.image(), other.image());
  }
}

TEST_F(CutTest, PushesDuringASaveAreNotInIt) {
  CutSaverOptions options;
  options.slice_bytes = 1;
  options.queue_bytes_max = 4096;
  CutBench job(*fs_, 2, every_kind(), options);
  for (uint64_t round = 1; round <= 3; ++round) job.push(round);
  const JobImage saved = job.image();
  const v1::SaveOption option = job.save_option(directory_, 1);
  ASSERT_EQ(job.begin(option), absl::OkStatus());
  for (uint64_t round = 4; round <= 40; ++round) {
    job.push(round, 50);
    if (round % 5 == 0) job.erase("adam", {Key{round}, Key{round + 1}, Key{round * 7}});
    for (int i = 0; i < 20; ++i) job.saver(round % 2).advance(/*is_idle=*/true);
  }
  ASSERT_EQ(job.write(1), absl::OkStatus());
  ASSERT_EQ(job.publish(option), absl::OkStatus());
  EXPECT_EQ(job.image().tables, job.oracle_image()) << "saving changed nothing";
  CutBench other(*fs_, 3, every_kind());
  ASSERT_EQ(other.restore(directory_), absl::OkStatus());
  expect_same(saved, other.image());
}

TEST_F(CutTest, AtTheBoundOfCopiesRowsAreWrittenAheadOfTraining) {
  CutSaverOptions options;
  options.copy_bytes_max = 1;
  options.queue_bytes_max = 1 << 16;
  CutBench job(*fs_, 1, every_kind(), options);
  for (uint64_t round = 1; round <= 3; ++round) job.push(round);
  const JobImage saved = job.image();
  const v1::SaveOption option = job.save_option(directory_, 1);
  ASSERT_EQ(job.begin(option), absl::OkStatus());
  for (uint64_t round = 4; round <= 6; ++round) job.push(round);
  // Variables are copied at the cut, whatever the bound.
  Shard& shard = job.bench(0).shard;
  size_t variables = 0;
  for (const auto& [name, proto] : shard.schema().variables()) {
    variables += shard.variable(name)->memory_bytes();
  }
  EXPECT_LE(job.saver(0).extra_bytes(), (size_t{1} << 16) + (1 << 14) + variables);
  ASSERT_EQ(job.write(1), absl::OkStatus());
  ASSERT_EQ(job.publish(option), absl::OkStatus());
  CutBench other(*fs_, 2, every_kind());
  ASSERT_EQ(other.restore(directory_), absl::OkStatus());
  expect_same(saved, other.image());
}

TEST_F(CutTest, AChainOfIncrementsIsTheStateAtItsEnd) {
  CutBench job(*fs_, 2, every_kind());
  job.push(1);
  ASSERT_EQ(job.save(job.save_option(directory_, 1)), absl::OkStatus());
  for (uint64_t cut = 2; cut <= 5; ++cut) {
    job.push(cut, 40);
    // One goes for good, one comes back.
    job.erase("adagrad", {Key{cut}, Key{cut + 100}});
    job.push("adagrad", {Key{cut + 100}}, cut);
    ASSERT_EQ(job.save(job.save_option(directory_, cut, cut - 1)), absl::OkStatus());
  }
  const JobImage saved = job.image();
  CutBench other(*fs_, 3, every_kind());
  ASSERT_EQ(other.restore(directory_), absl::OkStatus());
  expect_same(saved, other.image());
  // An increment is smaller than a full cut.
  const auto bytes = [&](uint64_t cut) {
    uint64_t sum = 0;
    const StatusOr<Cut> found = find_cut(*fs_, directory_, cut);
    for (const ckpt::File& file : found->manifest.files()) {
      if (file.table() == "adam") sum += file.rows();
    }
    return sum;
  };
  EXPECT_LT(bytes(3), bytes(1) / 2);
}

TEST_F(CutTest, AnIncrementTakesEverythingWhereItsBaseIsNotKnownOrRowsWereSwept) {
  v1::CreateOption schema;
  *schema.add_tables() = cut_table("plain", rule_of("adagrad"));
  *schema.add_tables() = cut_table("swept", rule_of("adagrad"));
  *schema.mutable_tables(1)->add_eviction() =
      rule_of("score", {{"decay", 0.5}, {"threshold", 0.01}});
  CutBench job(*fs_, 2, schema);
  job.push(1);
  ASSERT_EQ(job.save(job.save_option(directory_, 1)), absl::OkStatus());
  for (int i = 0; i < 2; ++i) job.table(i, "swept").shrink(1);
  job.oracle("swept").shrink(1);
  job.push("plain", {Key{1}}, 2);
  ASSERT_EQ(job.save(job.save_option(directory_, 2, 1)), absl::OkStatus());
  CutBench other(*fs_, 1, schema);
  ASSERT_EQ(other.restore(directory_), absl::OkStatus());
  expect_same(job.image(), other.image());
  // After a restore nothing is known of what changed before.
  other.push("plain", {Key{2}}, 3);
  ASSERT_EQ(other.save(other.save_option(directory_, 3, 2)), absl::OkStatus());
  const StatusOr<Cut> cut = find_cut(*fs_, directory_, 3);
  ASSERT_EQ(cut.status(), absl::OkStatus());
  uint64_t rows = 0;
  for (const ckpt::File& file : cut->manifest.files()) rows += file.rows();
  EXPECT_EQ(rows, other.table(0, "plain").rows() + other.table(0, "swept").rows());
}

TEST_F(CutTest, ACompactedChainHoldsTheSame) {
  CutBench job(*fs_, 2, every_kind());
  job.push(1);
  ASSERT_EQ(job.save(job.save_option(directory_, 1)), absl::OkStatus());
  for (uint64_t cut = 2; cut <= 4; ++cut) {
    job.push(cut, 40);
    job.erase("adam", {Key{cut}, Key{cut + 10}});
    ASSERT_EQ(job.save(job.save_option(directory_, cut, cut - 1)), absl::OkStatus());
  }
  const StatusOr<Cut> third = find_cut(*fs_, directory_, 3);
  ASSERT_EQ(compact_cut(*fs_, *third, Incarnation{9}, 1 << 16), absl::OkStatus());
  const StatusOr<Cut> compacted = find_cut(*fs_, directory_, 3);
  ASSERT_EQ(compacted.status(), absl::OkStatus());
  EXPECT_EQ(compacted->manifest.mode(), ckpt::MODE_FULL);
  EXPECT_EQ(chain_of(*fs_, *find_cut(*fs_, directory_, 4))->size(), 2u);
  EXPECT_THAT(*verify_cut(*fs_, *compacted), ::testing::IsEmpty());
  CutBench other(*fs_, 3, every_kind());
  ASSERT_EQ(other.restore(directory_), absl::OkStatus());
  expect_same(job.image(), other.image());
}

}  // namespace
}  // namespace starling
