#include "data/batch.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "data/distinct.h"
#include "data/tail.h"

namespace starling {
namespace {

Tensor numbers(size_t n) { return Tensor::allocate(DType::kUInt32, {static_cast<int64_t>(n)}); }

size_t bytes_of(const std::optional<Tensor>& tensor) { return tensor ? tensor->bytes() : 0; }

// One key field of the batch that is being made.
struct FieldWork {
  uint32_t table = 0;  // in the tables that have fields
  FieldPooling pooling = FieldPooling::kSum;
  Tail<Key> keys;         // of all samples
  Tail<uint32_t> ends;    // (samples): behind the last key of each
  Tail<uint32_t> ids;     // (keys): which of the table's distinct keys
  bool one_each = false;  // every sample has exactly one key
  bool pooled = false;

  uint32_t begin_of(size_t sample) const { return sample == 0 ? 0 : ends[sample - 1]; }
};

// One table that has fields.
struct TableWork {
  uint32_t table = 0;            // in BatchAssembler::tables()
  std::vector<uint32_t> fields;  // ascending
  DistinctKeys distinct;
  Tail<uint32_t> shards;          // (distinct): who owns the key
  Tail<uint32_t> positions;       // (distinct): in the shard's list
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
  void gather(std::span<const SampleRef> samples);
  Status merge(TableWork& table);
  void choose_travel(TableWork& table, const Counts& counts, FieldWork& field);
  Counts count(const TableWork& table, const FieldWork& field) const;
  void number_keys(TableWork& table);
  void number_used(TableWork& table, bool pooled);
  void emit_parts(TableWork& table, Batch& batch) const;
  void emit_field(const TableWork& table, uint32_t number, const Counts& counts,
                  Batch& batch) const;
  void emit_trainer(const TableWork& table, uint32_t number, BatchField& out) const;
  void emit_numbers(std::span<const SampleRef> samples, Batch& batch) const;
  Tensor column(std::span<const SampleRef> samples, uint32_t at, size_t width) const;

