#include "data/batch.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "data/distinct.h"
#include "data/slab.h"
#include "data/tail.h"

namespace starling {
namespace {

size_t bytes_of(const std::optional<Tensor>& tensor) { return tensor ? tensor->bytes() : 0; }

uint32_t* data_of(Tensor& tensor) { return tensor.mutable_values<uint32_t>().data(); }

// One key field of the batch that is being made. Its keys lie one behind the other, by sample.
struct FieldWork {
  uint32_t table = 0;  // in the tables that have fields
  FieldPooling pooling = FieldPooling::kSum;
  size_t begin = 0;       // of its keys in the arrays of the batch
  size_t keys = 0;        // so many
  bool single = false;    // no sample has two
  bool one_each = false;  // every sample has exactly one
  bool pooled = false;
  Tensor ids;  // uint32[keys]: which of the table's distinct keys
};

// One table that has fields.
struct TableWork {
  uint32_t table = 0;            // in BatchAssembler::tables()
  std::vector<uint32_t> fields;  // ascending
  DistinctKeys distinct;
  Tail<uint32_t> positions;       // (distinct): in the shard's list
  bool direct = false;            // one shard, all as rows: a key's position is its number
  std::vector<uint32_t> keys_of;  // (shards): distinct keys
  std::vector<uint32_t> rows_of;  // (shards): of them those that travel as rows
  std::vector<uint32_t> base_of;  // (shards): rows of the shards before
};

// What one field has on each shard.
struct Counts {
  std::vector<uint32_t> keys;
  std::vector<uint32_t> segments;
};

}  // namespace

class BatchAssembler::Work {
 public:
  Work(std::shared_ptr<const SampleSchema> schema, std::vector<BatchTable> tables,
       BatchOptions options)
      : schema_(std::move(schema)), tables_(std::move(tables)), options_(options) {}

  Status bind_fields();
  const std::vector<BatchTable>& tables() const { return tables_; }
  StatusOr<Batch> assemble(std::span<const SampleRef> samples, const BucketOwners& owners);

 private:
  std::span<const uint32_t> samples_of(const FieldWork& field) const {
    return sample_of_.span().subspan(field.begin, field.keys);
  }

  void gather(std::span<const SampleRef> samples);
  void find_shape(FieldWork& field);
  Status merge(TableWork& table);
  Status check_range(const TableWork& table) const;
  Counts count(const TableWork& table, const FieldWork& field) const;
  void choose_travel(const TableWork& table, const Counts& counts, FieldWork& field) const;
  void number_keys(TableWork& table);
  void number_used(TableWork& table, bool pooled);
  void emit_parts(const TableWork& table, Batch& batch);
  void emit_direct(uint32_t number, Batch& batch);
  void emit_field(const TableWork& table, uint32_t number, const Counts& counts, Batch& batch);
  void emit_offsets(const FieldWork& field, BatchField& out);
  void emit_trainer(const TableWork& table, uint32_t number, BatchField& out);
  void emit_table(TableWork& table, Batch& batch);
  void emit_numbers(std::span<const SampleRef> samples, Batch& batch);
  Tensor column(std::span<const SampleRef> samples, uint32_t at, size_t width);
  Tensor all_samples();

