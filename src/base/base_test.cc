// The small types of base: status, clock, rng, log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/answer_by.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/status.h"
#include "base/thread.h"
#include "base/whole.h"

namespace starling {
namespace {

StatusOr<int> half(int n) {
  if (n % 2 != 0) return invalid_argument("{} is odd", n);
  return n / 2;
}

Status quarter(int n, int& out) {
  STARLING_ASSIGN_OR_RETURN(const int h, half(n));
  STARLING_ASSIGN_OR_RETURN(out, half(h));
  STARLING_RETURN_IF_ERROR(half(out * 2).status());
  return absl::OkStatus();
}

TEST(Status, MacrosReturnTheFirstError) {
  int out = 0;
  EXPECT_TRUE(quarter(8, out).ok());
  EXPECT_EQ(out, 2);
  EXPECT_EQ(message_of(quarter(6, out)), "3 is odd");
}

TEST(Status, ContextIsPutInFrontAndTheCodeStays) {
  const Status status = with_context(not_found("no row"), "table users");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(message_of(status), "table users: no row");
  EXPECT_TRUE(with_context(absl::OkStatus(), "x").ok());
  EXPECT_EQ(code_name(StatusCode::kDataLoss), "DATA_LOSS");
}

TEST(Whole, NumbersOfTheRangePass) {
  EXPECT_EQ(*whole_of<uint32_t>(0, "n"), 0U);
  EXPECT_EQ(*whole_of<uint32_t>(-0.0, "n"), 0U);
  EXPECT_EQ(*whole_of<uint32_t>(4294967295.0, "n"), UINT32_MAX);
  EXPECT_EQ(*whole_of<uint64_t>(4294967296.0, "n"), uint64_t{1} << 32);
  EXPECT_EQ(*whole_of<uint64_t>(0x1.fffffffffffffp63, "n"), UINT64_MAX - 2047);
}

TEST(Whole, WhatIsNoneIsNamedWithItsRange) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double value : {-1.0, 2.7, 4294967296.0, 1e30, kInfinity, -kInfinity, kNan}) {
    const auto whole = whole_of<uint32_t>(value, "t.admission.count");
    EXPECT_EQ(whole.status().code(), StatusCode::kInvalidArgument) << value;
    EXPECT_EQ(message_of(whole.status()),
              fmt::format("t.admission.count is {}, it must be a whole number in [0, 4294967295]",
                          value));
  }
  EXPECT_FALSE(whole_of<uint64_t>(0x1p64, "n").ok());
}

TEST(Check, SaysWhereAndWhy) {
  EXPECT_DEATH(STARLING_CHECK(1 == 2, "arithmetic"), "1 == 2 .arithmetic.");
}

TEST(Clock, AManualClockMovesOnlyWhenToldAndNeverBack) {
  ManualClock clock;
  const TimePoint start = clock.now();
  clock.advance(seconds(2));
  EXPECT_EQ(clock.now() - start, seconds(2));
  clock.advance_to(start + seconds(1));
  EXPECT_EQ(clock.now() - start, seconds(2));
  clock.advance_to(start + seconds(3));
  EXPECT_EQ(clock.now() - start, seconds(3));
}

TEST(Deadline, CountsDownAndSaturates) {
  ManualClock clock;
  const Deadline deadline = Deadline::in(clock, seconds(5));
  EXPECT_EQ(deadline.left(clock.now()), seconds(5));
  clock.advance(seconds(6));
  EXPECT_TRUE(deadline.passed(clock.now()));
  EXPECT_EQ(deadline.left(clock.now()), Duration::zero());
  EXPECT_TRUE(Deadline::in(clock, Duration::max()).is_never());
  EXPECT_FALSE(Deadline::never().passed(clock.now()));
  EXPECT_LT(deadline, Deadline::never());
}

TEST(Deadline, AWaitingRequestIsAnsweredWhileItsCallerListens) {
  ManualClock clock;
  const TimePoint now = clock.now();
  EXPECT_EQ(answer_by(Deadline(now + seconds(8)), now), now + seconds(7));
  EXPECT_EQ(answer_by(Deadline(now + seconds(100)), now), now + seconds(98));
  EXPECT_EQ(answer_by(Deadline(now - seconds(1)), now), now - seconds(1));
  EXPECT_EQ(answer_by(Deadline::never(), now), now + seconds(30));
}

// Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(Rng, PhiloxMatchesItsPublishedVectors) {
  using Block = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Frozen: stored rows depend on these numbers. Computed apart from this code, by Philox's