  std::shared_ptr<const SampleSchema> schema_;
  std::vector<BatchTable> tables_;
  BatchOptions options_;
  std::vector<FieldWork> fields_;  // (SampleSchema.keys)
  std::vector<TableWork> used_;    // tables in the order of their first field
  BucketOwners owners_;            // of the call
  size_t samples_ = 0;             // of the call
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

void BatchAssembler::Work::gather(std::span<const SampleRef> samples) {
  for (FieldWork& field : fields_) {
    field.keys.cut(0);
    field.ends.cut(0);
    field.ends.room(samples.size());
  }
  for (const SampleRef& ref : samples) {
    ref.block->for_each_key(ref.sample,
                            [&](uint32_t field, Key key) { fields_[field].keys.push(key); });
    for (FieldWork& field : fields_) field.ends.push(static_cast<uint32_t>(field.keys.size()));
  }
  for (FieldWork& field : fields_) {
    field.one_each = field.keys.size() == samples.size();
    for (size_t i = 0; field.one_each && i < samples.size(); ++i)
      field.one_each = field.ends[i] == i + 1;
  }
}

// Numbers the distinct keys of the table and finds their shards.
Status BatchAssembler::Work::merge(TableWork& table) {
  const Placement& placement = tables_[table.table].placement;
  size_t keys = 0;
  for (const uint32_t number : table.fields) keys += fields_[number].keys.size();
  table.distinct.start(keys);
  for (const uint32_t number : table.fields) {
    FieldWork& field = fields_[number];
    field.ids.cut(0);
    table.distinct.add(field.keys.span(), field.ids.room(field.keys.size()));
    field.ids.take(field.keys.size());
  }
  const std::span<const Key> distinct = table.distinct.keys();
  table.shards.cut(0);
  uint32_t* shards = table.shards.room(distinct.size());
  for (size_t i = 0; i < distinct.size(); ++i) {
    if (!placement.holds(distinct[i])) [[unlikely]] {
      return invalid_argument("table {}: key {} lies outside of its range {} .. {}",
                              tables_[table.table].name, value(distinct[i]), placement.low,
                              placement.high);
    }
    shards[i] = owners_.owner[placement.bucket(distinct[i], mixed_hash(distinct[i]))];
  }
  table.shards.take(distinct.size());
  return absl::OkStatus();
}

Counts BatchAssembler::Work::count(const TableWork& table, const FieldWork& field) const {
  Counts counts{std::vector<uint32_t>(owners_.shards), std::vector<uint32_t>(owners_.shards)};
  if (owners_.shards == 1) {
    counts.keys[0] = static_cast<uint32_t>(field.keys.size());
    uint32_t before = 0;
    for (const uint32_t end : field.ends.span()) {
      counts.segments[0] += end > before ? 1 : 0;
      before = end;
    }
    return counts;
  }
  constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> last(owners_.shards, kNone);
  uint32_t at = 0;
  for (uint32_t sample = 0; sample < samples_; ++sample) {
    for (; at < field.ends[sample]; ++at) {
      const uint32_t shard = table.shards[field.ids[at]];
      ++counts.keys[shard];
      counts.segments[shard] += last[shard] != sample ? 1 : 0;
      last[shard] = sample;
    }
  }
  return counts;
}

// Bytes of one lookup and of what the trainer is told; the push has as many vectors again.
void BatchAssembler::Work::choose_travel(TableWork& table, const Counts& counts, FieldWork& field) {
  field.pooled = false;
  if (options_.rows_only || field.pooling == FieldPooling::kNone || field.one_each) return;
  std::vector<bool> seen(table.distinct.keys().size());
  uint64_t rows = 0;
  for (const uint32_t id : field.ids.span()) {
    rows += seen[id] ? 0 : 1;
    seen[id] = true;
  }
  uint64_t segments = 0;
  for (const uint32_t n : counts.segments) segments += n;
  const uint64_t vector_bytes = uint64_t{tables_[table.table].dim} * sizeof(float);
  const uint64_t index_bytes = sizeof(uint32_t);
  field.pooled = segments * (2 * vector_bytes + index_bytes) <
                 rows * 2 * vector_bytes + field.keys.size() * index_bytes;
}

void BatchAssembler::Work::number_used(TableWork& table, bool pooled) {
  constexpr uint32_t kNone = UINT32_MAX;
  for (const uint32_t number : table.fields) {
    const FieldWork& field = fields_[number];
    if (field.pooled != pooled) continue;
    for (const uint32_t id : field.ids.span()) {
      if (table.positions[id] == kNone) table.positions[id] = table.keys_of[table.shards[id]]++;
    }
  }
}

// Keys that travel as rows come first in their shard's list, by first use.
void BatchAssembler::Work::number_keys(TableWork& table) {
  const size_t distinct = table.distinct.keys().size();
  table.keys_of.assign(owners_.shards, 0);
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
    for (size_t i = 0; i < distinct; ++i) positions[i] = table.keys_of[table.shards[i]]++;
    table.rows_of = table.keys_of;
  }
  table.base_of.assign(owners_.shards, 0);
  for (uint32_t shard = 1; shard < owners_.shards; ++shard)
    table.base_of[shard] = table.base_of[shard - 1] + table.rows_of[shard - 1];
}

void BatchAssembler::Work::emit_parts(TableWork& table, Batch& batch) const {
  BatchRows rows;
  rows.table = table.table;
  std::vector<Key*> keys_of(owners_.shards);
  for (uint32_t shard = 0; shard < owners_.shards; ++shard) {
    if (table.keys_of[shard] == 0) continue;
    ShardPart part;
    part.table = table.table;
    part.keys = Tensor::allocate(DType::kUInt64, {table.keys_of[shard]});
    part.row_keys = table.rows_of[shard];
    keys_of[shard] = reinterpret_cast<Key*>(part.keys.mutable_values<uint64_t>().data());
    batch.shards[shard].parts.push_back(std::move(part));
    rows.shards.push_back(shard);
    rows.row_keys.push_back(table.rows_of[shard]);
  }
  const std::span<const Key> distinct = table.distinct.keys();
  for (size_t i = 0; i < distinct.size(); ++i)
    keys_of[table.shards[i]][table.positions[i]] = distinct[i];
  batch.tables.push_back(std::move(rows));
}

void BatchAssembler::Work::emit_field(const TableWork& table, uint32_t number, const Counts& counts,
                                      Batch& batch) const {
  const FieldWork& field = fields_[number];
  struct Cursor {
    uint32_t* samples = nullptr;
    uint32_t* offsets = nullptr;  // behind the last that is set
    uint32_t* positions = nullptr;
    uint32_t keys = 0;
    uint32_t last = UINT32_MAX;  // sample
  };
  std::vector<Cursor> cursors(owners_.shards);
  for (const uint32_t shard : batch.tables.back().shards) {
    ShardField out;
    out.field = number;
    out.pooled = field.pooled;
    out.samples = numbers(counts.segments[shard]);
    out.positions = numbers(counts.keys[shard]);
    cursors[shard].samples = out.samples.mutable_values<uint32_t>().data();
    cursors[shard].positions = out.positions.mutable_values<uint32_t>().data();
    if (counts.keys[shard] != counts.segments[shard]) {
      out.offsets = numbers(counts.segments[shard] + 1);
      cursors[shard].offsets = out.offsets->mutable_values<uint32_t>().data();
      *cursors[shard].offsets = 0;
    }
    batch.shards[shard].parts.back().fields.push_back(std::move(out));
  }
  uint32_t at = 0;
  for (uint32_t sample = 0; sample < samples_; ++sample) {
    for (; at < field.ends[sample]; ++at) {
      const uint32_t id = field.ids[at];
      Cursor& cursor = cursors[table.shards[id]];
      if (cursor.last != sample) {
        cursor.last = sample;
        *cursor.samples++ = sample;
        if (cursor.offsets != nullptr) ++cursor.offsets;
      }
      *cursor.positions++ = table.positions[id];
      ++cursor.keys;
      if (cursor.offsets != nullptr) *cursor.offsets = cursor.keys;
    }
  }
}

void BatchAssembler::Work::emit_trainer(const TableWork& table, uint32_t number,
                                        BatchField& out) const {
  const FieldWork& field = fields_[number];
  out.field = number;
  out.pooled = field.pooled;
  if (!field.one_each) {
    out.offsets = numbers(samples_ + 1);
    const std::span<uint32_t> offsets = out.offsets->mutable_values<uint32_t>();
    offsets[0] = 0;
    std::copy_n(field.ends.data(), samples_, offsets.begin() + 1);
  }
  if (field.pooled) return;
  out.positions = numbers(field.ids.size());
  const std::span<uint32_t> positions = out.positions->mutable_values<uint32_t>();
  for (size_t i = 0; i < field.ids.size(); ++i) {
    const uint32_t id = field.ids[i];
    positions[i] = table.base_of[table.shards[id]] + table.positions[id];
  }
}

Tensor BatchAssembler::Work::column(std::span<const SampleRef> samples, uint32_t at,
                                    size_t width) const {
  std::vector<int64_t> shape{static_cast<int64_t>(samples.size())};
  if (at < schema_->weight_at()) shape.push_back(static_cast<int64_t>(width));
  Tensor tensor = Tensor::allocate(DType::kFloat32, std::move(shape));
  float* out = tensor.mutable_values<float>().data();
  for (const SampleRef& ref : samples) {
    std::memcpy(out, ref.block->numbers(ref.sample).data() + at, width * sizeof(float));
    out += width;
  }
  return tensor;
}

void BatchAssembler::Work::emit_numbers(std::span<const SampleRef> samples, Batch& batch) const {
  const SampleSchema& schema = *schema_;
  if (!schema.dense.empty()) batch.dense = column(samples, 0, schema.dense.size());
  if (!schema.labels.empty())
    batch.labels = column(samples, schema.label_at(), schema.labels.size());
  if (schema.has_weight) batch.weights = column(samples, schema.weight_at(), 1);
  if (schema.has_show) batch.shows = column(samples, schema.show_at(), 1);
  if (schema.has_click) batch.clicks = column(samples, schema.click_at(), 1);
  if (schema.has_group) {
    batch.groups = Tensor::allocate(DType::kUInt64, {static_cast<int64_t>(samples.size())});
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
  Batch batch;
  batch.samples = static_cast<uint32_t>(samples.size());
  batch.shards.resize(owners.shards);
  batch.fields.resize(fields_.size());
  gather(samples);
  for (TableWork& table : used_) {
    STARLING_RETURN_IF_ERROR(merge(table));
    std::vector<Counts> counts;
    for (const uint32_t number : table.fields) {
      counts.push_back(count(table, fields_[number]));
      choose_travel(table, counts.back(), fields_[number]);
    }
    number_keys(table);
    emit_parts(table, batch);
    for (size_t i = 0; i < table.fields.size(); ++i) {
      const uint32_t number = table.fields[i];
      emit_field(table, number, counts[i], batch);
      emit_trainer(table, number, batch.fields[number]);
      if (!fields_[number].pooled) continue;
      for (const uint32_t shard : batch.tables.back().shards)
        batch.fields[number].samples.push_back(
            batch.shards[shard].parts.back().fields.back().samples);
    }
  }
  emit_numbers(samples, batch);
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