  std::shared_ptr<const SampleSchema> schema_;
  std::vector<BatchTable> tables_;
  BatchOptions options_;
  std::vector<FieldWork> fields_;  // (SampleSchema.keys)
  std::vector<TableWork> used_;    // tables in the order of their first field
  Tail<Key> keys_;                 // of the batch, by field, then by sample
  Tail<uint32_t> sample_of_;       // (keys): of each
  std::vector<uint32_t> filled_;   // (fields): while gathering, behind the last key
  Slab slab_;
  Tensor all_samples_;   // 0, 1, 2 ..: what fields with one key per sample have in common
  BucketOwners owners_;  // of the call
  size_t samples_ = 0;   // of the call
};

Status BatchAssembler::Work::bind_fields() {
  for (uint32_t number = 0; number < schema_->keys.size(); ++number) {
    const KeyField& key_field = schema_->keys[number];
    const auto it = std::find_if(tables_.begin(), tables_.end(), [&](const BatchTable& table) {
      return table.name == key_field.table;
    });
    if (it == tables_.end())
      return invalid_argument("field {}: no table named {}", key_field.name, key_field.table);
    const auto index = static_cast<uint32_t>(it - tables_.begin());
    auto used = std::find_if(used_.begin(), used_.end(),
                             [&](const TableWork& table) { return table.table == index; });
    if (used == used_.end()) {
      used_.emplace_back();
      used_.back().table = index;
      used = used_.end() - 1;
    }
    used->fields.push_back(number);
    fields_.emplace_back();
    fields_.back().table = static_cast<uint32_t>(used - used_.begin());
    fields_.back().pooling = key_field.pooling;
  }
  return absl::OkStatus();
}

// Sorts the keys by field. The first walk counts and asks for the keys, which lie anywhere in large
// blocks; the second one finds them near.
void BatchAssembler::Work::gather(std::span<const SampleRef> samples) {
  constexpr size_t kLineBytes = 64;
  filled_.assign(fields_.size(), 0);
  uint32_t* const filled = filled_.data();
  for (const SampleRef& ref : samples) {
    const std::span<const Key> keys = ref.block->sample_keys(ref.sample);
    const auto* bytes = reinterpret_cast<const char*>(keys.data());
    for (size_t at = 0; at < keys.size_bytes(); at += kLineBytes) __builtin_prefetch(bytes + at);
    ref.block->for_each_key(ref.sample, [&](uint32_t field, Key) { ++filled[field]; });
  }
  uint32_t total = 0;
  for (size_t i = 0; i < fields_.size(); ++i) {
    fields_[i].begin = total;
    fields_[i].keys = filled[i];
    total += filled[i];
    filled[i] = static_cast<uint32_t>(fields_[i].begin);
  }
  keys_.cut(0);
  sample_of_.cut(0);
  Key* const keys = keys_.room(total);
  uint32_t* const sample_of = sample_of_.room(total);
  for (uint32_t sample = 0; sample < samples.size(); ++sample) {
    const SampleRef& ref = samples[sample];
    ref.block->for_each_key(ref.sample, [&](uint32_t field, Key key) {
      const uint32_t at = filled[field]++;
      keys[at] = key;
      sample_of[at] = sample;
    });
  }
  keys_.take(total);
  sample_of_.take(total);
  for (FieldWork& field : fields_) find_shape(field);
}

void BatchAssembler::Work::find_shape(FieldWork& field) {
  const std::span<const uint32_t> samples = samples_of(field);
  size_t repeats = 0;
  for (size_t i = 1; i < samples.size(); ++i) repeats += samples[i] == samples[i - 1] ? 1 : 0;
  field.single = repeats == 0;
  field.one_each = field.single && samples.size() == samples_;
}

Status BatchAssembler::Work::check_range(const TableWork& table) const {
  const Placement& placement = tables_[table.table].placement;
  if (!placement.by_range()) return absl::OkStatus();
  for (const uint32_t number : table.fields) {
    for (const Key key : keys_.span().subspan(fields_[number].begin, fields_[number].keys)) {
      if (placement.holds(key)) continue;
      return invalid_argument("field {}: key {} lies outside of the range {} .. {} of table {}",
                              schema_->keys[number].name, value(key), placement.low, placement.high,
                              tables_[table.table].name);
    }
  }
  return absl::OkStatus();
}

// Numbers the distinct keys of the table and finds their shards.
Status BatchAssembler::Work::merge(TableWork& table) {
  STARLING_RETURN_IF_ERROR(check_range(table));
  size_t keys = 0;
  table.direct = owners_.shards == 1;
  for (const uint32_t number : table.fields) {
    const FieldWork& field = fields_[number];
    keys += field.keys;
    const bool rows = options_.rows_only || field.single || field.pooling == FieldPooling::kNone;
    table.direct = table.direct && rows;
  }
  table.distinct.start(keys);
  for (const uint32_t number : table.fields) {
    FieldWork& field = fields_[number];
    field.ids = slab_.numbers(field.keys);
    table.distinct.add(keys_.span().subspan(field.begin, field.keys),
                       tables_[table.table].placement, owners_.owner, data_of(field.ids));
  }
  return absl::OkStatus();
}

Counts BatchAssembler::Work::count(const TableWork& table, const FieldWork& field) const {
  Counts counts{std::vector<uint32_t>(owners_.shards), {}};
  const std::span<const uint32_t> shards = table.distinct.shards();
  const std::span<const uint32_t> ids = field.ids.values<uint32_t>();
  for (const uint32_t id : ids) ++counts.keys[shards[id]];
  counts.segments = counts.keys;
  if (field.single) return counts;
  std::fill(counts.segments.begin(), counts.segments.end(), 0);
  std::vector<uint32_t> last(owners_.shards, UINT32_MAX);
  const std::span<const uint32_t> samples = samples_of(field);
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint32_t shard = shards[ids[i]];
    counts.segments[shard] += last[shard] != samples[i] ? 1 : 0;
    last[shard] = samples[i];
  }
  return counts;
}