// definition.
TEST(Rng, DrawsNeverChange) {
  Rng rng(1, 2, 3);
  EXPECT_EQ(rng.next_u64(), 0x38a16920ca708f61u);
  EXPECT_EQ(rng.next_u64(), 0x065e0dcff8b34ea3u);
  EXPECT_EQ(rng.next_u64(), 0x5dd8743496b78fc8u);  // the second block
  EXPECT_EQ(Rng(42, 0xfedcba9876543210, UINT64_MAX).next_u64(), 0x76cac5aad2fe03eeu);
}

TEST(Rng, DrawsDependOnSeedStreamAndNumberAlone) {
  EXPECT_EQ(Rng(1, 2, 3).next_u64(), Rng(1, 2, 3).next_u64());
  EXPECT_NE(Rng(1, 2, 3).next_u64(), Rng(2, 2, 3).next_u64());
  EXPECT_NE(Rng(1, 2, 3).next_u64(), Rng(1, 3, 3).next_u64());
  EXPECT_NE(Rng(1, 2, 3).next_u64(), Rng(1, 2, 4).next_u64());
  EXPECT_EQ(mix64(0), 0xe220a8397b1dcdafu);  // first output of splitmix64 seeded with 0
}

TEST(Rng, BelowIsWithinItsBoundAndReachesAllOfIt) {
  Rng rng(7, 0, 0);
  std::array<int, 10> seen{};
  for (int i = 0; i < 10000; ++i) ++seen.at(rng.below(10));
  for (const int count : seen) EXPECT_NEAR(count, 1000, 200);
  EXPECT_EQ(rng.below(1), 0u);
}

TEST(Rng, NormalHasMeanZeroAndVarianceOne) {
  Rng rng(7, 1, 0);
  double sum = 0, squares = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = rng.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.02);
  EXPECT_NEAR(squares / kDraws, 1, 0.03);
}

TEST(Rng, UniformStaysBelowOne) {
  Rng rng(7, 2, 0);
  for (int i = 0; i < 100000; ++i) {
    const double x = rng.uniform();
    const float y = rng.uniform_float();
    ASSERT_TRUE(x >= 0 && x < 1 && y >= 0 && y < 1);
  }
}

TEST(Log, LinesCarryRoleAndNodeAndQuoteWhatNeedsIt) {
  std::vector<std::string> lines;
  const Log log({.role = "ps", .node = "3"},
                [&](std::string_view line) { lines.emplace_back(line); });
  log.info(
      "peer_gone",
      {{"peer", "10.0.0.7:9000"}, {"calls", 3}, {"reason", "reset by \"peer\"\n"}, {"empty", ""}});
  log.debug("unseen");
  log.with_node("4").warning("slow");
  EXPECT_THAT(
      lines,
      testing::ElementsAre(
          R"(ps/3 peer_gone peer=10.0.0.7:9000 calls=3 reason="reset by \"peer\"\n" empty="")",
          "ps/4 slow"));
}

TEST(Log, AFileThatCannotBeOpenedIsAnError) {
  EXPECT_EQ(Log::open({.file = "/proc/no/such/log"}).status().code(), StatusCode::kInvalidArgument);
}

TEST(Log, WritesToItsFile) {
  const std::string path = testing::TempDir() + "/starling_log_test";
  std::filesystem::remove(path);
  const StatusOr<Log> log = Log::open({.role = "hub", .file = path});
  log->info("full", {{"queue", 7}});
  // At once: a process that is killed leaves behind all that it said.
  std::string line;
  std::ifstream in(path);
  std::getline(in, line);
  EXPECT_THAT(line, testing::EndsWith("I hub full queue=7"));
  std::filesystem::remove(path);
}

TEST(Thread, IsJoinedWhenItsOwnerGoes) {
  bool ran = false;
  {
    Thread thread({.name = "runs"}, [&] { ran = true; });
  }
  EXPECT_TRUE(ran);
}

TEST(Thread, HasItsNameAndStaysOnItsCore) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  int core = 0;
  while (!CPU_ISSET(core, &before)) ++core;
  char name[16] = "";
  cpu_set_t there;
  Thread thread({.name = "a name of more than 15 bytes", .core = core}, [&] {
    pthread_getname_np(pthread_self(), name, sizeof(name));
    sched_getaffinity(0, sizeof(there), &there);
  });
  thread.join();
  EXPECT_STREQ(name, "a name of more ");
  EXPECT_EQ(CPU_COUNT(&there), 1);
  EXPECT_TRUE(CPU_ISSET(core, &there));
}

TEST(Thread, PinningToAMissingCoreIsAnError) {
  EXPECT_EQ(pin_this_thread(-1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pin_this_thread(1 << 20).code(), StatusCode::kInvalidArgument);
  EXPECT_GE(usable_cores(), 1);
}

}  // namespace
}  // namespace starling
