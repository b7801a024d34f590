#include "store/read_ahead.h"

#include <atomic>
#include <thread>

#include "store/test_tools.h"

namespace starling {
namespace {

// Counts what was taken from it, and can fail, or wait until it is interrupted.
class ProbeReader final : public Reader {
 public:
  ProbeReader(std::atomic<size_t>& taken, size_t bytes, Status end)
      : taken_(taken), left_(bytes), end_(std::move(end)) {}
  StatusOr<size_t> read(std::span<std::byte> into) override {
    const size_t count = std::min(into.size(), left_);
    if (count == 0 && !end_.ok()) return end_;
    left_ -= count;
    taken_ += count;
    return count;
  }
  const std::string& url() const override { return url_; }

 private:
  std::atomic<size_t>& taken_;
  size_t left_;
  const Status end_;
  const std::string url_ = "test://probe";
};

class WaitingReader final : public Reader {
 public:
  StatusOr<size_t> read(std::span<std::byte>) override {
    MutexLock lock(mutex_);
    while (!is_interrupted_) changed_.wait(mutex_, Deadline::never());
    return cancelled("interrupted");
  }
  void interrupt() override {
    MutexLock lock(mutex_);
    is_interrupted_ = true;
    changed_.notify_all();
  }
  const std::string& url() const override { return url_; }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool is_interrupted_ ABSL_GUARDED_BY(mutex_) = false;
  const std::string url_ = "test://waiting";
};

TEST(ReadAhead, BytesComeInOrder) {
  const std::string data = random_bytes(100'003, 1);
  for (const size_t step : {size_t{1}, size_t{999}, size_t{1 << 20}}) {
    auto reader = ReadAhead::start(std::make_unique<StringReader>(data, step),
                                   {.chunk_bytes = 1000, .chunks = 3});
    ASSERT_OK(reader);
    EXPECT_TRUE(*read_all(**reader, 1 << 20) == data);
    EXPECT_TRUE(read_all(**reader, 1 << 20)->empty());
  }
}

TEST(ReadAhead, ItReadsAheadButNotBeyondItsBuffer) {
  std::atomic<size_t> taken{0};
  auto reader = ReadAhead::start(std::make_unique<ProbeReader>(taken, 1 << 20, absl::OkStatus()),
                                 {.chunk_bytes = 100, .chunks = 4});
  ASSERT_OK(reader);
  EXPECT_TRUE(eventually([&] { return taken >= 400; }));
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(taken, 400u);
  std::array<std::byte, 100> some{};
  ASSERT_OK((*reader)->read(some));
  EXPECT_TRUE(eventually([&] { return taken >= 500; }));
  EXPECT_EQ(taken, 500u);
}

TEST(ReadAhead, AnErrorComesAfterTheBytesBeforeIt) {
  std::atomic<size_t> taken{0};
  auto reader = ReadAhead::start(std::make_unique<ProbeReader>(taken, 250, data_loss("broken")),
                                 {.chunk_bytes = 100, .chunks = 4});
  ASSERT_OK(reader);
  std::vector<std::byte> all(250);
  EXPECT_EQ(*read_full(**reader, all), 250u);
  EXPECT_CODE((*reader)->read(all), kDataLoss);
  EXPECT_CODE((*reader)->read(all), kDataLoss);
}

TEST(ReadAhead, GoingAwayInterruptsASourceThatWaits) {
  auto reader = ReadAhead::start(std::make_unique<WaitingReader>());
  ASSERT_OK(reader);
  reader->reset();
}

TEST(ReadAhead, GoingAwayWithAFullBufferIsFine) {
  std::atomic<size_t> taken{0};
  auto reader = ReadAhead::start(std::make_unique<ProbeReader>(taken, 1 << 30, absl::OkStatus()),
                                 {.chunk_bytes = 100, .chunks = 2});
  ASSERT_OK(reader);
  EXPECT_TRUE(eventually([&] { return taken >= 200; }));
  reader->reset();
  EXPECT_EQ(taken, 200u);
}

TEST(ReadAhead, OptionsOutOfRangeAreRefused) {
  EXPECT_CODE(ReadAhead::start(std::make_unique<StringReader>(""), {.chunk_bytes = 0, .chunks = 1}),
              kInvalidArgument);
  EXPECT_CODE(ReadAhead::start(std::make_unique<StringReader>(""), {.chunk_bytes = 1, .chunks = 0}),
              kInvalidArgument);
  EXPECT_CODE(
      ReadAhead::start(std::make_unique<StringReader>(""), {.chunk_bytes = SIZE_MAX, .chunks = 2}),
      kInvalidArgument);
}

}  // namespace
}  // namespace starling
