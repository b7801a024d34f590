#include "hub/layout.h"

#include <optional>
#include <utility>

namespace starling {
namespace {

uint32_t add(std::vector<Tensor>& tensors, const Tensor& tensor) {
  tensors.push_back(tensor);
  return static_cast<uint32_t>(tensors.size() - 1);
}

v1::Pooling pooling_of(FieldPooling pooling) { return static_cast<v1::Pooling>(pooling); }

v1::Travel travel_of(bool is_pooled) { return is_pooled ? v1::TRAVEL_POOLED : v1::TRAVEL_ROWS; }

void add_part(const ShardPart& part, const SampleSchema& schema,
              const std::vector<BatchTable>& tables, Message& message) {
  v1::FeedPart* out = message.meta.mutable_feed_sample()->add_parts();
  out->set_table(tables[part.table].name);
  out->set_keys_tensor(add(message.tensors, part.keys));
  out->set_row_keys(part.row_keys);
  for (const ShardField& field : part.fields) {
    v1::FieldLayout* layout = out->add_fields();
    layout->set_field(schema.keys[field.field].name);
    layout->set_travel(travel_of(field.pooled));
    layout->set_pooling(pooling_of(schema.keys[field.field].pooling));
    layout->set_samples_tensor(add(message.tensors, field.samples));
    if (field.offsets.has_value()) {
      layout->set_offsets_tensor(add(message.tensors, *field.offsets));
    }
    layout->set_positions_tensor(add(message.tensors, field.positions));
  }
}

}  // namespace

std::vector<ShardMessage> feeds_of(const Batch& batch, const SampleSchema& schema,
                                   const std::vector<BatchTable>& tables, const BatchPlace& place) {
  std::vector<ShardMessage> out;
  for (uint32_t shard = 0; shard < batch.shards.size(); ++shard) {
    ShardMessage empty;
    empty.shard = shard;
    to_proto(place.id, empty.message.meta.mutable_header()->mutable_batch());
    v1::FeedSampleOption* option = empty.message.meta.mutable_feed_sample();
    option->set_samples(batch.samples);
    option->set_window(place.window);
    option->set_step(place.step);
    const std::vector<ShardPart>& parts = batch.shards[shard].parts;
    if (!place.is_fused) option->set_parts_announced(static_cast<uint32_t>(parts.size()));
    out.push_back(empty);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i > 0 && !place.is_fused) out.push_back(empty);
      add_part(parts[i], schema, tables, out.back().message);
    }
  }
  return out;
}

HubBatch lease_of(const Batch& batch, const SampleSchema& schema,
                  const std::vector<BatchTable>& tables, const BatchPlace& place) {
  HubBatch out;
  out.id = place.id;
  v1::BatchLease& lease = out.lease;
  lease.set_samples(batch.samples);
  lease.set_step(place.step);
  lease.set_map_version(place.map_version);
  if (batch.dense) lease.set_dense_tensor(add(out.tensors, *batch.dense));
  if (batch.labels) lease.set_labels_tensor(add(out.tensors, *batch.labels));
  if (batch.weights) lease.set_weights_tensor(add(out.tensors, *batch.weights));
  if (batch.shows) lease.set_shows_tensor(add(out.tensors, *batch.shows));
  if (batch.clicks) lease.set_clicks_tensor(add(out.tensors, *batch.clicks));
  if (batch.groups) lease.set_groups_tensor(add(out.tensors, *batch.groups));
  for (const std::string& id : batch.ids) lease.add_ids(id);
  for (const BatchRows& rows : batch.tables) {
    v1::TrainerTable* table = lease.add_tables();
    table->set_table(tables[rows.table].name);
    table->set_dim(tables[rows.table].dim);
    for (const uint32_t shard : rows.shards) table->add_shards(shard);
    for (const uint32_t keys : rows.row_keys) table->add_row_keys(keys);
  }
  for (const BatchField& field : batch.fields) {
    v1::TrainerField* told = lease.add_fields();
    told->set_field(schema.keys[field.field].name);
    told->set_table(schema.keys[field.field].table);
    told->set_travel(travel_of(field.pooled));
    told->set_pooling(pooling_of(schema.keys[field.field].pooling));
    if (field.offsets) told->set_offsets_tensor(add(out.tensors, *field.offsets));
    if (field.positions) told->set_positions_tensor(add(out.tensors, *field.positions));
    for (const Tensor& samples : field.samples) {
      told->add_samples_tensors(add(out.tensors, samples));
    }
  }
  return out;
}

}  // namespace starling
