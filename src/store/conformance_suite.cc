#include "store/conformance_suite.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <functional>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/thread.h"
#include "store/pattern.h"
#include "store/temporary.h"
#include "store/test_tools.h"

namespace starling {

void StoreUnderTest::fill_directory(const std::string& directory, int count) {
  for (int i = 0; i < count; ++i)
    ASSERT_OK(fs().make_directories(fmt::format("{}/e{:05}", directory, i)));
}

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> names(const StatusOr<std::vector<FileInfo>>& entries) {
  std::vector<std::string> all;
  if (!entries.ok()) return {test_status(entries)};
  for (const FileInfo& entry : *entries) all.push_back(entry.name());
  return all;
}

// What `list` found, below the test's root.
std::vector<std::string> below(const std::string& root,
                               const StatusOr<std::vector<FileInfo>>& entries) {
  std::vector<std::string> all;
  if (!entries.ok()) return {test_status(entries)};
  for (const FileInfo& entry : *entries) all.push_back(entry.url.substr(root.size() + 1));
  return all;
}

// Runs in a forked child; its return value is the exit status.
int run_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int state = 0;
  ::waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 1000 + WTERMSIG(state);
}

TEST_P(StoreConformance, WhatIsPublishedReadsBack) {
  const std::string data = random_bytes((3 << 20) + 17, 1);
  auto writer = fs().open_write(at("a/b/file"));
  ASSERT_OK(writer);
  // Odd pieces, so that small and large writes follow each other.
  for (size_t i = 0, step = 1; i < data.size(); i += step, step = step * 3 + 1) {
    ASSERT_OK((*writer)->write(bytes_of(std::string_view(data).substr(i, step))));
  }
  ASSERT_OK((*writer)->publish());
  EXPECT_TRUE(contents(fs(), at("a/b/file")) == data);
  const auto info = fs().stat(at("a/b/file"));
  ASSERT_OK(info);
  EXPECT_EQ(info->bytes, data.size());
  EXPECT_FALSE(info->is_directory);
  EXPECT_EQ(info->url, at("a/b/file"));
  EXPECT_GT(info->modified_ms, 0);
}

TEST_P(StoreConformance, NothingIsSeenBeforePublish) {
  auto writer = fs().open_write(at("file"));
  ASSERT_OK(writer);
  ASSERT_OK((*writer)->write(bytes_of(random_bytes(2 << 20, 2))));
  EXPECT_CODE(fs().open_read(at("file")), kNotFound);
  EXPECT_EQ(*fs().exists(at("file")), false);
  EXPECT_THAT(names(fs().list(at("*"))), IsEmpty());
  ASSERT_OK((*writer)->publish());
  EXPECT_THAT(names(fs().list(at("*"))), ElementsAre("file"));
}

TEST_P(StoreConformance, AWriterThatGoesAwayLeavesNothing) {
  {
    auto writer = fs().open_write(at("d/file"));
    ASSERT_OK(writer);
    ASSERT_OK((*writer)->write(bytes_of("half")));
  }
  EXPECT_THAT(names(fs().list_directory(at("d"))), IsEmpty());
}

TEST_P(StoreConformance, APublishedWriterRefusesMore) {
  auto writer = fs().open_write(at("file"));
  ASSERT_OK(writer);
  ASSERT_OK((*writer)->publish());
  EXPECT_CODE((*writer)->write(bytes_of("more")), kFailedPrecondition);
  EXPECT_CODE((*writer)->publish(), kFailedPrecondition);
  EXPECT_EQ(contents(fs(), at("file")), "");
}

TEST_P(StoreConformance, PublishReplacesTheWholeFile) {
  ASSERT_OK(write_file(fs(), at("file"), "the long old text"));
  ASSERT_OK(write_file(fs(), at("file"), "new"));
  EXPECT_EQ(contents(fs(), at("file")), "new");
  EXPECT_THAT(names(fs().list_directory(store_->root())), ElementsAre("file"));
}

TEST_P(StoreConformance, AnExistingFileIsKeptWhenAsked) {
  ASSERT_OK(write_file(fs(), at("file"), "old"));
  EXPECT_CODE(write_file(fs(), at("file"), "new", Existing::kKeep), kAlreadyExists);
  EXPECT_EQ(contents(fs(), at("file")), "old");
  auto writer = fs().open_write(at("late"), Existing::kKeep);
  ASSERT_OK(writer);
  ASSERT_OK(write_file(fs(), at("late"), "first"));
  EXPECT_CODE((*writer)->publish(), kAlreadyExists);
  writer->reset();
  EXPECT_EQ(contents(fs(), at("late")), "first");
  EXPECT_THAT(names(fs().list_directory(store_->root())), ElementsAre("file", "late"));
}