// Bytes of one lookup and one push, and of what the trainer is told.
void BatchAssembler::Work::choose_travel(const TableWork& table, const Counts& counts,
                                         FieldWork& field) const {
  field.pooled = false;
  if (options_.rows_only || field.pooling == FieldPooling::kNone || field.single) return;
  std::vector<bool> seen(table.distinct.size());
  uint64_t rows = 0;
  for (const uint32_t id : field.ids.values<uint32_t>()) {
    rows += seen[id] ? 0 : 1;
    seen[id] = true;
  }
  const uint64_t segments =
      std::accumulate(counts.segments.begin(), counts.segments.end(), uint64_t{0});
  const uint64_t vector_bytes = uint64_t{tables_[table.table].dim} * sizeof(float);
  const uint64_t index_bytes = sizeof(uint32_t);
  field.pooled = segments * (2 * vector_bytes + index_bytes) <
                 rows * 2 * vector_bytes + field.keys * index_bytes;
}

void BatchAssembler::Work::number_used(TableWork& table, bool pooled) {
  constexpr uint32_t kNone = UINT32_MAX;
  const std::span<const uint32_t> shards = table.distinct.shards();
  for (const uint32_t number : table.fields) {
    const FieldWork& field = fields_[number];
    if (field.pooled != pooled) continue;
    for (const uint32_t id : field.ids.values<uint32_t>()) {
      if (table.positions[id] == kNone) table.positions[id] = table.keys_of[shards[id]]++;
    }
  }
}

// Keys that travel as rows come first in their shard's list, by first use.
void BatchAssembler::Work::number_keys(TableWork& table) {
  const size_t distinct = table.distinct.size();
  table.keys_of.assign(owners_.shards, 0);
  table.base_of.assign(owners_.shards, 0);
  if (table.direct) {
    table.keys_of[0] = static_cast<uint32_t>(distinct);
    table.rows_of = table.keys_of;
    return;
  }
  table.positions.cut(0);
  uint32_t* positions = table.positions.room(distinct);
  table.positions.take(distinct);
  const bool mixed = std::any_of(table.fields.begin(), table.fields.end(),
                                 [&](uint32_t number) { return fields_[number].pooled; });
  if (mixed) {
    std::fill_n(positions, distinct, UINT32_MAX);
    number_used(table, false);
    table.rows_of = table.keys_of;
    number_used(table, true);
  } else {
    const std::span<const uint32_t> shards = table.distinct.shards();
    for (size_t i = 0; i < distinct; ++i) positions[i] = table.keys_of[shards[i]]++;
    table.rows_of = table.keys_of;
  }
  for (uint32_t shard = 1; shard < owners_.shards; ++shard)
    table.base_of[shard] = table.base_of[shard - 1] + table.rows_of[shard - 1];
}

