#include "store/memory/file_system.h"

#include "store/conformance_suite.h"
#include "store/test_tools.h"

namespace starling {
namespace {

class MemoryUnderTest final : public StoreUnderTest {
 public:
  MemoryUnderTest()
      : fs_({.incarnation = kTestIncarnation}),
        small_({.incarnation = kTestIncarnation, .bytes_max = 4 << 20}) {}
  FileSystem& fs() override { return is_small_ ? small_ : fs_; }
  std::string root() const override { return "mem://test/root"; }
  std::unique_ptr<FileSystem> as_process(Incarnation incarnation) override {
    return fs_.view_of(incarnation);
  }
  bool outlives_processes() const override { return false; }
  std::string small_root(std::string*) override {
    is_small_ = true;
    return root();
  }

 private:
  MemoryFileSystem fs_;
  MemoryFileSystem small_;
  bool is_small_ = false;
};

INSTANTIATE_TEST_SUITE_P(Memory, StoreConformance,
                         ::testing::Values(StoreMaker{
                             "memory", [](std::string*) -> std::unique_ptr<StoreUnderTest> {
                               auto store = std::make_unique<MemoryUnderTest>();
                               if (!store->fs().make_directories(store->root()).ok())
                                 return nullptr;
                               return store;
                             }}));

TEST(MemoryFileSystem, AReaderKeepsTheVersionItOpened) {
  MemoryFileSystem fs;
  ASSERT_OK(write_file(fs, "mem://x/file", "old"));
  auto reader = fs.open_read("mem://x/file", {});
  ASSERT_OK(reader);
  ASSERT_OK(write_file(fs, "mem://x/file", "new and longer"));
  EXPECT_EQ(*read_all(**reader, 100), "old");
  ASSERT_OK(fs.remove("mem://x/file", Recursive::kNo));
}

TEST(MemoryFileSystem, RemovedFilesGiveTheirSpaceBackOnce) {
  MemoryFileSystem fs({.incarnation = {}, .bytes_max = 100});
  auto log = fs.open_append("mem://x/log");
  ASSERT_OK(log);
  ASSERT_OK((*log)->append(bytes_of(std::string(80, 'x'))));
  EXPECT_CODE(write_file(fs, "mem://x/file", std::string(30, 'y')), kResourceExhausted);
  ASSERT_OK(fs.remove("mem://x/log", Recursive::kNo));
  ASSERT_OK((*log)->truncate(0));
  ASSERT_OK(write_file(fs, "mem://x/file", std::string(100, 'y')));
  EXPECT_CODE(write_file(fs, "mem://x/more", "z"), kResourceExhausted);
}

TEST(MemoryFileSystem, DotsInPathsAreRefused) {
  MemoryFileSystem fs;
  EXPECT_CODE(write_file(fs, "mem://x/a/../b", "text"), kInvalidArgument);
  EXPECT_CODE(write_file(fs, "/plain/path", "text"), kInvalidArgument);
}

}  // namespace
}  // namespace starling
