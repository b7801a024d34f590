// What several tests of this room need: statuses that print, data that is known, directories that
// go away.
//
// Uses: gtest. Threads: any.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

#include "base/rng.h"
#include "base/status.h"
#include "store/file_system.h"

#define EXPECT_OK(expression) EXPECT_EQ(::starling::test_status(expression), "OK")
#define ASSERT_OK(expression) ASSERT_EQ(::starling::test_status(expression), "OK")
#define EXPECT_CODE(expression, expected) \
  EXPECT_TRUE(::starling::has_code(expression, ::starling::StatusCode::expected))

namespace starling {

inline Status test_only_status(const Status& status) { return status; }
template <typename T>
Status test_only_status(const StatusOr<T>& result) {
  return result.status();
}
template <typename T>
std::string test_status(const T& result) {
  return test_only_status(result).ToString();
}

template <typename T>
::testing::AssertionResult has_code(const T& result, StatusCode expected) {
  if (test_only_status(result).code() == expected) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << code_name(expected) << " was expected, not " << test_status(result);
}

// Bytes that depend on the seed alone and do not compress.
inline std::string random_bytes(size_t bytes, uint64_t seed) {
  Rng rng(seed, 0, 0);
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t word = rng.next_u64();
    for (size_t j = 0; j < 8 && i + j < bytes; ++j)
      text[i + j] = static_cast<char>(word >> (8 * j));
  }
  return text;
}

// Waits until `is_true()`; false after minutes, which only a fault can take.
template <typename Condition>
bool eventually(const Condition& is_true) {
  for (int i = 0; i < 60'000; ++i) {
    if (is_true()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "starling-XXXXXX").string();
    path_ = ::mkdtemp(name.data()) == nullptr ? "" : name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string contents(FileSystem& fs, std::string_view url) {
  const StatusOr<std::string> text = read_file(fs, url);
  return text.ok() ? *text : test_status(text);
}

// Gives a string, a few bytes at a time when `step` is small.
class StringReader final : public Reader {
 public:
  explicit StringReader(std::string text, size_t step = 1 << 20, std::string url = "test://bytes")
      : text_(std::move(text)), step_(step), url_(std::move(url)) {}
  StatusOr<size_t> read(std::span<std::byte> into) override {
    const size_t count = std::min({into.size(), step_, text_.size() - at_});
    std::memcpy(into.data(), text_.data() + at_, count);
    at_ += count;
    return count;
  }
  const std::string& url() const override { return url_; }

 private:
  const std::string text_;
  const size_t step_;
  const std::string url_;
  size_t at_ = 0;
};

}  // namespace starling