void BatchAssembler::Work::emit_parts(const TableWork& table, Batch& batch) {
  BatchRows rows;
  rows.table = table.table;
  std::vector<Key*> keys_of(owners_.shards);
  for (uint32_t shard = 0; shard < owners_.shards; ++shard) {
    if (table.keys_of[shard] == 0) continue;
    ShardPart part;
    part.table = table.table;
    part.keys = slab_.tensor(DType::kUInt64, {table.keys_of[shard]});
    part.row_keys = table.rows_of[shard];
    keys_of[shard] = reinterpret_cast<Key*>(part.keys.mutable_values<uint64_t>().data());
    part.fields.reserve(table.fields.size());
    batch.shards[shard].parts.push_back(std::move(part));
    rows.shards.push_back(shard);
    rows.row_keys.push_back(table.rows_of[shard]);
  }
  const std::span<const Key> distinct = table.distinct.keys();
  const std::span<const uint32_t> shards = table.distinct.shards();
  if (table.direct) {
    std::copy(distinct.begin(), distinct.end(), keys_of[0]);
  } else {
    for (size_t i = 0; i < distinct.size(); ++i)
      keys_of[shards[i]][table.positions[i]] = distinct[i];
  }
  batch.tables.push_back(std::move(rows));
}

Tensor BatchAssembler::Work::all_samples() {
  if (all_samples_.shape() != std::vector<int64_t>{static_cast<int64_t>(samples_)}) {
    // Older batches share the one before, so it is not written again.
    all_samples_ = Tensor::allocate(DType::kUInt32, {static_cast<int64_t>(samples_)});
    std::iota(data_of(all_samples_), data_of(all_samples_) + samples_, 0U);
  }
  return all_samples_;
}

// One shard and rows alone: numbers are positions, for the shard and for the trainer.
void BatchAssembler::Work::emit_direct(uint32_t number, Batch& batch) {
  const FieldWork& field = fields_[number];
  BatchField& trainer = batch.fields[number];
  trainer.field = number;
  trainer.positions = field.ids;
  emit_offsets(field, trainer);
  if (batch.tables.back().shards.empty()) return;
  ShardField out;
  out.field = number;
  out.positions = field.ids;
  if (field.one_each) {
    out.samples = all_samples();
  } else {
    const std::span<const uint32_t> samples = samples_of(field);
    size_t segments = samples.empty() ? 0 : 1;
    for (size_t i = 1; i < samples.size(); ++i) segments += samples[i] != samples[i - 1] ? 1 : 0;
    out.samples = slab_.numbers(segments);
    uint32_t* segment = data_of(out.samples);
    uint32_t* offset = nullptr;
    if (!field.single) {
      out.offsets = slab_.numbers(segments + 1);
      offset = data_of(*out.offsets);
    }
    for (size_t i = 0; i < samples.size(); ++i) {
      if (i != 0 && samples[i] == samples[i - 1]) continue;
      *segment++ = samples[i];
      if (offset != nullptr) *offset++ = static_cast<uint32_t>(i);
    }
    if (offset != nullptr) *offset = static_cast<uint32_t>(samples.size());
  }
  batch.shards[0].parts.back().fields.push_back(std::move(out));
}

