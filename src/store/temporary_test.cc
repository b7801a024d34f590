#include "store/temporary.h"

#include "store/memory/file_system.h"
#include "store/test_tools.h"

namespace starling {
namespace {

TEST(Temporary, NamesCarryTheirWriter) {
  const std::string name = temporary_name(Incarnation{0x0123456789abcdef}, 7);
  EXPECT_EQ(name, ".starling-0123456789abcdef-0000000000000007.tmp");
  EXPECT_EQ(incarnation_of_temporary(name), Incarnation{0x0123456789abcdef});
}

TEST(Temporary, OtherNamesHaveNoWriter) {
  for (const char* name :
       {"", "file", ".starling-", ".starling-0123456789abcdef-0000000000000007.tm",
        ".starling-0123456789abcdeg-0000000000000007.tmp",
        ".starling-0123456789abcdef_0000000000000007.tmp",
        "xstarling-0123456789abcdef-0000000000000007.tmp",
        ".starling-0123456789abcdef-000000000000000x.tmp"}) {
    EXPECT_EQ(incarnation_of_temporary(name), std::nullopt) << name;
  }
}

TEST(Temporary, TwoFileSystemsOfOneProcessDoNotMeet) {
  TemporaryNames a(Incarnation{1});
  TemporaryNames b(Incarnation{1});
  EXPECT_NE(a.next(), b.next());
}

TEST(Temporary, AbandonedOnesAreFoundInAllDirectoriesBelow) {
  MemoryFileSystem fs({.incarnation = Incarnation{1}});
  ASSERT_OK(write_file(fs, "mem://x/a/" + temporary_name(Incarnation{2}, 1), "x"));
  ASSERT_OK(write_file(fs, "mem://x/a/b/c/" + temporary_name(Incarnation{2}, 2), "x"));
  ASSERT_OK(write_file(fs, "mem://x/a/b/" + temporary_name(Incarnation{3}, 1), "x"));
  const auto removed =
      remove_abandoned(fs, "mem://x/a", [](Incarnation i) { return i == Incarnation{2}; });
  ASSERT_OK(removed);
  EXPECT_EQ(*removed, 2u);
  EXPECT_EQ(fs.list_directory("mem://x/a/b")->size(), 2u);
  EXPECT_CODE(remove_abandoned(fs, "mem://x/none", [](Incarnation) { return true; }), kNotFound);
}

}  // namespace
}  // namespace starling
