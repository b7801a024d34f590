// The fixture of the suite's tests and the instantiation over makers.
//
// Every case runs over every maker that it speaks of, bare and wrapped in `faulty` without faults
// (the wrapper must change nothing); Faults runs every maker under every profile of faults. Not
// wrapped are
//   Lent, Silence, UnixSocket: the test plays the client itself, below the door at which the
//     wrapper stands, or asks which socket was taken;
//   SimulatedNetwork: has its own faults, by seed;
//   the wish for an order, an exact count or a time, under faults that lose, repeat or delay: those
//     cases ask for what such a net does not give.
//
// Uses: net, Google Test. Threads: one per test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/conformance/world.h"

namespace starling::conformance {

class Conformance : public testing::TestWithParam<Maker> {};

inline std::string maker_name(const testing::TestParamInfo<Maker>& info) { return info.param.name; }

// One of the codes, or the message says which one it was.
inline testing::AssertionResult code_is(const Status& status, StatusCode code) {
  if (status.code() == code) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << status.ToString() << " where " << code_name(code) << " was due";
}

}  // namespace starling::conformance

// Over every maker, bare and wrapped without faults.
#define STARLING_OVER_ALL_MAKERS(suite)                                                          \
  INSTANTIATE_TEST_SUITE_P(All, suite, testing::ValuesIn(::starling::conformance::all_makers()), \
                           ::starling::conformance::maker_name)
