#include "net/backoff.h"

#include <gtest/gtest.h>

#include <set>

namespace starling {
namespace {

TEST(Backoff, DoublesToItsMaximumWithinTheUpperHalf) {
  Backoff backoff(milliseconds(10), milliseconds(100), 1);
  Duration span = milliseconds(10);
  for (int i = 0; i < 10; ++i) {
    const Duration wait = backoff.next();
    EXPECT_GE(wait, span / 2);
    EXPECT_LE(wait, span);
    span = std::min<Duration>(span * 2, milliseconds(100));
  }
}

TEST(Backoff, StartsAgainAfterASuccess) {
  Backoff backoff(milliseconds(10), seconds(10), 1);
  for (int i = 0; i < 8; ++i) backoff.next();
  EXPECT_GT(backoff.next(), milliseconds(10));
  backoff.reset();
  EXPECT_LE(backoff.next(), milliseconds(10));
}

TEST(Backoff, ClientsOfOneServerDoNotComeAllAtOnce) {
  std::set<Duration> waits;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    waits.insert(Backoff(milliseconds(100), seconds(1), seed).next());
  }
  EXPECT_GT(waits.size(), 90u);
}

TEST(Backoff, OneSeedGivesOneSequence) {
  Backoff a(milliseconds(5), seconds(1), 7);
  Backoff b(milliseconds(5), seconds(1), 7);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(a.next(), b.next());
}

}  // namespace
}  // namespace starling
