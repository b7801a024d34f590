#include "store/local/file_system.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>

#include "store/conformance_suite.h"
#include "store/pages.h"
#include "store/read_ahead.h"
#include "store/test_tools.h"

namespace {

// The order in which the code under test makes things durable. The system's own functions are
// shadowed in this program, below; they write here while a test listens.
std::vector<std::string>* listener = nullptr;

void note(const char* what, const std::string& path) {
  if (listener != nullptr)
    listener->push_back(fmt::format("{} {}", what, path.substr(path.rfind('/') + 1)));
}

std::string path_of(int fd) {
  std::array<char, 4096> path{};
  const ssize_t length =
      ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), path.data(), path.size());
  return length < 0 ? "" : std::string(path.data(), static_cast<size_t>(length));
}

}  // namespace

extern "C" int fsync(int fd) {
  note("fsync", path_of(fd));
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  note("rename", to);
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace starling {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class LocalUnderTest final : public StoreUnderTest {
 public:
  LocalUnderTest() : fs_({.incarnation = kTestIncarnation}) {
    ::chmod(directory_.path().c_str(), 0755);
  }
  ~LocalUnderTest() override {
    if (!small_.empty()) ::umount2(small_.c_str(), MNT_DETACH);
  }

  FileSystem& fs() override { return fs_; }
  std::string root() const override { return directory_.path() + "/root"; }
  std::unique_ptr<FileSystem> as_process(Incarnation incarnation) override {
    return std::make_unique<LocalFileSystem>(LocalOptions{.incarnation = incarnation});
  }
  void fill_directory(const std::string& directory, int count) override {
    for (int i = 0; i < count; ++i) {
      ::close(::open(fmt::format("{}/e{:05}", directory, i).c_str(), O_CREAT | O_WRONLY, 0644));
    }
  }
  std::unique_ptr<FileSystem> as_nobody() override {
    ::chmod((root() + "/locked/file").c_str(), 0600);
    if (::geteuid() != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0) return nullptr;
    return std::make_unique<LocalFileSystem>();
  }
  std::string small_root(std::string* reason) override {
    const std::string path = directory_.path() + "/small";
    ::mkdir(path.c_str(), 0755);
    if (::mount("tmpfs", path.c_str(), "tmpfs", 0, "size=4m") != 0) {
      *reason = "mounting a tmpfs is not allowed; FaultyTest covers a full disk by the wrapper";
      return "";
    }
    small_ = path;
    return path;
  }

 private:
  TemporaryDirectory directory_;
  std::string small_;
  LocalFileSystem fs_;
};

INSTANTIATE_TEST_SUITE_P(Local, StoreConformance,
                         ::testing::Values(StoreMaker{
                             "local", [](std::string*) -> std::unique_ptr<StoreUnderTest> {
                               auto store = std::make_unique<LocalUnderTest>();
                               if (!store->fs().make_directories(store->root()).ok())
                                 return nullptr;
                               return store;
                             }}));

class LocalFileSystemTest : public ::testing::Test {
 protected:
  std::string at(std::string_view name) const {
    return directory_.path() + "/" + std::string(name);
  }

  TemporaryDirectory directory_;
  LocalFileSystem fs_;
};

TEST_F(LocalFileSystemTest, PublishSyncsTheFileThenRenamesThenSyncsTheDirectory) {
  std::vector<std::string> events;
  auto writer = fs_.open_write(at("new/file"), Existing::kReplace);
  ASSERT_OK(writer);
  ASSERT_OK((*writer)->write(bytes_of("text")));
  listener = &events;
  const Status status = (*writer)->publish();
  listener = nullptr;
  ASSERT_OK(status);
  EXPECT_THAT(events, ElementsAre(StartsWith("fsync .starling-"), "rename file", "fsync new"));
}

TEST_F(LocalFileSystemTest, NewDirectoriesAreMadeDurableInTheirParents) {
  std::vector<std::string> events;
  listener = &events;
  const Status status = fs_.make_directories(at("a/b/c"));
  listener = nullptr;
  ASSERT_OK(status);
  EXPECT_THAT(events, ElementsAre(StartsWith("fsync starling-"), "fsync a", "fsync b"));
}

TEST_F(LocalFileSystemTest, RenameSyncsTheNewDirectoryThenTheOld) {
  ASSERT_OK(write_file(fs_, at("old/x"), "x"));
  ASSERT_OK(fs_.make_directories(at("new")));
  std::vector<std::string> events;
  listener = &events;
  const Status status = fs_.rename(at("old/x"), at("new/y"), Existing::kReplace);
  listener = nullptr;
  ASSERT_OK(status);
  EXPECT_THAT(events, ElementsAre("rename y", "fsync new", "fsync old"));
}

TEST_F(LocalFileSystemTest, RemoveSyncsTheDirectory) {
  ASSERT_OK(write_file(fs_, at("d/x"), "x"));
  std::vector<std::string> events;
  listener = &events;
  const Status status = fs_.remove(at("d/x"), Recursive::kNo);
  listener = nullptr;
  ASSERT_OK(status);
  EXPECT_THAT(events, ElementsAre("fsync d"));
}

TEST_F(LocalFileSystemTest, OffsetsBeyondFourGigabytesAreRead) {
  const uint64_t hole = uint64_t{5} << 30;
  const int fd = ::open(at("sparse").c_str(), O_CREAT | O_WRONLY, 0644);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::pwrite(fd, "tail", 4, static_cast<off_t>(hole)), 4);
  ::close(fd);
  EXPECT_EQ(fs_.stat(at("sparse"))->bytes, hole + 4);
  auto reader = fs_.open_read(at("sparse"), {.offset = hole - 2, .bytes = 5});
  ASSERT_OK(reader);
  EXPECT_EQ(*read_all(**reader, 100), std::string("\0\0tai", 5));
  EXPECT_CODE(fs_.open_read(at("sparse"), {.offset = hole + 5}), kOutOfRange);
}

TEST_F(LocalFileSystemTest, AppendingGoesOnBehindFourGigabytes) {
  const uint64_t hole = uint64_t{5} << 30;
  const int fd = ::open(at("log").c_str(), O_CREAT | O_WRONLY, 0644);
  ASSERT_EQ(::ftruncate(fd, static_cast<off_t>(hole)), 0);
  ::close(fd);
  auto file = fs_.open_append(at("log"));
  ASSERT_OK(file);
  ASSERT_OK((*file)->append(bytes_of("tail")));
  ASSERT_OK((*file)->sync());
  EXPECT_EQ((*file)->size(), hole + 4);
  auto reader = fs_.open_read(at("log"), {.offset = hole});
  ASSERT_OK(reader);
  EXPECT_EQ(*read_all(**reader, 100), "tail");
}

// Around the page cache and through it by turns: aligned chunks, a tail, pieces of any size
// between.
TEST_F(LocalFileSystemTest, LargeAlignedWritesAndReadsMixWithOthers) {
  constexpr size_t kChunk = 1 << 20;
  const std::string data = random_bytes(3 * kChunk + 12'345, 1);
  for (const std::string& cuts : {std::string("aaa"), std::string("a1a"), std::string("1aa")}) {
    auto writer = fs_.open_write(at("file"), Existing::kReplace);
    ASSERT_OK(writer);
    const PageBuffer chunk = allocate_pages(kChunk);
    std::string_view left = data;
    for (const char cut : cuts) {
      const size_t count = cut == 'a' ? kChunk : 1;
      std::memcpy(chunk.get(), left.data(), count);
      ASSERT_OK((*writer)->write(std::span(chunk.get(), count)));
      left.remove_prefix(count);
    }
    ASSERT_OK((*writer)->write(bytes_of(left)));
    ASSERT_OK((*writer)->publish());
    EXPECT_TRUE(contents(fs_, at("file")) == data) << cuts;
  }
  for (const uint64_t offset : {uint64_t{0}, uint64_t{4096}, uint64_t{77}}) {
    auto reader = fs_.open_read(at("file"), {.offset = offset, .is_once = true});
    ASSERT_OK(reader);
    auto ahead = ReadAhead::start(*std::move(reader));
    ASSERT_OK(ahead);
    EXPECT_TRUE(*read_all(**ahead, data.size()) == std::string_view(data).substr(offset));
  }
}

TEST_F(LocalFileSystemTest, FileUrlsAndPlainPathsAreTheSameFile) {
  ASSERT_OK(write_file(fs_, "file://" + at("x"), "text"));
  EXPECT_EQ(contents(fs_, at("x")), "text");
  const auto found = fs_.list("file://" + at("*"));
  ASSERT_OK(found);
  EXPECT_EQ(found->at(0).url, "file://" + at("x"));
  EXPECT_CODE(fs_.stat("file://elsewhere/x"), kInvalidArgument);
  EXPECT_CODE(fs_.stat("hdfs://host:1/x"), kInvalidArgument);
}

TEST_F(LocalFileSystemTest, RelativePathsWork) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory_.path());
  EXPECT_OK(write_file(fs_, "rel.txt", "text"));
  const auto found = fs_.list("*.txt");
  EXPECT_OK(found);
  EXPECT_EQ(found->at(0).url, "rel.txt");
  std::filesystem::current_path(before);
}

