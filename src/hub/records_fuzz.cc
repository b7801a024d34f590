// Any bytes as records of a slice from another hub, or as the position that a cut has of a hub.
#include <google/protobuf/stubs/logging.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "fuzz/fuzz.h"
#include "hub/global_shuffle.h"
#include "hub/position.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file

constexpr uint64_t kSlice = 4;

std::shared_ptr<const SampleSchema> schema() {
  static const auto made = [] {
    auto out = std::make_shared<SampleSchema>();
    out->keys.push_back({.name = "k", .table = "k"});
    out->labels.push_back("label");
    return out;
  }();
  return made;
}

// A hub that knows of one file with a slice of samples, and gathers it.
GlobalShuffle gathering() {
  GlobalShuffle out(7, kSlice);
  STARLING_CHECK(out.set_counts({kSlice}).ok(), "a few samples");
  out.begin(0, 0, schema());
  return out;
}

void check_slice(std::span<const std::byte> bytes) {
  const std::string_view records = text_of(bytes);
  GlobalShuffle hub = gathering();
  const StatusOr<uint64_t> taken = hub.take(records);
  STARLING_CHECK(!taken.ok() || *taken + hub.missing() == kSlice, "what came is no longer missing");
  const uint64_t missing = hub.missing();
  STARLING_CHECK(hub.take(records).ok() == taken.ok() && hub.missing() == missing,
                 "a repeat changes nothing");
  if (!hub.is_whole()) return;
  uint64_t samples = 0;
  for (const auto& block : hub.finish()) samples += block->samples();
  STARLING_CHECK(samples == kSlice, "a whole slice has all of its samples");
}

void check_position(std::span<const std::byte> bytes) {
  v1::StartSampleOption option;
  option.set_dataset("d");
  option.set_position(std::string(text_of(bytes)));
  const std::string position = option.position();
  const bool is_good = position_in(option).ok();
  STARLING_CHECK(resume_at({}, {position}, 5, option).ok() == is_good,
                 "what a hub takes a job can go on from");
  STARLING_CHECK(!is_good || position_in(option)->clock() == 5, "a position survives");
}

// What a hub that has all samples sends of the slice.
std::string slice_of(size_t bytes_max) {
  auto block = std::make_shared<SampleBlock>(schema());
  for (uint64_t i = 0; i < kSlice; ++i) {
    block->begin()[0] = static_cast<float>(i);
    for (uint64_t k = 0; k < i; ++k) block->add_key(0, static_cast<Key>(i * 77 + k));
    block->end();
  }
  GlobalShuffle other(7, kSlice);
  STARLING_CHECK(other.set_counts({kSlice}).ok(), "a few samples");
  other.hold(0, {block});
  uint64_t at = 0;
  return other.records(0, 0, at, bytes_max).bytes;
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  google::protobuf::SetLogHandler(nullptr);
  hubs::Position position;
  position.add_datasets()->set_dataset("other");
  position.add_datasets()->set_dataset("d");
  position.mutable_datasets(1)->set_clock(9);
  return {{"slice", check_slice, {slice_of(1 << 20), slice_of(1)}},
          {"position", check_position, {position.SerializeAsString()}}};
}
