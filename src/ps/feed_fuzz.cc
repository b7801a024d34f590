// Any bytes as a FeedSample in the form of a gRPC call: what a shard would take in is inside of its
// bounds, whatever the message says.
#include <google/protobuf/stubs/logging.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "fuzz/fuzz.h"
#include "ps/prepared.h"
#include "wire/proto_codec.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file

constexpr ProtoLimits kLimits = {
    .meta_bytes_max = 1 << 16, .payload_bytes_max = 1 << 16, .tensors_max = 1 << 8};

void check_field(const PreparedPart& part, const PreparedField& field, uint32_t samples) {
  const auto starts = field.starts.values<uint32_t>();
  const auto positions = field.positions.values<uint32_t>();
  STARLING_CHECK(starts.size() == field.segments() + 1 && starts.front() == 0 &&
                     starts.back() == positions.size(),
                 "segments cover the positions");
  for (size_t i = 1; i < starts.size(); ++i) {
    STARLING_CHECK(starts[i - 1] <= starts[i], "segments follow each other");
  }
  for (const uint32_t sample : field.samples.values<uint32_t>()) {
    STARLING_CHECK(sample < samples, "a sample of the batch");
  }
  const size_t keys = field.pooled ? part.keys().size() : part.row_keys;
  for (const uint32_t position : positions) {
    STARLING_CHECK(position < keys, "a position has its key");
  }
}

void check(std::span<const std::byte> bytes) {
  static KeyMerger merger;
  const StatusOr<Message> request = decode_proto({&bytes, 1}, nullptr, kLimits);
  if (!request.ok()) return;
  const StatusOr<PreparedBatch> batch = decode_feed(*request, merger);
  if (!batch.ok()) {
    STARLING_CHECK(batch.status().code() == StatusCode::kInvalidArgument, "it says what is wrong");
    return;
  }
  STARLING_CHECK(batch->samples > 0 && batch->samples <= kSamplesMax, "samples in their bounds");
  for (const PreparedPart& part : batch->parts) {
    STARLING_CHECK(part.row_keys <= part.keys().size(), "rows are keys");
    for (const PreparedField& field : part.fields) check_field(part, field, batch->samples);
  }
}

uint32_t add(Message& message, const std::vector<uint32_t>& numbers) {
  message.tensors.push_back(Tensor::of<uint32_t>({static_cast<int64_t>(numbers.size())}, numbers));
  return static_cast<uint32_t>(message.tensors.size() - 1);
}

v1::FeedPart& add_part(Message& message, const std::string& table,
                       const std::vector<uint64_t>& keys) {
  v1::FeedPart& part = *message.meta.mutable_feed_sample()->add_parts();
  part.set_table(table);
  part.set_keys_tensor(static_cast<uint32_t>(message.tensors.size()));
  message.tensors.push_back(Tensor::of<uint64_t>({static_cast<int64_t>(keys.size())}, keys));
  return part;
}

// Two samples of a table whose keys travel as rows, and of one whose sums do.
Message feed() {
  Message message;
  message.meta.mutable_feed_sample()->set_samples(2);
  message.meta.mutable_header()->mutable_batch()->set_number(3);
  v1::FeedPart& rows = add_part(message, "t", {7, 9, 11});
  rows.set_row_keys(3);
  v1::FieldLayout& one = *rows.add_fields();
  one.set_field("a");
  one.set_samples_tensor(add(message, {0, 1}));
  one.set_positions_tensor(add(message, {0, 2}));
  v1::FieldLayout& many = *rows.add_fields();
  many.set_field("b");
  many.set_samples_tensor(add(message, {0, 1}));
  many.set_offsets_tensor(add(message, {0, 1, 3}));
  many.set_positions_tensor(add(message, {1, 0, 2}));
  v1::FieldLayout& sums = *add_part(message, "u", {1, 2}).add_fields();
  sums.set_field("c");
  sums.set_travel(v1::TRAVEL_POOLED);
  sums.set_pooling(v1::POOLING_MEAN);
  sums.set_samples_tensor(add(message, {1}));
  sums.set_offsets_tensor(add(message, {0, 2}));
  sums.set_positions_tensor(add(message, {0, 1}));
  return message;
}

std::string as_seed(const Message& message) {
  KeyMerger merger;
  STARLING_CHECK(decode_feed(message, merger).ok(), "a seed is valid");
  std::string bytes;
  for (const Buffer& piece : encode_proto(message)) bytes += piece.view();
  return bytes;
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  google::protobuf::SetLogHandler(nullptr);
  Message empty;
  empty.meta.mutable_feed_sample()->set_samples(1);
  Message one = feed();
  one.meta.mutable_feed_sample()->mutable_parts()->RemoveLast();
  return {{"feed", check, {as_seed(feed()), as_seed(one), as_seed(empty)}}};
}