TEST_F(LocalFileSystemTest, ANameAsLongAsTheSystemAllowsCanBePublished) {
  const std::string name(255, 'n');
  EXPECT_OK(write_file(fs_, at(name), "text"));
  EXPECT_CODE(write_file(fs_, at(name + "n"), "text"), kInvalidArgument);
}

TEST_F(LocalFileSystemTest, ALoopOfLinksIsNotWalkedForEver) {
  ASSERT_OK(write_file(fs_, at("d/file"), "x"));
  ASSERT_EQ(::symlink("..", at("d/up").c_str()), 0);
  const auto found = fs_.list(at("**/file"));
  ASSERT_OK(found);
  EXPECT_EQ(found->size(), 1u);
  EXPECT_OK(fs_.remove(at("d"), Recursive::kYes));
  EXPECT_TRUE(std::filesystem::exists(directory_.path()));
}

TEST_F(LocalFileSystemTest, ATreeDeeperThanAnyPathIsRemoved) {
  int fd = ::open(directory_.path().c_str(), O_RDONLY | O_DIRECTORY);
  for (int depth = 0; depth < 3000; ++depth) {
    ASSERT_EQ(::mkdirat(fd, "deep", 0755), 0);
    const int next = ::openat(fd, "deep", O_RDONLY | O_DIRECTORY);
    ::close(fd);
    fd = next;
  }
  ::close(fd);
  EXPECT_OK(fs_.remove(at("deep"), Recursive::kYes));
  EXPECT_FALSE(std::filesystem::exists(at("deep")));
}

TEST_F(LocalFileSystemTest, ErrorsNameThePathTheOperationAndTheReason) {
  const std::string text = test_status(fs_.open_read(at("missing"), {}));
  EXPECT_THAT(text, HasSubstr(at("missing") + ": open for reading: No such file or directory"));
}

}  // namespace
}  // namespace starling
