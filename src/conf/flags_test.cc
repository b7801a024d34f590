#include "conf/flags.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

using Arguments = std::vector<std::string>;

std::string error_of(Arguments arguments) {
  return std::string(message_of(take_flags(arguments).status()));
}

TEST(Flags, AreTakenInBothFormsAndTheRestStaysInOrder) {
  Arguments arguments = {"ps", "--job", "a.yaml",   "--set=x.y=1",   "--node",
                         "3",  "--set", "z={a: b}", "--print-config"};
  const StatusOr<Flags> flags = take_flags(arguments);
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->job, "a.yaml");
  EXPECT_EQ(flags->sets, (Arguments{"x.y=1", "z={a: b}"}));
  EXPECT_TRUE(flags->print_config);
  EXPECT_FALSE(flags->print_keys);
  EXPECT_EQ(arguments, (Arguments{"ps", "--node", "3"}));
}

TEST(Flags, WhatFollowsTwoDashesIsNotTouched) {
  Arguments arguments = {"--print-keys", "--", "--job", "x"};
  const StatusOr<Flags> flags = take_flags(arguments);
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_TRUE(flags->print_keys);
  EXPECT_EQ(flags->job, "");
  EXPECT_EQ(arguments, (Arguments{"--", "--job", "x"}));
}

TEST(Flags, MistakesAreNamed) {
  EXPECT_EQ(error_of({"--set"}), "--set: needs a value");
  EXPECT_EQ(error_of({"--job"}), "--job: needs a value");
  EXPECT_EQ(error_of({"--print-config=yes"}), "--print-config: takes no value");
  EXPECT_EQ(error_of({"--job=a", "--job=b"}), "--job: given twice, \"a\" and \"b\"");
}

}  // namespace
}  // namespace starling
