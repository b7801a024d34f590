#include "ps/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "ps/checkpoint_file.h"
#include "ps/cut_publisher.h"
#include "store/block_stream.h"
#include "store/file_systems.h"

namespace starling {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ManifestTest : public ::testing::Test {
 protected:
  // A cut with one file that holds nothing.
  void make(uint64_t id, uint64_t base = 0, const std::string& name = "") {
    ckpt::Manifest manifest;
    manifest.set_format(kManifestFormat);
    manifest.set_cut_id(id);
    if (base != 0) {
      manifest.set_mode(ckpt::MODE_INCREMENTAL);
      manifest.set_base_cut(base);
      manifest.set_base(cut_name(base));
    }
    if (!name.empty()) manifest.add_names(name);
    const auto writer =
        CutFileWriter::open(*fs_, path(id), "a.rows", {ckpt::FILE_KIND_ROWS, id, "t"});
    ASSERT_EQ(writer.status(), absl::OkStatus());
    *manifest.add_files() = *(*writer)->publish();
    ASSERT_EQ(write_manifest(*fs_, path(id), manifest), absl::OkStatus());
  }
  std::string path(uint64_t id) const { return directory_ + "/" + cut_name(id); }
  std::vector<uint64_t> complete() {
    std::vector<uint64_t> ids;
    const StatusOr<std::vector<CutEntry>> entries = list_cuts(*fs_, directory_);
    for (const CutEntry& entry : *entries) {
      if (entry.status.ok()) ids.push_back(entry.cut_id);
    }
    return ids;
  }

