// Any bytes as lines of criteo, read by the quick way and by the slow one, which must agree.
#include <string>
#include <vector>

#include "data/criteo.h"
#include "data/criteo_testing.h"
#include "data/fuzz_testing.h"
#include "fuzz/fuzz.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file

std::shared_ptr<const Format> quick() {
  static const auto format = Format::make({.name = "criteo"}, {}).value();
  return format;
}

// A separator that no value has makes the format read every line by the builder.
std::shared_ptr<const Format> slow() {
  static const auto format = [] {
    std::vector<FieldOptions> fields = criteo_fields();
    fields[0].separator = "\x01";
    return Format::make({.name = "criteo"}, fields).value();
  }();
  return format;
}

std::string samples_of(const Format& format, std::string_view bytes) {
  SampleBlock block(format.schema());
  ParseCounts counts;
  data_testing::take_chunk(*format.parser({}).value(), bytes, 0, block, counts);
  return data_testing::told(block) + std::to_string(counts.bad);
}

void check(std::span<const std::byte> input) {
  const std::string_view bytes = text_of(input);
  data_testing::check_parse(*quick(), bytes);
  if (bytes.find('\x01') == bytes.npos) {
    STARLING_CHECK(samples_of(*quick(), bytes) == samples_of(*slow(), bytes),
                   "the quick and the slow way differ");
  }
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  std::vector<std::string> seeds(3);
  data_testing::append_criteo(1, 1, seeds[0]);
  data_testing::append_criteo(2, 4, seeds[1]);
  seeds[2] = std::string(39, '\t') + "\n0" + std::string(39, '\t') + "\r\n";
  return {{"criteo", check, seeds}};
}