void BatchAssembler::Work::emit_field(const TableWork& table, uint32_t number, const Counts& counts,
                                      Batch& batch) {
  const FieldWork& field = fields_[number];
  struct Cursor {
    uint32_t* samples = nullptr;
    uint32_t* offsets = nullptr;  // the last that is set
    uint32_t* positions = nullptr;
    uint32_t keys = 0;
    uint32_t last = UINT32_MAX;  // sample
  };
  std::vector<Cursor> cursors(owners_.shards);
  for (const uint32_t shard : batch.tables.back().shards) {
    ShardField out;
    out.field = number;
    out.pooled = field.pooled;
    out.samples = slab_.numbers(counts.segments[shard]);
    out.positions = slab_.numbers(counts.keys[shard]);
    cursors[shard].samples = data_of(out.samples);
    cursors[shard].positions = data_of(out.positions);
    if (counts.keys[shard] != counts.segments[shard]) {
      out.offsets = slab_.numbers(counts.segments[shard] + 1);
      cursors[shard].offsets = data_of(*out.offsets);
      *cursors[shard].offsets = 0;
    }
    batch.shards[shard].parts.back().fields.push_back(std::move(out));
  }
  const std::span<const uint32_t> shards = table.distinct.shards();
  const std::span<const uint32_t> ids = field.ids.values<uint32_t>();
  const std::span<const uint32_t> samples = samples_of(field);
  if (field.single) {
    for (size_t i = 0; i < ids.size(); ++i) {
      Cursor& cursor = cursors[shards[ids[i]]];
      *cursor.samples++ = samples[i];
      *cursor.positions++ = table.positions[ids[i]];
    }
    return;
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    Cursor& cursor = cursors[shards[ids[i]]];
    if (cursor.last != samples[i]) {
      cursor.last = samples[i];
      *cursor.samples++ = samples[i];
      if (cursor.offsets != nullptr) ++cursor.offsets;
    }
    *cursor.positions++ = table.positions[ids[i]];
    ++cursor.keys;
    if (cursor.offsets != nullptr) *cursor.offsets = cursor.keys;
  }
}

void BatchAssembler::Work::emit_offsets(const FieldWork& field, BatchField& out) {
  if (field.one_each) return;
  out.offsets = slab_.numbers(samples_ + 1);
  uint32_t* const offsets = data_of(*out.offsets);
  std::fill_n(offsets, samples_ + 1, 0U);
  for (const uint32_t sample : samples_of(field)) ++offsets[sample + 1];
  for (size_t i = 0; i < samples_; ++i) offsets[i + 1] += offsets[i];
}

void BatchAssembler::Work::emit_trainer(const TableWork& table, uint32_t number, BatchField& out) {
  const FieldWork& field = fields_[number];
  out.field = number;
  out.pooled = field.pooled;
  emit_offsets(field, out);
  if (field.pooled) return;
  out.positions = slab_.numbers(field.keys);
  uint32_t* positions = data_of(*out.positions);
  const std::span<const uint32_t> shards = table.distinct.shards();
  for (const uint32_t id : field.ids.values<uint32_t>())
    *positions++ = table.base_of[shards[id]] + table.positions[id];
}

void BatchAssembler::Work::emit_table(TableWork& table, Batch& batch) {
  std::vector<Counts> counts;
  for (const uint32_t number : table.fields) {
    fields_[number].pooled = false;
    if (table.direct) continue;
    counts.push_back(count(table, fields_[number]));
    choose_travel(table, counts.back(), fields_[number]);
  }
  number_keys(table);
  emit_parts(table, batch);
  for (size_t i = 0; i < table.fields.size(); ++i) {
    const uint32_t number = table.fields[i];
    if (table.direct) {
      emit_direct(number, batch);
      continue;
    }
    emit_field(table, number, counts[i], batch);
    emit_trainer(table, number, batch.fields[number]);
    if (!fields_[number].pooled) continue;
    for (const uint32_t shard : batch.tables.back().shards)
      batch.fields[number].samples.push_back(
          batch.shards[shard].parts.back().fields.back().samples);
  }
}

Tensor BatchAssembler::Work::column(std::span<const SampleRef> samples, uint32_t at, size_t width) {
  std::vector<int64_t> shape{static_cast<int64_t>(samples.size())};
  if (at < schema_->weight_at()) shape.push_back(static_cast<int64_t>(width));
  Tensor tensor = slab_.tensor(DType::kFloat32, std::move(shape));
  float* out = tensor.mutable_values<float>().data();
  for (const SampleRef& ref : samples) {
    const float* from = ref.block->numbers(ref.sample).data() + at;
    for (size_t i = 0; i < width; ++i) out[i] = from[i];
    out += width;
  }
  return tensor;
}

