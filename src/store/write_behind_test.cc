#include "store/write_behind.h"

#include <atomic>

#include "store/memory/file_system.h"
#include "store/test_tools.h"

namespace starling {
namespace {

// Counts the writes that reach it, holds them while it is closed, and fails from one on.
class ProbeWriter final : public Writer {
 public:
  struct Seen {
    Mutex mutex;
    CondVar changed;
    std::vector<size_t> writes ABSL_GUARDED_BY(mutex);
    bool is_open ABSL_GUARDED_BY(mutex) = true;
    bool is_published ABSL_GUARDED_BY(mutex) = false;
    size_t fails_at = SIZE_MAX;  // number of the write
  };
  explicit ProbeWriter(Seen& seen) : seen_(seen) {}
  Status write(std::span<const std::byte> bytes) override {
    MutexLock lock(seen_.mutex);
    while (!seen_.is_open) seen_.changed.wait(seen_.mutex, Deadline::never());
    if (seen_.writes.size() == seen_.fails_at) return resource_exhausted("full");
    seen_.writes.push_back(bytes.size());
    return absl::OkStatus();
  }
  Status publish() override {
    MutexLock lock(seen_.mutex);
    seen_.is_published = true;
    return absl::OkStatus();
  }
  const std::string& url() const override { return url_; }

 private:
  Seen& seen_;
  const std::string url_ = "test://probe";
};

std::unique_ptr<Writer> started(ProbeWriter::Seen& seen, WriteBehindOptions options) {
  auto writer = WriteBehind::start(std::make_unique<ProbeWriter>(seen), options);
  return writer.ok() ? *std::move(writer) : nullptr;
}

TEST(WriteBehind, TheFileHoldsTheBytesInOrder) {
  MemoryFileSystem fs;
  const std::string data = random_bytes(100'003, 1);
  for (const size_t step : {size_t{1}, size_t{999}, size_t{5000}}) {
    auto target = fs.open_write("mem://w/file", Existing::kReplace);
    ASSERT_OK(target);
    auto writer = WriteBehind::start(*std::move(target), {.chunk_bytes = 1000, .chunks = 3});
    ASSERT_OK(writer);
    for (size_t at = 0; at < data.size(); at += step) {
      ASSERT_OK((*writer)->write(bytes_of(data).subspan(at, std::min(step, data.size() - at))));
    }
    ASSERT_OK((*writer)->publish());
    EXPECT_TRUE(contents(fs, "mem://w/file") == data);
  }
}

TEST(WriteBehind, TheTargetGetsWholeChunksAndTheRest) {
  ProbeWriter::Seen seen;
  const auto writer = started(seen, {.chunk_bytes = 100, .chunks = 2});
  ASSERT_OK(writer->write(bytes_of(std::string(250, 'x'))));
  ASSERT_OK(writer->publish());
  MutexLock lock(seen.mutex);
  EXPECT_EQ(seen.writes, (std::vector<size_t>{100, 100, 50}));
  EXPECT_TRUE(seen.is_published);
}

TEST(WriteBehind, ItsOwnerWaitsWhenAllChunksAreFull) {
  ProbeWriter::Seen seen;
  {
    MutexLock lock(seen.mutex);
    seen.is_open = false;
  }
  const auto writer = started(seen, {.chunk_bytes = 100, .chunks = 2});
  ASSERT_OK(writer->write(bytes_of(std::string(200, 'x'))));
  std::atomic<bool> is_through = false;
  Thread owner({.name = "owner"}, [&] {
    EXPECT_OK(writer->write(bytes_of("y")));
    is_through = true;
  });
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(is_through);
  {
    MutexLock lock(seen.mutex);
    seen.is_open = true;
    seen.changed.notify_all();
  }
  owner.join();
  EXPECT_TRUE(is_through);
}

TEST(WriteBehind, AnErrorOfTheTargetIsToldAndNothingIsPublished) {
  ProbeWriter::Seen seen;
  seen.fails_at = 1;
  const auto writer = started(seen, {.chunk_bytes = 100, .chunks = 2});
  ASSERT_OK(writer->write(bytes_of(std::string(150, 'x'))));
  EXPECT_CODE(writer->publish(), kResourceExhausted);
  EXPECT_CODE(writer->write(bytes_of(std::string(150, 'x'))), kResourceExhausted);
  MutexLock lock(seen.mutex);
  EXPECT_FALSE(seen.is_published);
}

TEST(WriteBehind, GoingAwayPublishesNothing) {
  ProbeWriter::Seen seen;
  auto writer = started(seen, {.chunk_bytes = 100, .chunks = 2});
  ASSERT_OK(writer->write(bytes_of(std::string(150, 'x'))));
  writer.reset();
  MutexLock lock(seen.mutex);
  EXPECT_FALSE(seen.is_published);
}

TEST(WriteBehind, OptionsOutOfRangeAreRefused) {
  ProbeWriter::Seen seen;
  const auto start = [&](WriteBehindOptions options) {
    return WriteBehind::start(std::make_unique<ProbeWriter>(seen), options);
  };
  EXPECT_CODE(start({.chunk_bytes = 0, .chunks = 1}), kInvalidArgument);
  EXPECT_CODE(start({.chunk_bytes = 1, .chunks = 0}), kInvalidArgument);
  EXPECT_CODE(start({.chunk_bytes = SIZE_MAX, .chunks = 2}), kInvalidArgument);
}

}  // namespace
}  // namespace starling
