#include "store/faulty.h"

#include <gmock/gmock.h>

#include "store/block_stream.h"
#include "store/local/file_system.h"
#include "store/memory/file_system.h"
#include "store/temporary.h"
#include "store/test_tools.h"

namespace starling {
namespace {

using ::testing::ElementsAre;

class FaultyTest : public ::testing::Test {
 protected:
  MemoryFileSystem disk_{{.incarnation = Incarnation{7}}};
  std::vector<Duration> sleeps_;
  FaultyFileSystem fs_{disk_, [this](Duration time) { sleeps_.push_back(time); }};
};

TEST_F(FaultyTest, WithoutFaultsItIsTheInnerOne) {
  ASSERT_OK(write_file(fs_, "mem://x/a", "text"));
  EXPECT_EQ(contents(fs_, "mem://x/a"), "text");
  EXPECT_EQ(fs_.list("mem://x/*")->size(), 1u);
  EXPECT_OK(fs_.rename("mem://x/a", "mem://x/b", Existing::kReplace));
  EXPECT_OK(fs_.make_directories("mem://x/d"));
  EXPECT_OK(fs_.remove("mem://x/b", Recursive::kNo));
  EXPECT_GT(fs_.calls(), 8u);
}

TEST_F(FaultyTest, TheNthCallFailsOnce) {
  fs_.add({.op = {}, .nth = 2, .status = unavailable("no")});
  EXPECT_OK(fs_.make_directories("mem://x/a"));
  EXPECT_CODE(fs_.make_directories("mem://x/b"), kUnavailable);
  EXPECT_OK(fs_.make_directories("mem://x/b"));
}

TEST_F(FaultyTest, CallsOfOtherKindsDoNotCount) {
  fs_.add({.op = FileOp::kRename, .nth = 1, .status = unavailable("no")});
  ASSERT_OK(write_file(fs_, "mem://x/a", "text"));
  EXPECT_CODE(fs_.rename("mem://x/a", "mem://x/b", Existing::kReplace), kUnavailable);
  EXPECT_EQ(contents(fs_, "mem://x/a"), "text");
}

TEST_F(FaultyTest, ALostAnswerIsCarriedOut) {
  fs_.add({.op = FileOp::kPublish, .nth = 1, .status = unavailable("lost"), .is_after = true});
  EXPECT_CODE(write_file(fs_, "mem://x/a", "text"), kUnavailable);
  EXPECT_EQ(contents(fs_, "mem://x/a"), "text");
}

TEST_F(FaultyTest, AFullDiskCutsTheWriteShortAndNothingIsShown) {
  fs_.add(
      {.op = FileOp::kWrite, .nth = 1, .status = resource_exhausted("disk full"), .cut_bytes = 3});
  auto writer = fs_.open_write("mem://x/d/a", Existing::kReplace);
  ASSERT_OK(writer);
  EXPECT_CODE((*writer)->write(bytes_of("text")), kResourceExhausted);
  EXPECT_EQ(disk_.list_directory("mem://x/d")->at(0).bytes, 3u);
  EXPECT_CODE((*writer)->publish(), kResourceExhausted);
  writer->reset();
  EXPECT_TRUE(disk_.list_directory("mem://x/d")->empty());
}

TEST_F(FaultyTest, DelaysAreSlept) {
  fs_.add({.op = FileOp::kStat, .nth = 1, .status = {}, .delay = seconds(3)});
  EXPECT_OK(fs_.stat("mem://x/"));
  EXPECT_THAT(sleeps_, ElementsAre(Duration(seconds(3))));
}

TEST_F(FaultyTest, ADeadProcessLeavesItsTemporariesAndDoesNothingMore) {
  auto writer = fs_.open_write("mem://x/d/a", Existing::kReplace);
  ASSERT_OK(writer);
  ASSERT_OK((*writer)->write(bytes_of("half")));
  fs_.add({.op = {}, .nth = 1, .status = unavailable("gone"), .is_lasting = true});
  EXPECT_CODE((*writer)->publish(), kUnavailable);
  EXPECT_CODE(fs_.stat("mem://x/d"), kUnavailable);
  writer->reset();
  const auto left = disk_.list_directory("mem://x/d");
  ASSERT_EQ(left->size(), 1u);
  EXPECT_EQ(incarnation_of_temporary(left->at(0).name()), Incarnation{7});
  fs_.clear();
  EXPECT_OK(fs_.stat("mem://x/d"));
}

TEST_F(FaultyTest, APowerCutLosesWhatWasNotSynced) {
  auto log = fs_.open_append("mem://x/log");
  ASSERT_OK(log);
  ASSERT_OK((*log)->append(bytes_of("synced ")));
  ASSERT_OK((*log)->sync());
  ASSERT_OK((*log)->append(bytes_of("not synced")));
  auto writer = fs_.open_write("mem://x/file", Existing::kReplace);
  ASSERT_OK(writer);
  ASSERT_OK((*writer)->write(bytes_of("half")));
  ASSERT_OK(write_file(fs_, "mem://x/published", "whole"));
  ASSERT_OK(fs_.power_cut(3));
  EXPECT_EQ(contents(fs_, "mem://x/log"), "synced not");
  EXPECT_CODE((*log)->sync(), kUnavailable);
  EXPECT_CODE((*writer)->publish(), kUnavailable);
  EXPECT_EQ(contents(fs_, "mem://x/published"), "whole");
  EXPECT_CODE(fs_.stat("mem://x/file"), kNotFound);
}

// The wrapper at work: whatever call a process dies at, the file is the old or the new one, whole.
TEST(FaultyPublish, IsAtomicAtEveryCallOverEveryStore) {
  TemporaryDirectory directory;
  LocalFileSystem local;
  MemoryFileSystem memory;
  const std::string old_text(10'000, 'o');
  const std::string new_text(20'000, 'n');
  for (const auto& place : std::vector<std::pair<FileSystem*, std::string>>{
           {&local, directory.path() + "/d/f"}, {&memory, "mem://x/d/f"}}) {
    FileSystem* const disk = place.first;
    const std::string& url = place.second;
    int finished = 0;
    for (uint64_t death = 1; finished < 2; ++death) {
      for (const bool is_after : {false, true}) {
        ASSERT_OK(write_file(*disk, url, old_text));
        FaultyFileSystem fs(*disk);
        fs.add({.op = {},
                .nth = death,
                .status = unavailable("gone"),
                .is_after = is_after,
                .is_lasting = true});
        const Status status = [&] {
          STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Writer> target,
                                    fs.open_write(url, Existing::kReplace));
          STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Writer> writer,
                                    write_blocks(std::move(target), 1000));
          STARLING_RETURN_IF_ERROR(writer->write(bytes_of(new_text)));
          return writer->publish();
        }();
        const std::string text = contents(*disk, url);
        if (text != old_text) {
          const auto blocks = read_blocks(std::make_unique<StringReader>(text));
          EXPECT_TRUE(*read_all(*blocks, 1 << 20) == new_text) << death;
        } else {
          EXPECT_FALSE(status.ok()) << death;
        }
        if (status.ok()) ++finished;
      }
    }
  }
}

}  // namespace
}  // namespace starling
