// Any bytes as a file of features, or as one record from another hub: what decodes is encoded
// again and must come back the same.
#include <string>
#include <vector>

#include "data/fuzz_testing.h"
#include "fuzz/fuzz.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file

std::shared_ptr<const Format> features() {
  static const auto format =
      Format::make({.name = "features"},
                   {{.name = "label", .kind = FieldKind::kLabel},
                    {.name = "a", .keys_max = 4},
                    {.name = "b", .transforms = {{"hash", {}}}, .fallback = "7"},
                    {.name = "d", .kind = FieldKind::kDense, .fallback = "1", .size = 2},
                    {.name = "i", .kind = FieldKind::kId},
                    {.name = "g", .kind = FieldKind::kGroup}})
          .value();
  return format;
}

SampleBlock small_block() {
  SampleBlock block(features()->schema());
  for (uint32_t i = 0; i < 3; ++i) {
    float* numbers = block.begin();
    for (uint32_t n = 0; n < features()->schema()->numbers(); ++n)
      numbers[n] = static_cast<float>(n);
    for (uint32_t k = 0; k < i; ++k) block.add_key(k, static_cast<Key>(k * 77));
    block.end(std::string(i, 'x'), i);
  }
  return block;
}

void check_record(std::span<const std::byte> bytes) {
  SampleBlock block(features()->schema());
  if (!decode_sample(text_of(bytes), block).ok()) {
    STARLING_CHECK(block.samples() == 0 && block.keys() == 0, "a refused record left something");
    return;
  }
  std::string record;
  encode_sample(block, 0, record);
  SampleBlock again(features()->schema());
  STARLING_CHECK(decode_sample(record, again).ok(), "what was decoded can be encoded");
  STARLING_CHECK(data_testing::told(again) == record, "a sample survives its record");
}

void check_file(std::span<const std::byte> bytes) {
  data_testing::check_parse(*features(), text_of(bytes));
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  const SampleBlock block = small_block();
  FuzzDecoder file{"file", check_file, {std::string()}};
  FuzzDecoder record{"record", check_record, {}};
  for (uint32_t i = 0; i < block.samples(); ++i) {
    std::string bytes;
    encode_sample(block, i, bytes);
    append_prefix(bytes.size(), file.seeds[0]);
    file.seeds[0] += bytes;
    record.seeds.push_back(std::move(bytes));
  }
  file.seeds.push_back(
      std::string("\x0d\x0a\x0b\x0a\x01"
                  "a\x19\x01\x02\x03\x04\x05\x06\x07\x08",
                  14));
  return {file, record};
}
