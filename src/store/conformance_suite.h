// StoreUnderTest is what the conformance suite needs to know of a maker; a maker's test
// instantiates the suite with one.
//
// Uses: gtest. Threads: tests only.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "base/ids.h"
#include "store/file_system.h"

namespace starling {

// What the incarnation of the test's own process is; others are other processes.
inline constexpr Incarnation kTestIncarnation{0x1234};

class StoreUnderTest {
 public:
  virtual ~StoreUnderTest() = default;
  virtual FileSystem& fs() = 0;
  // A directory that nobody else uses; gone with this object.
  virtual std::string root() const = 0;
  // The same store as another process sees it. Makes everything it needs anew: it is called after
  // fork() too.
  virtual std::unique_ptr<FileSystem> as_process(Incarnation incarnation) = 0;
  // False when the files are seen by this process alone.
  virtual bool outlives_processes() const { return true; }
  // How many times the suite kills a writer.
  virtual int kills() const { return 40; }
  // Makes `count` entries in a directory, the quickest way there is.
  virtual void fill_directory(const std::string& directory, int count);
  // The same store as a user without rights; called in a forked child. Null: there are no rights
  // here.
  virtual std::unique_ptr<FileSystem> as_nobody() { return nullptr; }
  // A directory into which 1 MiB fits and 8 MiB do not; empty, with the reason, where that cannot
  // be had.
  virtual std::string small_root(std::string* reason) = 0;
};

struct StoreMaker {
  std::string name;
  // Null, with the reason, when the store cannot be had here.
  std::function<std::unique_ptr<StoreUnderTest>(std::string* reason)> make;
};

inline void PrintTo(const StoreMaker& maker, std::ostream* out) { *out << maker.name; }

class StoreConformance : public ::testing::TestWithParam<StoreMaker> {
 protected:
  void SetUp() override {
    std::string reason;
    store_ = GetParam().make(&reason);
    if (store_ == nullptr) GTEST_SKIP() << reason;
  }
  FileSystem& fs() { return store_->fs(); }
  std::string at(std::string_view name) const { return store_->root() + "/" + std::string(name); }

  std::unique_ptr<StoreUnderTest> store_;
};

}  // namespace starling
