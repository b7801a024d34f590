// Any bytes as a file of features, and as one record from another hub: what decodes is encoded
// again and must come back the same.
#include <string>
#include <vector>

#include "data/fuzz_testing.h"

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

}  // namespace

std::vector<std::string> fuzz_seeds() {
  const SampleBlock block = small_block();
  std::vector<std::string> seeds(1);
  for (uint32_t i = 0; i < block.samples(); ++i) {
    std::string record;
    encode_sample(block, i, record);
    append_prefix(record.size(), seeds[0]);
    seeds[0] += record;
    seeds.push_back(std::move(record));
  }
  seeds.push_back(
      std::string("\x0d\x0a\x0b\x0a\x01"
                  "a\x19\x01\x02\x03\x04\x05\x06\x07\x08",
                  14));
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  data_testing::check_parse(*features(), bytes);
  SampleBlock block(features()->schema());
  if (!decode_sample(bytes, block).ok()) {
    STARLING_CHECK(block.samples() == 0 && block.keys() == 0, "a refused record left something");
    return 0;
  }
  std::string record;
  encode_sample(block, 0, record);
  SampleBlock again(features()->schema());
  STARLING_CHECK(decode_sample(record, again).ok(), "what was decoded can be encoded");
  STARLING_CHECK(data_testing::told(again) == record, "a sample survives its record");
  return 0;
}
