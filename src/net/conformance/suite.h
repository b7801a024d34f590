// The fixture of the suite's tests and the instantiation over makers.
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
