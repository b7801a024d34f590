#include "ps/prepared.h"

#include <algorithm>
#include <bit>
#include <set>
#include <span>

#include "store/hash.h"
#include "wire/enums.h"

namespace starling {
namespace {

StatusOr<const Tensor*> index_tensor(const Message& message, uint32_t index,
                                     const std::string& what) {
  return tensor_at(message, index, what, DType::kUInt32, 1);
}

Status check_samples(std::span<const uint32_t> samples, uint32_t limit, const std::string& what) {
  // Without a branch per sample.
  uint32_t stays = 0;
  for (size_t i = 1; i < samples.size(); ++i) stays |= uint32_t{samples[i] <= samples[i - 1]};
  if (stays != 0) return invalid_argument("{}: samples must be ascending", what);
  if (!samples.empty() && samples.back() >= limit)
    return invalid_argument("{}: sample {} of a batch of {}", what, samples.back(), limit);
  return absl::OkStatus();
}

// Segment s of a field without offsets has the one key at position s.
Tensor one_each(size_t segments) {
  Tensor starts = Tensor::allocate(DType::kUInt32, {static_cast<int64_t>(segments + 1)});
  auto values = starts.mutable_values<uint32_t>();
  for (size_t i = 0; i <= segments; ++i) values[i] = static_cast<uint32_t>(i);
  return starts;
}

StatusOr<PreparedField> decode_field(const Message& message, const v1::FieldLayout& proto,
                                     const PreparedPart& part, uint32_t samples_max) {
  PreparedField field;
  field.name = proto.field();
  const std::string what = fmt::format("{}.{}", part.table, field.name);
  if (field.name.empty()) return invalid_argument("{}: a field has no name", part.table);
  STARLING_RETURN_IF_ERROR(check_enum(proto.travel(), what + ".travel"));
  STARLING_RETURN_IF_ERROR(check_enum(proto.pooling(), what + ".pooling"));
  field.pooled = proto.travel() == v1::TRAVEL_POOLED;
  if (field.pooled && proto.pooling() == v1::POOLING_NONE) {
    return invalid_argument("{}: a sequence travels as rows", what);
  }
  STARLING_ASSIGN_OR_RETURN(const Tensor* samples,
                            index_tensor(message, proto.samples_tensor(), what + ".samples"));
  STARLING_ASSIGN_OR_RETURN(const Tensor* positions,
                            index_tensor(message, proto.positions_tensor(), what + ".positions"));
  field.samples = *samples;
  field.positions = *positions;
  STARLING_RETURN_IF_ERROR(check_samples(samples->values<uint32_t>(), samples_max, what));
  const size_t segments = field.segments();
  if (proto.has_offsets_tensor()) {
    STARLING_ASSIGN_OR_RETURN(const Tensor* offsets,
                              index_tensor(message, proto.offsets_tensor(), what + ".offsets"));
    field.starts = *offsets;
    if (offsets->values<uint32_t>().size() != segments + 1) {
      return invalid_argument("{}: {} offsets for {} segments", what, offsets->elements(),
                              segments);
    }
  } else {
    field.starts = one_each(segments);
  }
  const size_t keys = field.pooled ? part.keys().size() : part.row_keys;
  if (const Status status = field.layout().check(keys); !status.ok())
    return with_context(status, what);
  return field;
}

StatusOr<PreparedPart> decode_part(const Message& message, const v1::FeedPart& proto,
                                   uint32_t samples_max, KeyMerger& merger) {
  PreparedPart part;
  part.table = proto.table();
  STARLING_ASSIGN_OR_RETURN(const Tensor* keys, tensor_at(message, proto.keys_tensor(),
                                                          part.table + ".keys", DType::kUInt64, 1));
  part.keys_tensor = *keys;
  part.row_keys = proto.row_keys();
  if (part.row_keys > part.keys().size()) {
    return invalid_argument("{}: row_keys {} of {} keys", part.table, part.row_keys,
                            part.keys().size());
  }
  if (!merger.all_differ(part.keys()))
    return invalid_argument("{}: a key is listed twice", part.table);
  std::set<std::string> names;
  for (const v1::FieldLayout& layout : proto.fields()) {
    STARLING_ASSIGN_OR_RETURN(PreparedField field,
                              decode_field(message, layout, part, samples_max));
    if (!names.insert(field.name).second)
      return invalid_argument("{}: field {} twice", part.table, field.name);
    part.fields.push_back(std::move(field));
  }
  if (part.fields.empty() && !part.keys().empty()) {
    return invalid_argument("{}: {} keys that no field uses", part.table, part.keys().size());
  }
  return part;
}

}  // namespace

const PreparedPart* PreparedBatch::find(const std::string& table) const {
  auto it = std::find_if(parts.begin(), parts.end(),
                         [&](const PreparedPart& part) { return part.table == table; });
  return it == parts.end() ? nullptr : &*it;
}

PreparedPart* PreparedBatch::find(const std::string& table) {
  return const_cast<PreparedPart*>(static_cast<const PreparedBatch*>(this)->find(table));
}

bool PreparedBatch::is_continued_by(const PreparedBatch& next) const {
  const bool fits = next.samples == samples && next.parts_announced == parts_announced &&
                    parts.size() + next.parts.size() <= parts_announced;
  return fits && std::none_of(next.parts.begin(), next.parts.end(), [&](const PreparedPart& part) {
           return find(part.table) != nullptr;
         });
}

void PreparedBatch::add(PreparedBatch next) {
  std::move(next.parts.begin(), next.parts.end(), std::back_inserter(parts));
  content_hashes.push_back(next.content_hashes.front());
  bytes += next.bytes;
}

StatusOr<PreparedBatch> decode_feed(const Message& request, KeyMerger& merger) {
  const v1::FeedSampleOption& option = request.meta.feed_sample();
  PreparedBatch batch;
  batch.samples = option.samples();
  batch.step = option.step();
  batch.map_version = request.meta.header().map_version();
  batch.hub = static_cast<NodeId>(request.meta.header().role_id());
  batch.hub_incarnation = static_cast<Incarnation>(request.meta.header().incarnation());
  if (batch.samples == 0 || batch.samples > kSamplesMax) {
    return invalid_argument("samples is {}, it must lie in 1 .. {}", batch.samples, kSamplesMax);
  }
  for (const v1::FeedPart& proto : option.parts()) {
    if (batch.find(proto.table()) != nullptr)
      return invalid_argument("table {} twice in one feed", proto.table());
    STARLING_ASSIGN_OR_RETURN(PreparedPart part,
                              decode_part(request, proto, batch.samples, merger));
    batch.parts.push_back(std::move(part));
  }
  for (const Tensor& tensor : request.tensors) batch.bytes += tensor.bytes();
  batch.parts_announced = option.parts_announced();
  batch.content_hashes = {option.content_hash() != 0 ? option.content_hash()
                                                     : content_hash(request)};
  return batch;
}

StatusOr<const Tensor*> tensor_at(const Message& message, uint32_t index, std::string_view what,
                                  DType dtype, size_t rank) {
  if (index >= message.tensors.size()) {
    return invalid_argument("{}: tensor {} of a message with {}", what, index,
                            message.tensors.size());
  }
  const Tensor& tensor = message.tensors[index];
  STARLING_RETURN_IF_ERROR(tensor.expect(what, dtype, rank));
  return &tensor;
}

StatusOr<const Tensor*> matrix_at(const Message& message, uint32_t index, std::string_view what,
                                  size_t rows, size_t columns) {
  STARLING_ASSIGN_OR_RETURN(const Tensor* tensor,
                            tensor_at(message, index, what, DType::kFloat32, 2));
  if (static_cast<size_t>(tensor->shape()[0]) != rows ||
      static_cast<size_t>(tensor->shape()[1]) != columns) {
    return invalid_argument("{}: {} where [{}, {}] is expected", what, tensor->describe(), rows,
                            columns);
  }
  return tensor;
}

bool all_finite(std::span<const float> values) {
  // A NaN or infinity has all bits of the exponent. Blocks without a branch become vectors.
  constexpr uint32_t kExponent = 0x7f800000;
  constexpr size_t kBlock = 4096;
  for (size_t first = 0; first < values.size(); first += kBlock) {
    uint32_t bad = 0;
    for (const float x : values.subspan(first, std::min(kBlock, values.size() - first))) {
      bad |= uint32_t{(std::bit_cast<uint32_t>(x) & kExponent) == kExponent};
    }
    if (bad != 0) return false;
  }
  return true;
}

uint64_t content_hash(const Message& message) {
  v1::TensorMessage option = message.meta;
  option.clear_header();
  if (option.has_feed_sample()) {
    option.mutable_feed_sample()->clear_watermarks();
    option.mutable_feed_sample()->clear_window();
    option.mutable_feed_sample()->clear_step();
  }
  const std::string bytes = option.SerializeAsString();
  uint64_t hash = xxh3(std::as_bytes(std::span(bytes)), 0);
  for (const Tensor& tensor : message.tensors) {
    hash = xxh3(tensor.buffer().bytes(), hash);
  }
  return hash == 0 ? 1 : hash;
}

}  // namespace starling
