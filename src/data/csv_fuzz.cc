// Any bytes as csv with a header, as csv without one, and as the text of an expression.
#include <string>
#include <vector>

#include "data/expression.h"
#include "data/fuzz_testing.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file

const std::vector<FieldOptions> kFields = {
    {.name = "a", .separator = "|"},
    {.name = "b", .transforms = {{"bucketise", {{"b0", 0}, {"b1", 5}}}}},
    {.name = "ab", .cross = {"a", "b"}},
    {.name = "d", .kind = FieldKind::kDense, .column = "b", .transforms = {{"log", {}}}},
    {.name = "i", .kind = FieldKind::kId, .column = "a"}};

std::shared_ptr<const Format> with_header() {
  static const auto format =
      Format::make(
          {.name = "csv", .header = true, .label = "b >= 2 or a in ('x', 'y')", .trim = true},
          kFields)
          .value();
  return format;
}

std::shared_ptr<const Format> without_header() {
  static const auto format = Format::make({.name = "csv",
                                           .delimiter = "::",
                                           .columns = {"a", "b"},
                                           .split = {{"below", {}}, "b", {"7"}},
                                           .negatives_rate = 0.5},
                                          kFields)
                                 .value();
  return format;
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  return {"a,b\nx|y,3\n\"q,\"\"r\"\"\",-1\n", "\xef\xbb\xbf b , a \n 1 , \"x\" \r\n,\n",
          "x|y::3\nz::9\n::\n", "b >= 2 and not (a in (\"x\", 'y', 3) or `a b` != 5)"};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  data_testing::check_parse(*with_header(), bytes);
  data_testing::check_parse(*without_header(), bytes);
  const StatusOr<Expression> expression = Expression::parse(bytes);
  if (!expression.ok()) return 0;
  const std::vector<std::string_view> values(expression->columns().size(), "3");
  double out = 0;
  uint32_t column = 0;
  STARLING_CHECK(!expression->evaluate(values, out, column) || column < values.size(),
                 "an expression of a column that it does not name");
  return 0;
}
