// Any bytes as csv with a header, as csv without one, or as the text of an expression.
#include <string>
#include <vector>

#include "data/expression.h"
#include "data/fuzz_testing.h"
#include "fuzz/fuzz.h"

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

void check_expression(std::span<const std::byte> bytes) {
  const StatusOr<Expression> expression = Expression::parse(text_of(bytes));
  if (!expression.ok()) return;
  const std::vector<std::string_view> values(expression->columns().size(), "3");
  double out = 0;
  uint32_t column = 0;
  STARLING_CHECK(!expression->evaluate(values, out, column) || column < values.size(),
                 "an expression of a column that it does not name");
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  using data_testing::check_parse;
  return {
      {"with_header",
       [](auto bytes) { check_parse(*with_header(), text_of(bytes)); },
       {"a,b\nx|y,3\n\"q,\"\"r\"\"\",-1\n", "\xef\xbb\xbf b , a \n 1 , \"x\" \r\n,\n"}},
      {"without_header",
       [](auto bytes) { check_parse(*without_header(), text_of(bytes)); },
       {"x|y::3\nz::9\n::\n", "x::7\n\"q::\"\"r\"\"\"::-1\r\n"}},
      {"expression",
       check_expression,
       {"b >= 2 and not (a in (\"x\", 'y', 3) or `a b` != 5)", "-a * (b + 0.5) / 2 < 1e3"}},
  };
}
