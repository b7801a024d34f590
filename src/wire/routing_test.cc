// The known answers that the comments of the .proto files give to writers of other clients.
#include <gtest/gtest.h>

#include <string_view>

#include "base/ids.h"
#include "base/rng.h"

namespace starling {
namespace {

constexpr uint64_t fnv(std::string_view name) {
  uint64_t f = 0xcbf29ce484222325;
  for (const char c : name) f = (f ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return f;
}

TEST(RoutingInTheProtoComments, HasTheMixOfTheTables) {
  EXPECT_EQ(mix64(0), 0xe220a8397b1dcdafU);
  EXPECT_EQ(mix64(1), 0x910a2dec89025cc1U);
}

TEST(RoutingInTheProtoComments, HasTheBucketsOfItsExamples) {
  EXPECT_EQ(mix64(0) >> 52, 3618U);
  EXPECT_EQ(mix64(1) >> 52, 2320U);
  EXPECT_EQ(mix64(fnv("w")) >> 52, 3674U);
  EXPECT_EQ(kBuckets, 4096U);
}

}  // namespace
}  // namespace starling
