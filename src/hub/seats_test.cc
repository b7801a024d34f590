#include "hub/seats.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace starling {
namespace {

TEST(Seats, BatchesGoAroundTheRanks) {
  const Seats seats(3, 8);
  EXPECT_EQ(seats.place(10, 0), (Seats::Place{10, 0}));
  EXPECT_EQ(seats.place(10, 5), (Seats::Place{11, 2}));
  EXPECT_EQ(seats.batches(10, 12), 6U);
}

TEST(Seats, WhoeverJoinsSitsDownAtItsClock) {
  Seats seats(2, 8);
  seats.set(12, 3);
  EXPECT_EQ(seats.ranks_at(11), 2U);
  EXPECT_EQ(seats.ranks_at(12), 3U);
  EXPECT_EQ(seats.place(10, 3), (Seats::Place{11, 1}));
  EXPECT_EQ(seats.place(10, 4), (Seats::Place{12, 0}));
  EXPECT_EQ(seats.place(10, 6), (Seats::Place{12, 2}));
  EXPECT_EQ(seats.place(10, 7), (Seats::Place{13, 0}));
  EXPECT_EQ(seats.batches(10, 14), 10U);
}

TEST(Seats, AreNeverFewerAndNeverMoreThanThereIsRoom) {
  Seats seats(2, 4);
  seats.set(5, 3);
  seats.set(9, 2);
  EXPECT_EQ(seats.ranks_at(9), 3U);
  seats.set(12, 7);
  EXPECT_EQ(seats.ranks_at(12), 4U);
  seats.set(5, 4);  // told again
  EXPECT_EQ(seats.ranks_at(5), 3U);
}

// Against counting row by row.
TEST(Seats, EveryBatchHasOnePlaceInTheOrderOfRows) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto draw = [&](uint64_t number, uint64_t below) {
      return Rng(seed, 1, number).next_u64() % below;
    };
    Seats seats(static_cast<uint32_t>(1 + draw(0, 4)), 16);
    uint64_t clock = 0;
    for (uint64_t i = 1; i < 5; ++i) {
      clock += 1 + draw(i, 6);
      seats.set(clock, static_cast<uint32_t>(draw(i + 10, 16)));
    }
    const uint64_t first = draw(20, 12);
    uint64_t number = 0;
    for (uint64_t row = first; row < first + 30; ++row) {
      EXPECT_EQ(seats.batches(first, row), number);
      for (uint32_t rank = 0; rank < seats.ranks_at(row); ++rank) {
        EXPECT_EQ(seats.place(first, number++), (Seats::Place{row, rank})) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace starling
