// Any bytes as the image of a bucket, for tables with and without state of their admission: it is
// taken in whole and comes out the same, or it is DataLoss and changes nothing.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "fuzz/fuzz.h"
#include "table/table.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file

// About two for each bucket.
constexpr uint64_t kKeys = 2 * kBuckets;
constexpr size_t kBucketAt = 4;

std::unique_ptr<Table> make(const std::string& admission) {
  TableOptions options;
  options.name = "users";
  options.dim = 2;
  options.optimizer = {"adagrad", {}};
  options.admission.kind = admission;
  options.admission.expected_keys = 16 * kBuckets;
  return Table::make(options).value();
}

void check(Table& table, std::span<const std::byte> image) {
  const Status status = table.import_bucket(image);
  if (!status.ok()) {
    STARLING_CHECK(status.code() == StatusCode::kDataLoss && table.rows() == 0,
                   "damage is DataLoss and changes nothing");
    return;
  }
  uint16_t bucket = 0;
  std::memcpy(&bucket, image.data() + kBucketAt, sizeof(bucket));
  const std::vector<std::byte> again = table.export_bucket(BucketId{bucket});
  STARLING_CHECK(std::equal(again.begin(), again.end(), image.begin(), image.end()),
                 "an image survives its table");
  table.drop_bucket(BucketId{bucket});
}

// Rows that have their second push, and keys that wait for it.
std::vector<std::string> images_of(const std::string& admission) {
  const auto table = make(admission);
  std::vector<Key> keys;
  for (uint64_t i = 0; i < kKeys; ++i) keys.push_back(Key{i});
  const std::vector<float> gradients(keys.size() * table->dim(), 0.5F);
  for (const size_t pushed : {kKeys, kKeys / 2}) {
    STARLING_CHECK(table
                       ->push({.keys = std::span(keys).first(pushed),
                               .gradients = std::span(gradients).first(pushed * table->dim()),
                               .step = 1})
                       .ok(),
                   "a push");
  }
  std::vector<std::string> images;
  for (const uint16_t bucket : {0, 1, 2}) {
    const std::vector<std::byte> image = table->export_bucket(BucketId{bucket});
    images.emplace_back(reinterpret_cast<const char*>(image.data()), image.size());
  }
  return images;
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  // Made once: a table has all buckets from the start.
  static const auto always = make("always");
  static const auto count = make("count");
  static const auto bloom = make("bloom");
  return {{"always", [](auto image) { check(*always, image); }, images_of("always")},
          {"count", [](auto image) { check(*count, image); }, images_of("count")},
          {"bloom", [](auto image) { check(*bloom, image); }, images_of("bloom")}};
}