  const RealClock clock_{};
  const std::unique_ptr<FileSystems> fs_ = FileSystems::standard({}, clock_);
  const std::string directory_ = "mem://cuts/job";
};

TEST_F(ManifestTest, NamesOfCutsAreReadBack) {
  EXPECT_EQ(cut_name(12), "cut-000000000012");
  EXPECT_EQ(id_of_cut_name("cut-000000000012"), 12u);
  for (const char* name : {"cut-12", "cut-", "cut-00000000001x", "other", "cut-000000000000"}) {
    EXPECT_EQ(id_of_cut_name(name), 0u) << name;
  }
}

TEST_F(ManifestTest, TheNewestWholeCutIsFoundByListing) {
  EXPECT_EQ(find_cut(*fs_, directory_, 0).status().code(), StatusCode::kNotFound);
  make(1);
  make(5);
  make(7, 0, "users");
  ASSERT_EQ(write_file(*fs_, path(9) + "/a.rows", "half a cut"), absl::OkStatus());
  EXPECT_EQ(find_cut(*fs_, directory_, 0)->manifest.cut_id(), 5u);
  EXPECT_EQ(find_cut(*fs_, directory_, 7)->manifest.cut_id(), 7u);
  EXPECT_EQ(find_cut(*fs_, path(1), 0)->manifest.cut_id(), 1u) << "a cut may be named itself";
  EXPECT_EQ(find_cut(*fs_, path(1), 2).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(find_cut(*fs_, directory_, 9).status().code(), StatusCode::kNotFound);
}

TEST_F(ManifestTest, ADamagedManifestIsNamedWithTheCutBeforeIt) {
  make(1);
  make(2);
  const std::string url = path(2) + "/MANIFEST";
  std::string bytes = *read_file(*fs_, url);
  bytes[40] ^= 1;
  ASSERT_EQ(write_file(*fs_, url, bytes), absl::OkStatus());
  const Status status = find_cut(*fs_, directory_, 0).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(message_of(status)), HasSubstr(url));
  EXPECT_THAT(std::string(message_of(status)), HasSubstr("the newest before it is cut 1"));
  EXPECT_EQ(find_cut(*fs_, directory_, 1).status(), absl::OkStatus());
}

TEST_F(ManifestTest, APublishedManifestIsNeverReplacedByAnother) {
  make(1);
  ckpt::Manifest other;
  other.set_format(kManifestFormat);
  other.set_cut_id(2);
  EXPECT_EQ(write_manifest(*fs_, path(1), other).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(read_cut(*fs_, path(1))->manifest.cut_id(), 1u);
}

TEST_F(ManifestTest, ManifestsThatMakeNoSenseAreRefused) {
  ckpt::Manifest good;
  good.set_format(kManifestFormat);
  good.set_cut_id(4);
  const auto refused = [&](const ckpt::Manifest& bad) {
    return write_manifest(*fs_, path(4), bad).code() == StatusCode::kDataLoss;
  };
  ckpt::Manifest bad = good;
  bad.set_format(2);
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.add_files()->set_name("../../passwd");
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.add_files()->set_name(std::string("a\0b", 3));
  EXPECT_TRUE(refused(bad)) << "a name that no store can have";
  bad = good;
  bad.add_files()->set_name("a");
  bad.add_files()->set_name("a");
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.add_files()->set_name("a");
  bad.mutable_files(0)->set_bucket_end(kBuckets + 1);
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.set_mode(static_cast<ckpt::Mode>(9));
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.set_filter(static_cast<v1::SaveFilter>(9));
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.set_mode(ckpt::MODE_INCREMENTAL);
  bad.set_base_cut(4);
  bad.set_base("cut-000000000004");
  EXPECT_TRUE(refused(bad)) << "builds on itself";
  EXPECT_FALSE(refused(good));
}

// Memory was once taken for all that the record claimed.
TEST_F(ManifestTest, ARecordThatClaimsMoreThanThereIsIsDataLoss) {
  const auto writer = CutFileWriter::open(*fs_, path(1), "a", {ckpt::FILE_KIND_ROWS, 1, "t"});
  ASSERT_EQ(writer.status(), absl::OkStatus());
  ASSERT_EQ((*writer)->add(CutRecordKind::kDeleted, 0, {}), absl::OkStatus());
  ckpt::File file = *(*writer)->publish();
  const auto blocks = read_blocks(*fs_->open_read(path(1) + "/a", {}));
  std::string bytes = *read_all(*blocks, 1 << 20);
  constexpr size_t kLengthAt = 24 + 1 + 8;  // head, the table's name, kind and number of the record
  constexpr uint64_t kClaimed = uint64_t{1} << 59;
  std::memcpy(bytes.data() + kLengthAt, &kClaimed, sizeof(kClaimed));
  const auto again = write_blocks(*fs_->open_write(path(1) + "/b", Existing::kKeep));
  ASSERT_EQ((*again)->write(bytes_of(bytes)), absl::OkStatus());
  ASSERT_EQ((*again)->publish(), absl::OkStatus());
  file.set_name("b");
  file.set_bytes(2 * kClaimed);
  const auto reader = CutFileReader::open(*fs_, path(1), file, 1);
  ASSERT_EQ(reader.status(), absl::OkStatus());
  FileRecord record;
  EXPECT_EQ((*reader)->next(record).code(), StatusCode::kDataLoss);
}

// Its weights have no memory, which was copied from and to all the same.
TEST(DensePartTest, OneWithoutElementsSurvives) {
  const std::vector<std::byte> bytes = DensePart{.variable = "w", .begin = 3, .end = 3}.encode();
  const StatusOr<DensePart> part = DensePart::decode(bytes);
  ASSERT_EQ(part.status(), absl::OkStatus());
  EXPECT_EQ(part->variable, "w");
  EXPECT_EQ(part->begin, 3u);
  EXPECT_THAT(part->weights, IsEmpty());
}

TEST_F(ManifestTest, TheNewestCutsStayWithAllTheyBuildOn) {
  make(1);
  make(2, 1);
  make(3, 2);
  make(4);
  make(5, 4);
  EXPECT_THAT(*remove_old_cuts(*fs_, directory_, 3, 5), IsEmpty()) << "3 needs 2 and 1";
  EXPECT_THAT(complete(), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(*remove_old_cuts(*fs_, directory_, 2, 5), ElementsAre(1, 2, 3));
  EXPECT_THAT(complete(), ElementsAre(4, 5));
  EXPECT_THAT(*remove_old_cuts(*fs_, directory_, 1, 5), IsEmpty()) << "5 needs 4";
  EXPECT_THAT(*remove_old_cuts(*fs_, directory_, 0, 5), IsEmpty()) << "0 keeps all";
}

TEST_F(ManifestTest, WhatFailedCutsLeftGoesAndOthersThingsStay) {
  make(2);
  ASSERT_EQ(write_file(*fs_, path(1) + "/a.rows", "never finished"), absl::OkStatus());
  ASSERT_EQ(write_file(*fs_, path(3) + "/a.rows", "under way"), absl::OkStatus());
  ASSERT_EQ(write_file(*fs_, directory_ + "/mine/notes", "text"), absl::OkStatus());
  make(4, 0, "users");
  ASSERT_EQ(remove_old_cuts(*fs_, directory_, 1, 3).status(), absl::OkStatus());
  EXPECT_FALSE(*fs_->exists(path(1)));
  EXPECT_TRUE(*fs_->exists(path(3)));
  EXPECT_TRUE(*fs_->exists(directory_ + "/mine/notes"));
  EXPECT_THAT(complete(), ElementsAre(2, 4)) << "cuts of chosen names are the user's";
}

TEST_F(ManifestTest, AMissingBaseIsNamed) {
  make(1);
  make(2, 1);
  ASSERT_EQ(fs_->remove(path(1), Recursive::kYes), absl::OkStatus());
  const Status status = chain_of(*fs_, *find_cut(*fs_, directory_, 2)).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(message_of(status)), HasSubstr("its base, cut 1, is missing"));
}

TEST(MergeStates, TakesTheHighestOfNumbersAndAllSessions) {
  ckpt::ShardState a, b;
  a.set_step(5);
  b.set_step(7);
  for (ckpt::ShardState* state : {&a, &b}) {
    state->set_schema_hash(9);
    state->mutable_schema();
    v1::Watermark* mark = state->add_watermarks();
    mark->set_item(1);
    mark->set_done_below(state == &a ? 10 : 4);
    ckpt::Session* session = state->add_sessions();
    session->set_session(77);
    session->set_acked_below(state == &a ? 3 : 2);
    session->add_applied()->set_number(state == &a ? 4 : 2);
  }
  ckpt::AppliedPart* part = b.add_parts();
  part->mutable_batch()->set_item(1);
  part->mutable_batch()->set_number(9);
  const StatusOr<ckpt::ShardState> merged = merge_states({a, b});
  ASSERT_EQ(merged.status(), absl::OkStatus());
  EXPECT_EQ(merged->step(), 7u);
  ASSERT_EQ(merged->watermarks_size(), 1);
  EXPECT_EQ(merged->watermarks(0).done_below(), 10u);
  EXPECT_EQ(merged->parts_size(), 0) << "the watermark covers it";
  ASSERT_EQ(merged->sessions_size(), 1);
  EXPECT_EQ(merged->sessions(0).acked_below(), 3u);
  ASSERT_EQ(merged->sessions(0).applied_size(), 1);
  EXPECT_EQ(merged->sessions(0).applied(0).number(), 4u);
  b.set_schema_hash(8);
  EXPECT_EQ(merge_states({a, b}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace starling
