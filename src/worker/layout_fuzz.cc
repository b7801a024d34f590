// Any bytes as a ReadSampleReply in the form of a gRPC call, its leases as layouts, and as the
// replies of a lookup for a lease: what a worker takes it can gather and push.
#include <google/protobuf/stubs/logging.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "fuzz/fuzz.h"
#include "wire/proto_codec.h"
#include "worker/layout.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file

constexpr ProtoLimits kLimits = {
    .meta_bytes_max = 1 << 16, .payload_bytes_max = 1 << 16, .tensors_max = 1 << 8};
constexpr uint32_t kShards = 2;

uint32_t add(Message& message, const std::vector<uint32_t>& numbers) {
  message.tensors.push_back(Tensor::of<uint32_t>({static_cast<int64_t>(numbers.size())}, numbers));
  return static_cast<uint32_t>(message.tensors.size() - 1);
}

// Two samples: a field with rows of both shards, a sequence, and a field of sums.
Message lease() {
  Message message;
  v1::BatchLease& lease = *message.meta.mutable_read_sample_reply()->add_batches();
  lease.set_samples(2);
  v1::TrainerTable& rows = *lease.add_tables();
  rows.set_table("t");
  rows.set_dim(2);
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    rows.add_shards(shard);
    rows.add_row_keys(1 + shard);
  }
  v1::TrainerTable& sums = *lease.add_tables();
  sums.set_table("u");
  sums.set_dim(1);
  sums.add_shards(1);
  sums.add_row_keys(0);
  v1::TrainerField& one = *lease.add_fields();
  one.set_field("a");
  one.set_table("t");
  one.set_positions_tensor(add(message, {2, 0}));
  v1::TrainerField& sequence = *lease.add_fields();
  sequence.set_field("s");
  sequence.set_table("t");
  sequence.set_pooling(v1::POOLING_NONE);
  sequence.set_offsets_tensor(add(message, {0, 0, 3}));
  sequence.set_positions_tensor(add(message, {1, 1, 0}));
  v1::TrainerField& pooled = *lease.add_fields();
  pooled.set_field("p");
  pooled.set_table("u");
  pooled.set_travel(v1::TRAVEL_POOLED);
  pooled.set_pooling(v1::POOLING_MEAN);
  pooled.set_offsets_tensor(add(message, {0, 2, 2}));
  pooled.add_samples_tensors(add(message, {0}));
  return message;
}

uint32_t add_matrix(Message& reply, int64_t rows, int64_t columns) {
  const std::vector<float> values(static_cast<size_t>(rows * columns), 0.5F);
  reply.tensors.push_back(Tensor::of<float>({rows, columns}, values));
  return static_cast<uint32_t>(reply.tensors.size() - 1);
}

Message reply_of(uint32_t shard) {
  Message reply;
  v1::EmbeddingLookupReply& told = *reply.meta.mutable_embedding_lookup_reply();
  v1::LookupPart& rows = *told.add_parts();
  rows.set_table("t");
  rows.set_rows_tensor(add_matrix(reply, 1 + shard, 2));
  if (shard == 0) return reply;
  v1::LookupPart& sums = *told.add_parts();
  sums.set_table("u");
  v1::LookupField& field = *sums.add_fields();
  field.set_field("p");
  field.set_sums_tensor(add_matrix(reply, 1, 1));
  return reply;
}

StatusOr<StepLayout> layout_of(const Message& message) {
  return StepLayout::make(message.meta.read_sample_reply().batches(0), message.tensors, kShards);
}

// What a worker does with a layout that has its rows.
void step(const StepLayout& layout) {
  std::vector<float> pooled(layout.samples() * layout.width());
  layout.gather(pooled);
  StepLayout::Gradients gradients{.pooled = pooled, .sequences = {}};
  std::vector<std::vector<float>> sequences;
  for (size_t field = 0; field < layout.fields().size(); ++field) {
    size_t keys = 0;
    if (layout.fields()[field].pooling == v1::POOLING_NONE) {
      for (const uint32_t length : layout.lengths(field)) keys += length;
    }
    sequences.emplace_back(keys * layout.fields()[field].dim);
    if (keys > 0) layout.gather_sequence(field, sequences.back());
  }
  for (const std::vector<float>& values : sequences) gradients.sequences.emplace_back(values);
  STARLING_CHECK(layout.pushes(gradients).size() == kShards, "every shard is pushed");
}

void check_lease(std::span<const std::byte> bytes) {
  const StatusOr<Message> reply = decode_proto({&bytes, 1}, nullptr, kLimits);
  if (!reply.ok() || reply->meta.read_sample_reply().batches().empty()) return;
  StatusOr<StepLayout> layout = layout_of(*reply);
  if (!layout.ok()) {
    STARLING_CHECK(layout.status().code() == StatusCode::kInvalidArgument, "it says what is wrong");
    return;
  }
  // As many rows as a lease may claim are for a shard to answer: here are but a few.
  for (const v1::TrainerTable& table : reply->meta.read_sample_reply().batches(0).tables()) {
    for (const uint32_t rows : table.row_keys()) {
      if (rows > 1000) return;
    }
  }
  if (layout->samples() > 1000 || layout->width() > 1000) return;
  if (layout->take({reply_of(0), reply_of(1)}).ok()) step(*layout);
}

void check_lookup(std::span<const std::byte> bytes) {
  const StatusOr<Message> reply = decode_proto({&bytes, 1}, nullptr, kLimits);
  if (!reply.ok()) return;
  static const StepLayout made = layout_of(lease()).value();
  StepLayout layout = made;
  if (layout.take({reply_of(0), *reply}).ok()) step(layout);
}

std::string as_seed(const Message& message) {
  std::string bytes;
  for (const Buffer& piece : encode_proto(message)) bytes += piece.view();
  return bytes;
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  google::protobuf::SetLogHandler(nullptr);
  Message rows = lease();
  v1::BatchLease& less = *rows.meta.mutable_read_sample_reply()->mutable_batches(0);
  less.mutable_fields()->RemoveLast();
  less.mutable_tables()->RemoveLast();
  return {{"lease", check_lease, {as_seed(lease()), as_seed(rows)}},
          {"lookup", check_lookup, {as_seed(reply_of(1))}}};
}
