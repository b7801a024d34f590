#include "conf/units.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

TEST(Units, PlainNumbersAreInTheUnitOfTheirKey) {
  EXPECT_EQ(parse_whole("512", Unit::kNone), 512);
  EXPECT_EQ(parse_whole("-3", Unit::kNone), -3);
  EXPECT_EQ(parse_whole("500", Unit::kMilliseconds), 500);
  EXPECT_EQ(parse_whole("9223372036854775807", Unit::kBytes), 9223372036854775807);
}

TEST(Units, ExponentsAndFractionsAreFineWhenTheResultIsWhole) {
  EXPECT_EQ(parse_whole("1e6", Unit::kNone), 1'000'000);
  EXPECT_EQ(parse_whole("1.5GiB", Unit::kBytes), 1'610'612'736);
  EXPECT_EQ(parse_whole("0.5s", Unit::kMilliseconds), 500);
  EXPECT_EQ(parse_whole("1.5", Unit::kNone), std::nullopt);
  EXPECT_EQ(parse_whole("0.3B", Unit::kBytes), std::nullopt);
}

TEST(Units, SuffixesConvert) {
  EXPECT_EQ(parse_whole("2GiB", Unit::kBytes), int64_t{2} << 30);
  EXPECT_EQ(parse_whole("2GB", Unit::kBytes), 2'000'000'000);
  EXPECT_EQ(parse_whole("7B", Unit::kBytes), 7);
  EXPECT_EQ(parse_whole("2s", Unit::kMilliseconds), 2000);
  EXPECT_EQ(parse_whole("1h", Unit::kMinutes), 60);
  EXPECT_EQ(parse_whole("3d", Unit::kDays), 3);
  EXPECT_EQ(parse_whole("3000us", Unit::kMilliseconds), 3);
}

TEST(Units, WhatIsNotANumberOfTheUnitIsRefused) {
  for (const char* text : {"", "abc", "12abc", "0x10", "1 2", "inf", "nan", "1e999", "5e", "--5",
                           "+5", "2gib", "2s", "GiB"}) {
    EXPECT_EQ(parse_whole(text, Unit::kBytes), std::nullopt) << text;
  }
  EXPECT_EQ(parse_whole("1500us", Unit::kMilliseconds), std::nullopt) << "one and a half";
  EXPECT_EQ(parse_whole("2GiB", Unit::kNone), std::nullopt);
}

TEST(Units, NumbersThatDoNotFitAreRefused) {
  EXPECT_EQ(parse_whole("9223372036854775808", Unit::kNone), std::nullopt);
  EXPECT_EQ(parse_whole("9000000TiB", Unit::kBytes), std::nullopt);
}

TEST(Units, RealNumbers) {
  EXPECT_EQ(parse_real("0.05"), 0.05);
  EXPECT_EQ(parse_real("-1e-3"), -1e-3);
  EXPECT_EQ(parse_real("inf"), std::numeric_limits<double>::infinity());
  for (const char* text : {"", "nan", "0.05x", "1,5", " 1", "1e999"})
    EXPECT_EQ(parse_real(text), std::nullopt) << text;
}

TEST(Units, TruthInAnyCase) {
  for (const char* text : {"true", "True", "YES", "on", "1"})
    EXPECT_EQ(parse_truth(text), true) << text;
  for (const char* text : {"false", "FALSE", "No", "off", "0"})
    EXPECT_EQ(parse_truth(text), false) << text;
  for (const char* text : {"", "2", "maybe", "truee"})
    EXPECT_EQ(parse_truth(text), std::nullopt) << text;
}

TEST(Units, FormattedNumbersReadBackAsThemselves) {
  EXPECT_EQ(format_whole(int64_t{2} << 30, Unit::kBytes), "2GiB");
  EXPECT_EQ(format_whole(1'000'000, Unit::kBytes), "1000000B");
  EXPECT_EQ(format_whole(500, Unit::kMilliseconds), "500ms");
  EXPECT_EQ(format_whole(30, Unit::kMinutes), "30min");
  EXPECT_EQ(format_whole(kInfinite, Unit::kNone), "inf");
  for (const Unit unit : {Unit::kNone, Unit::kBytes, Unit::kMicroseconds, Unit::kSeconds,
                          Unit::kHours, Unit::kDays}) {
    for (const int64_t value :
         {int64_t{0}, int64_t{1}, int64_t{1536}, int64_t{1} << 30, int64_t{123456789}}) {
      EXPECT_EQ(parse_whole(format_whole(value, unit), unit), value) << format_whole(value, unit);
    }
  }
}

}  // namespace
}  // namespace starling