void BatchAssembler::Work::emit_numbers(std::span<const SampleRef> samples, Batch& batch) {
  const SampleSchema& schema = *schema_;
  if (!schema.dense.empty()) batch.dense = column(samples, 0, schema.dense.size());
  if (!schema.labels.empty())
    batch.labels = column(samples, schema.label_at(), schema.labels.size());
  if (schema.has_weight) batch.weights = column(samples, schema.weight_at(), 1);
  if (schema.has_show) batch.shows = column(samples, schema.show_at(), 1);
  if (schema.has_click) batch.clicks = column(samples, schema.click_at(), 1);
  if (schema.has_group) {
    batch.groups = slab_.tensor(DType::kUInt64, {static_cast<int64_t>(samples.size())});
    uint64_t* out = batch.groups->mutable_values<uint64_t>().data();
    for (const SampleRef& ref : samples) *out++ = ref.block->group(ref.sample);
  }
  if (schema.has_id) {
    batch.ids.reserve(samples.size());
    for (const SampleRef& ref : samples) batch.ids.emplace_back(ref.block->id(ref.sample));
  }
}

StatusOr<Batch> BatchAssembler::Work::assemble(std::span<const SampleRef> samples,
                                               const BucketOwners& owners) {
  STARLING_CHECK(!samples.empty(), "a batch of no samples");
  STARLING_CHECK(owners.owner.size() == kBuckets && owners.shards > 0, "not a whole map");
  owners_ = owners;
  samples_ = samples.size();
  slab_.next_batch();
  Batch batch;
  batch.samples = static_cast<uint32_t>(samples.size());
  batch.shards.resize(owners.shards);
  for (ShardFeed& feed : batch.shards) feed.parts.reserve(used_.size());
  batch.fields.resize(fields_.size());
  gather(samples);
  for (TableWork& table : used_) {
    STARLING_RETURN_IF_ERROR(merge(table));
    emit_table(table, batch);
  }
  emit_numbers(samples, batch);
  for (FieldWork& field : fields_) field.ids = {};
  owners_ = {};
  return batch;
}

size_t Batch::feed_bytes() const {
  size_t bytes = 0;
  for (const ShardFeed& feed : shards) {
    for (const ShardPart& part : feed.parts) {
      bytes += part.keys.bytes();
      for (const ShardField& field : part.fields)
        bytes += field.samples.bytes() + bytes_of(field.offsets) + field.positions.bytes();
    }
  }
  return bytes;
}

size_t Batch::trainer_bytes() const {
  size_t bytes = bytes_of(dense) + bytes_of(labels) + bytes_of(weights) + bytes_of(shows) +
                 bytes_of(clicks) + bytes_of(groups);
  for (const BatchField& field : fields) {
    bytes += bytes_of(field.offsets) + bytes_of(field.positions);
    for (const Tensor& samples_of : field.samples) bytes += samples_of.bytes();
  }
  for (const std::string& id : ids) bytes += id.size();
  return bytes;
}

BatchAssembler::BatchAssembler(std::unique_ptr<Work> work) : work_(std::move(work)) {}
BatchAssembler::BatchAssembler(BatchAssembler&&) noexcept = default;
BatchAssembler& BatchAssembler::operator=(BatchAssembler&&) noexcept = default;
BatchAssembler::~BatchAssembler() = default;

StatusOr<BatchAssembler> BatchAssembler::make(std::shared_ptr<const SampleSchema> schema,
                                              std::vector<BatchTable> tables,
                                              BatchOptions options) {
  auto work = std::make_unique<Work>(std::move(schema), std::move(tables), options);
  STARLING_RETURN_IF_ERROR(work->bind_fields());
  return BatchAssembler(std::move(work));
}

const std::vector<BatchTable>& BatchAssembler::tables() const { return work_->tables(); }

StatusOr<Batch> BatchAssembler::assemble(std::span<const SampleRef> samples,
                                         const BucketOwners& owners) {
  return work_->assemble(samples, owners);
}

}  // namespace starling
