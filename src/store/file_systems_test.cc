#include "store/file_systems.h"

#include <gmock/gmock.h>

#include "store/test_tools.h"

namespace starling {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FileSystemsTest : public ::testing::Test {
 protected:
  RealClock clock_;
  TemporaryDirectory directory_;
  std::unique_ptr<FileSystems> all_ =
      FileSystems::standard({.incarnation = Incarnation{5}, .hdfs = {}, .memory = {}}, clock_);
};

TEST_F(FileSystemsTest, OneObjectServesAllSchemes) {
  ASSERT_OK(write_file(*all_, directory_.path() + "/x", "local"));
  ASSERT_OK(write_file(*all_, "mem://job/x", "memory"));
  EXPECT_EQ(contents(*all_, "file://" + directory_.path() + "/x"), "local");
  EXPECT_EQ(contents(*all_, "mem://job/x"), "memory");
  EXPECT_EQ(all_->list("mem://job/*")->size(), 1u);
}

TEST_F(FileSystemsTest, MemoryUnderAnotherNameIsAnotherTree) {
  ASSERT_OK(write_file(*all_, "mem://one/x", "text"));
  EXPECT_CODE(all_->stat("mem://two/x"), kNotFound);
}

TEST_F(FileSystemsTest, AnUnknownSchemeListsTheKnownOnes) {
  const Status status = all_->stat("s3://bucket/x").status();
  EXPECT_CODE(status, kInvalidArgument);
  EXPECT_THAT(test_status(status), AllOf(HasSubstr("s3://"), HasSubstr("file, hdfs, mem")));
}

TEST_F(FileSystemsTest, AMakerIsAddedInOneLine) {
  all_->add("s3", [](const Url&) -> StatusOr<std::unique_ptr<FileSystem>> {
    return permission_denied("no key");
  });
  EXPECT_CODE(all_->stat("s3://bucket/x"), kPermissionDenied);
}

TEST_F(FileSystemsTest, RenameBetweenStoresIsRefused) {
  ASSERT_OK(write_file(*all_, "mem://one/x", "text"));
  EXPECT_CODE(all_->rename("mem://one/x", "mem://two/x", Existing::kReplace), kInvalidArgument);
  EXPECT_OK(all_->rename("mem://one/x", "mem://one/y", Existing::kReplace));
  EXPECT_OK(all_->remove("mem://one/y", Recursive::kNo));
  EXPECT_OK(all_->make_directories("mem://one/d"));
  EXPECT_OK(all_->open_append("mem://one/log"));
}

}  // namespace
}  // namespace starling
