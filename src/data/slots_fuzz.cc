// Any bytes as multislot, libsvm or libffm.
#include <string>
#include <vector>

#include "data/fuzz_testing.h"
#include "fuzz/fuzz.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file

const FieldOptions kLabel{.name = "label", .kind = FieldKind::kLabel};
const FieldOptions kKeys{.name = "k", .keys_max = 3};
const FieldOptions kDense{.name = "d", .kind = FieldKind::kDense, .size = 2};
const FieldOptions kPair{.name = "p", .kind = FieldKind::kDense, .column = "2", .size = 2};
const FieldOptions kBuckets{.name = "b", .transforms = {{"bucketise", {{"b0", 0.5}}}}};

std::shared_ptr<const Format> make(const FormatOptions& options,
                                   const std::vector<FieldOptions>& fields) {
  return Format::make(options, fields).value();
}

void check_marked_slots(std::span<const std::byte> bytes) {
  static const auto format =
      make({.name = "multislot", .with_id = true, .with_content = true}, {kLabel, kKeys, kDense});
  data_testing::check_parse(*format, text_of(bytes));
}

void check_slots(std::span<const std::byte> bytes) {
  static const auto format = make({.name = "multislot"}, {kLabel, kKeys, kDense});
  data_testing::check_parse(*format, text_of(bytes));
}

void check_libsvm(std::span<const std::byte> bytes) {
  static const auto one = make({.name = "libsvm"}, {kLabel, kKeys});
  static const auto fields = make({.name = "libsvm"}, {kLabel, kBuckets, kPair});
  data_testing::check_parse(*one, text_of(bytes));
  data_testing::check_parse(*fields, text_of(bytes));
}

void check_libffm(std::span<const std::byte> bytes) {
  static const auto format = make({.name = "libffm"}, {kLabel, kKeys, kBuckets, kPair});
  data_testing::check_parse(*format, text_of(bytes));
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  return {
      {"multislot_marked",
       check_marked_slots,
       {"1 id-7 1 text 1 1 2 5 18446744073709551615 2 0.5 -1\n",
        "1 a 1 b 1 0 1 7 2 3 4\n1 c 1 d 1 1 0 2 1 2\n"}},
      {"multislot", check_slots, {"1 0 0 2 1 2\n1 1 1 7 2 3 4\n", "1 1 3 5 6 7 2 0.5 -1\r\n"}},
      {"libsvm",
       check_libsvm,
       {"+1 qid:3 1:1 2:0.5 7:1 # note\n-1\n", "0 2:3 2:4\n1 18446744073709551615:1e-3\n"}},
      {"libffm", check_libffm, {"1 0:3:1 1:4:0.5 2:1:9\n0 0:1:1\n"}},
  };
}