TEST_P(StoreConformance, AnEmptyFileIsAFile) {
  ASSERT_OK(write_file(fs(), at("empty"), ""));
  EXPECT_EQ(contents(fs(), at("empty")), "");
  EXPECT_EQ(fs().stat(at("empty"))->bytes, 0u);
  EXPECT_OK(fs().open_read(at("empty"), {.offset = 0, .bytes = 10}));
  EXPECT_CODE(fs().open_read(at("empty"), {.offset = 1}), kOutOfRange);
}

TEST_P(StoreConformance, RangesAreReadExactly) {
  const std::string data = random_bytes(100'000, 3);
  ASSERT_OK(write_file(fs(), at("file"), data));
  const auto range = [&](uint64_t offset, uint64_t bytes) {
    auto reader = fs().open_read(at("file"), {.offset = offset, .bytes = bytes});
    return reader.ok() ? *read_all(**reader, 1 << 20) : test_status(reader);
  };
  EXPECT_TRUE(range(0, kToEnd) == data);
  EXPECT_TRUE(range(1, 99'998) == data.substr(1, 99'998));
  EXPECT_TRUE(range(50'000, kToEnd) == data.substr(50'000));
  EXPECT_TRUE(range(99'999, 500) == data.substr(99'999));
  EXPECT_EQ(range(10, 0), "");
  EXPECT_EQ(range(100'000, kToEnd), "");
  EXPECT_CODE(fs().open_read(at("file"), {.offset = 100'001}), kOutOfRange);
}

TEST_P(StoreConformance, WhatIsMissingIsNotFoundByName) {
  EXPECT_CODE(fs().open_read(at("no")), kNotFound);
  EXPECT_CODE(fs().stat(at("no/deeper")), kNotFound);
  EXPECT_CODE(fs().list_directory(at("no")), kNotFound);
  EXPECT_CODE(fs().list(at("no")), kNotFound);
  EXPECT_CODE(fs().remove(at("no")), kNotFound);
  EXPECT_CODE(fs().remove(at("no"), Recursive::kYes), kNotFound);
  EXPECT_CODE(fs().rename(at("no"), at("to")), kNotFound);
  EXPECT_EQ(*fs().exists(at("no")), false);
  EXPECT_THAT(test_status(fs().open_read(at("no"))), HasSubstr(at("no")));
  EXPECT_THAT(test_status(fs().remove(at("no"))), HasSubstr("remove"));
}

TEST_P(StoreConformance, NothingExistsBelowAFile) {
  ASSERT_OK(write_file(fs(), at("file"), "text"));
  EXPECT_CODE(fs().stat(at("file/below")), kNotFound);
  EXPECT_EQ(*fs().exists(at("file/below")), false);
  EXPECT_CODE(fs().open_read(at("file/below")), kNotFound);
  EXPECT_CODE(write_file(fs(), at("file/below"), "x"), kFailedPrecondition);
  EXPECT_CODE(fs().make_directories(at("file/below")), kFailedPrecondition);
  EXPECT_CODE(fs().make_directories(at("file")), kAlreadyExists);
  EXPECT_CODE(fs().list_directory(at("file")), kFailedPrecondition);
  EXPECT_THAT(names(fs().list(at("file/*"))), IsEmpty());
}

TEST_P(StoreConformance, ADirectoryIsNotAFile) {
  ASSERT_OK(fs().make_directories(at("d/e")));
  EXPECT_OK(fs().make_directories(at("d/e")));
  EXPECT_TRUE(fs().stat(at("d"))->is_directory);
  EXPECT_CODE(fs().open_read(at("d")), kFailedPrecondition);
  EXPECT_CODE(write_file(fs(), at("d"), "x"), kFailedPrecondition);
  EXPECT_CODE(fs().remove(at("d")), kFailedPrecondition);
  EXPECT_OK(fs().remove(at("d/e")));
  EXPECT_OK(fs().remove(at("d")));
  EXPECT_EQ(*fs().exists(at("d")), false);
}

TEST_P(StoreConformance, UnusualNamesAreKeptAsTheyAre) {
  const std::vector<std::string> unusual = {"two words", "100%25", "a+b=c&d",   "q?a#b;c",
                                            "[x]",       "*star",  "grün-日本", "'\"",
                                            ",@!$",      "~tilde", "a{b}|^`",   "%2F"};
  for (const std::string& name : unusual) {
    ASSERT_OK(write_file(fs(), at("dir x/" + name), "is " + name));
    EXPECT_EQ(contents(fs(), at("dir x/" + name)), "is " + name);
    EXPECT_THAT(names(fs().list(at("dir x/" + escape_pattern(name)))), ElementsAre(name));
  }
  std::vector<std::string> sorted = unusual;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(names(fs().list_directory(at("dir x"))), sorted);
  EXPECT_OK(fs().rename(at("dir x/100%25"), at("dir x/50% + 1")));
  EXPECT_EQ(contents(fs(), at("dir x/50% + 1")), "is 100%25");
  EXPECT_OK(fs().remove(at("dir x/two words")));
}

TEST_P(StoreConformance, TenThousandEntriesAreListed) {
  constexpr int kCount = 10'000;
  ASSERT_OK(fs().make_directories(at("many")));
  store_->fill_directory(at("many"), kCount);
  const auto entries = fs().list_directory(at("many"));
  ASSERT_OK(entries);
  ASSERT_EQ(entries->size(), static_cast<size_t>(kCount));
  for (int i = 0; i < kCount; ++i) ASSERT_EQ((*entries)[i].name(), fmt::format("e{:05}", i));
  EXPECT_EQ(fs().list(at("many/e0[0-4]*"))->size(), 5000u);
  EXPECT_OK(fs().remove(at("many"), Recursive::kYes));
  EXPECT_EQ(*fs().exists(at("many")), false);
}

TEST_P(StoreConformance, PatternsFindWhatTheySay) {
  for (const char* name :
       {"day_1.gz", "day_2.gz", "day_10.gz", "x/day_3.gz", "x/y/day_4.gz", ".hidden"}) {
    ASSERT_OK(write_file(fs(), at(name), "x"));
  }
  const auto found = [&](const char* pattern) {
    return below(store_->root(), fs().list(at(pattern)));
  };
  EXPECT_THAT(found("day_?.gz"), ElementsAre("day_1.gz", "day_2.gz"));
  EXPECT_THAT(found("day_[2-9]*"), ElementsAre("day_2.gz"));
  EXPECT_THAT(found("day_[!1]*"), ElementsAre("day_2.gz"));
  EXPECT_THAT(found("*"), ElementsAre("day_1.gz", "day_10.gz", "day_2.gz", "x"));
  EXPECT_THAT(found(".h*"), ElementsAre(".hidden"));
  EXPECT_THAT(found("*/*"), ElementsAre("x/day_3.gz", "x/y"));
  EXPECT_THAT(found("*/y/*.gz"), ElementsAre("x/y/day_4.gz"));
  EXPECT_THAT(found("*/day_3.gz"), ElementsAre("x/day_3.gz"));
  EXPECT_THAT(found("**/day_[34].gz"), ElementsAre("x/day_3.gz", "x/y/day_4.gz"));
  EXPECT_THAT(found("**/*.gz"),
              ElementsAre("day_1.gz", "day_10.gz", "day_2.gz", "x/day_3.gz", "x/y/day_4.gz"));
  EXPECT_THAT(found("x/**"), ElementsAre("x/day_3.gz", "x/y", "x/y/day_4.gz"));
  EXPECT_THAT(found("day_1.gz"), ElementsAre("day_1.gz"));
  EXPECT_THAT(found("nothing*"), IsEmpty());
  EXPECT_THAT(found("no/such/*"), IsEmpty());
  EXPECT_CODE(fs().list(at("day_[1")), kInvalidArgument);
}

TEST_P(StoreConformance, ADeepTreeIsRemovedWhole) {
  std::string path = at("deep");
  for (int depth = 0; depth < 150; ++depth) path += "/d";
  ASSERT_OK(write_file(fs(), path + "/leaf", "x"));
  ASSERT_OK(write_file(fs(), at("deep/d/d/side"), "x"));
  EXPECT_CODE(fs().remove(at("deep")), kFailedPrecondition);
  EXPECT_EQ(contents(fs(), path + "/leaf"), "x");
  EXPECT_OK(fs().remove(at("deep"), Recursive::kYes));
  EXPECT_EQ(*fs().exists(at("deep")), false);
}

TEST_P(StoreConformance, RenameReplacesFilesAndNeverMovesInto) {
  ASSERT_OK(write_file(fs(), at("a"), "A"));
  ASSERT_OK(write_file(fs(), at("b"), "B"));
  EXPECT_CODE(fs().rename(at("a"), at("b"), Existing::kKeep), kAlreadyExists);
  EXPECT_EQ(contents(fs(), at("b")), "B");
  EXPECT_OK(fs().rename(at("a"), at("b")));
  EXPECT_EQ(contents(fs(), at("b")), "A");
  EXPECT_EQ(*fs().exists(at("a")), false);
  EXPECT_OK(fs().rename(at("b"), at("c"), Existing::kKeep));
  ASSERT_OK(write_file(fs(), at("full/x"), "X"));
  ASSERT_OK(fs().make_directories(at("other")));
  EXPECT_CODE(fs().rename(at("c"), at("full")), kFailedPrecondition);
  EXPECT_CODE(fs().rename(at("c"), at("other")), kFailedPrecondition);
  EXPECT_CODE(fs().rename(at("other"), at("full")), kFailedPrecondition);
  EXPECT_CODE(fs().rename(at("c"), at("no/such/c")), kNotFound);
  EXPECT_EQ(contents(fs(), at("c")), "A");
  EXPECT_OK(fs().rename(at("full"), at("other")));
  EXPECT_EQ(contents(fs(), at("other/x")), "X");
}

TEST_P(StoreConformance, OnlyTheTemporariesOfTheFencedAreRemoved) {
  const Incarnation dead{0xdead};
  const auto other = store_->as_process(dead);
  auto abandoned = other->open_write(at("d/file"));
  auto living = fs().open_write(at("d/file"));
  ASSERT_OK(abandoned);
  ASSERT_OK(living);
  ASSERT_OK((*living)->write(bytes_of("whole")));
  // A data node makes its file some time after it has taken the connection.
  ASSERT_TRUE(eventually([&] { return fs().list_directory(at("d"))->size() == 2; }));
  const auto removed =
      remove_abandoned(fs(), store_->root(), [&](Incarnation i) { return i == dead; });
  ASSERT_OK(removed);
  EXPECT_EQ(*removed, 1u);
  EXPECT_OK((*living)->publish());
  EXPECT_EQ(contents(fs(), at("d/file")), "whole");
  EXPECT_FALSE((*abandoned)->publish().ok());
  EXPECT_EQ(contents(fs(), at("d/file")), "whole");
}

// A version is one letter, repeated; its length tells the letter.
std::string version_bytes(int version) {
  return std::string(200'000 + static_cast<size_t>(version) * 1000,
                     static_cast<char>('a' + version % 26));
}

bool is_version(const std::string& text) {
  if (text.size() < 200'000 || text.size() % 1000 != 0) return false;
  return text == version_bytes(static_cast<int>((text.size() - 200'000) / 1000));
}

TEST_P(StoreConformance, ConcurrentReadersSeeWholeVersions) {
  ASSERT_OK(write_file(fs(), at("file"), version_bytes(0)));
  std::atomic<bool> done{false};
  std::atomic<int> whole{0};
  std::atomic<int> replaced{0};
  std::vector<Thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back(ThreadOptions{.name = "reader", .core = {}}, [&] {
      while (!done) {
        const StatusOr<std::string> text = read_file(fs(), at("file"));
        if (text.ok()) {
          EXPECT_TRUE(is_version(*text)) << text->size();
          ++whole;
        } else {
          // HDFS takes the blocks of a replaced file away from under its readers, and says so.
          EXPECT_CODE(text, kAborted);
          ++replaced;
        }
      }
    });
  }
  for (int version = 1; version <= 40; ++version)
    EXPECT_OK(write_file(fs(), at("file"), version_bytes(version)));
  // On a busy machine the readers may not have had a turn yet.
  EXPECT_TRUE(eventually([&] { return whole > 0; })) << replaced;
  done = true;
  readers.clear();
}

// Calls `step` before, between and after the calls that write a version; 8 times in all.
void write_in_steps(FileSystem& fs, const std::string& url, const std::string& data,
                    const std::function<void()>& step) {
  step();
  auto writer = fs.open_write(url);
  step();
  for (size_t i = 0; i < 4; ++i) {
    const size_t begin = i * data.size() / 4;
    const size_t end = (i + 1) * data.size() / 4;
    (void)(*writer)->write(bytes_of(std::string_view(data).substr(begin, end - begin)));
    step();
  }
  (void)(*writer)->publish();
  step();
  step();
}

TEST_P(StoreConformance, PublishIsAtomicWhereverTheWriterIsKilled) {
  if (!store_->outlives_processes()) GTEST_SKIP() << "these files live and die with the process";
  ASSERT_OK(write_file(fs(), at("file"), version_bytes(0)));
  std::map<bool, int> seen;
  for (int kill = 0; kill < store_->kills(); ++kill) {
    const int point = kill % 8;
    // Every other round the writer waits for the blow there; else it comes inside the next call.
    const bool does_wait = kill / 8 % 2 == 0;
    std::array<int, 2> steps{};
    ASSERT_EQ(::pipe(steps.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto own = store_->as_process(Incarnation{0xbeef});
      write_in_steps(*own, at("file"), version_bytes(kill + 1), [&, taken = 0]() mutable {
        (void)!::write(steps[1], "s", 1);
        while (does_wait && taken == point) ::pause();
        ++taken;
      });
      ::_exit(0);
    }
    ::close(steps[1]);
    char letter = 0;
    for (int i = 0; i <= point && ::read(steps[0], &letter, 1) == 1; ++i) {
    }
    // A little later each round.
    if (!does_wait) {
      ::usleep(static_cast<useconds_t>(Rng(kill, 0, 0).below(point == 5 ? 3000 : 300)));
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(steps[0]);
    const std::string text = contents(fs(), at("file"));
    ASSERT_TRUE(is_version(text)) << text.size() << " bytes at point " << point;
    ++seen[text == version_bytes(kill + 1)];
  }
  EXPECT_GT(seen[false], 0);
  EXPECT_GT(seen[true], 0);
  // What the dead left is theirs by name, and goes when they are fenced. A data node may still be
  // about to make a file of theirs.
  EXPECT_TRUE(eventually([&] {
    EXPECT_OK(remove_abandoned(fs(), store_->root(),
                               [](Incarnation i) { return i == Incarnation{0xbeef}; }));
    return names(fs().list_directory(store_->root())) == std::vector<std::string>{"file"};
  }));
}

TEST_P(StoreConformance, WithoutPermissionItIsDenied) {
  ASSERT_OK(write_file(fs(), at("locked/file"), "secret"));
  const int result = run_child([&] {
    const auto nobody = store_->as_nobody();
    if (nobody == nullptr) return 200;
    const std::string data = random_bytes(4 << 20, 1);
    const Status reading = read_file(*nobody, at("locked/file")).status();
    const Status writing = write_file(*nobody, at("locked/new"), data);
    const Status removing = nobody->remove(at("locked/file"));
    const bool said = test_status(writing).find(at("locked/new")) != std::string::npos;
    const auto denied = [](const Status& s) { return s.code() == StatusCode::kPermissionDenied; };
    for (const Status& status : {reading, writing, removing}) {
      if (!denied(status)) ::fprintf(stderr, "not denied: %s\n", test_status(status).c_str());
    }
    return denied(reading) && denied(writing) && denied(removing) && said ? 0 : 1;
  });
  if (result == 200) GTEST_SKIP() << "no rights in this store, or no right to become somebody else";
  EXPECT_EQ(result, 0);
  EXPECT_EQ(contents(fs(), at("locked/file")), "secret");
}

TEST_P(StoreConformance, AFullDiskIsResourceExhaustedAndLeavesTheOldFile) {
  std::string reason;
  const std::string root = store_->small_root(&reason);
  if (root.empty()) GTEST_SKIP() << reason;
  ASSERT_OK(write_file(fs(), root + "/file", "old"));
  const Status status = write_file(fs(), root + "/file", random_bytes(8 << 20, 1));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << test_status(status);
  EXPECT_THAT(test_status(status), HasSubstr(root + "/file"));
  EXPECT_EQ(contents(fs(), root + "/file"), "old");
  EXPECT_THAT(names(fs().list_directory(root)), ElementsAre("file"));
  EXPECT_OK(write_file(fs(), root + "/file", random_bytes(1 << 20, 2)));
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreConformance);

}  // namespace
}  // namespace starling
