// Any bytes as multislot, libsvm and libffm.
#include <string>
#include <vector>

#include "data/fuzz_testing.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file

std::vector<std::shared_ptr<const Format>> make_formats() {
  const FieldOptions label{.name = "label", .kind = FieldKind::kLabel};
  const FieldOptions keys{.name = "k", .keys_max = 3};
  const FieldOptions dense{.name = "d", .kind = FieldKind::kDense, .size = 2};
  const FieldOptions pair{.name = "p", .kind = FieldKind::kDense, .column = "2", .size = 2};
  const FieldOptions buckets{.name = "b", .transforms = {{"bucketise", {{"b0", 0.5}}}}};
  return {
      Format::make({.name = "multislot", .with_id = true, .with_content = true},
                   {label, keys, dense})
          .value(),
      Format::make({.name = "multislot"}, {label, keys, dense}).value(),
      Format::make({.name = "libsvm"}, {label, keys}).value(),
      Format::make({.name = "libsvm"}, {label, buckets, pair}).value(),
      Format::make({.name = "libffm"}, {label, keys, buckets, pair}).value(),
  };
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  return {"1 id-7 1 text 1 1 2 5 18446744073709551615 2 0.5 -1\n", "1 0 0 2 1 2\n1 1 1 7 2 3 4\n",
          "+1 qid:3 1:1 2:0.5 7:1 # note\n-1\n", "1 0:3:1 1:4:0.5 2:1:9\n0 0:1:1\n"};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto formats = make_formats();
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const auto& format : formats) data_testing::check_parse(*format, bytes);
  return 0;
}
