#include "worker/layout.h"

#include <algorithm>

#include "base/check.h"
#include "wire/enums.h"

namespace starling {
namespace {

StatusOr<std::span<const uint32_t>> numbers_at(const std::vector<Tensor>& tensors, uint32_t index,
                                               const std::string& what) {
  if (index >= tensors.size()) {
    return invalid_argument("{}: tensor {} of {}", what, index, tensors.size());
  }
  STARLING_RETURN_IF_ERROR(tensors[index].expect(what, DType::kUInt32, 1));
  return tensors[index].values<uint32_t>();
}

StatusOr<std::span<const float>> matrix_at(const Message& reply, uint32_t index, size_t rows,
                                           size_t columns, const std::string& what) {
  if (index >= reply.tensors.size()) {
    return invalid_argument("{}: tensor {} of {}", what, index, reply.tensors.size());
  }
  const Tensor& tensor = reply.tensors[index];
  STARLING_RETURN_IF_ERROR(tensor.expect(what, DType::kFloat32, 2));
  if (tensor.shape()[0] != static_cast<int64_t>(rows) ||
      tensor.shape()[1] != static_cast<int64_t>(columns)) {
    return invalid_argument("{}: {} where float32[{}, {}] was fed", what, tensor.describe(), rows,
                            columns);
  }
  return tensor.values<float>();
}

void add_to(float* out, const float* from, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] += from[i];
}

uint32_t add_tensor(Message& message, Tensor tensor) {
  message.tensors.push_back(std::move(tensor));
  return static_cast<uint32_t>(message.tensors.size() - 1);
}

// The part of `table` in a push, which is made by whoever comes first.
v1::BatchGradPart& part_of(Message& message, const std::string& table) {
  v1::PushGradOption& option = *message.meta.mutable_push_grad();
  for (v1::BatchGradPart& part : *option.mutable_batch()) {
    if (part.table() == table) return part;
  }
  v1::BatchGradPart& part = *option.add_batch();
  part.set_table(table);
  return part;
}

}  // namespace

StatusOr<StepLayout> StepLayout::make(const v1::BatchLease& lease,
                                      const std::vector<Tensor>& tensors, uint32_t shards) {
  if (lease.samples() == 0) return invalid_argument("a lease of a batch without samples");
  StepLayout layout;
  layout.samples_ = lease.samples();
  layout.shards_ = shards;
  layout.kept_ = tensors;
  for (const v1::TrainerTable& table : lease.tables()) {
    STARLING_RETURN_IF_ERROR(layout.add_table(table, shards));
  }
  for (const v1::TrainerField& field : lease.fields()) {
    STARLING_RETURN_IF_ERROR(layout.add_field(field, tensors));
  }
  // A row travels because some field points to it: a lease's claim is bounded by what it carries.
  std::vector<uint64_t> pointers(layout.tables_.size(), 0);
  for (const Part& part : layout.parts_) pointers[part.table] += part.positions.size();
  for (size_t i = 0; i < pointers.size(); ++i) {
    if (layout.tables_[i].rows > pointers[i]) {
      return invalid_argument("table '{}' of a lease: {} rows, its fields point to {} at most",
                              layout.tables_[i].name, layout.tables_[i].rows, pointers[i]);
    }
  }
  return layout;
}

Status StepLayout::add_table(const v1::TrainerTable& table, uint32_t shards) {
  const std::string what = "table '" + table.table() + "' of a lease";
  if (table.dim() == 0 || table.dim() > 4096) {
    return invalid_argument("{}: dim {}", what, table.dim());
  }
  if (table.shards_size() != table.row_keys_size()) {
    return invalid_argument("{}: {} shards, {} counts", what, table.shards_size(),
                            table.row_keys_size());
  }
  Table& mine = tables_.emplace_back();
  mine.name = table.table();
  mine.dim = table.dim();
  uint64_t rows = 0;
  for (int i = 0; i < table.shards_size(); ++i) {
    if (table.shards(i) >= shards || (i > 0 && table.shards(i) <= table.shards(i - 1))) {
      return invalid_argument("{}: shard {} of {}", what, table.shards(i), shards);
    }
    mine.shards.push_back(table.shards(i));
    mine.row_keys.push_back(table.row_keys(i));
    rows += table.row_keys(i);
  }
  if (rows > (uint64_t{1} << 31)) return invalid_argument("{}: {} rows", what, rows);
  mine.rows = static_cast<uint32_t>(rows);
  return absl::OkStatus();
}

Status StepLayout::add_field(const v1::TrainerField& field, const std::vector<Tensor>& tensors) {
  const std::string what = "field '" + field.field() + "' of a lease";
  const auto table = std::find_if(tables_.begin(), tables_.end(),
                                  [&](const Table& t) { return t.name == field.table(); });
  if (table == tables_.end()) {
    return invalid_argument("{}: its table '{}' is not listed", what, field.table());
  }
  Part part;
  part.table = static_cast<uint32_t>(table - tables_.begin());
  STARLING_RETURN_IF_ERROR(check_enum(field.travel(), what + ": travel"));
  STARLING_RETURN_IF_ERROR(check_enum(field.pooling(), what + ": pooling"));
  part.pooled = field.travel() == v1::TRAVEL_POOLED;
  if (part.pooled && field.pooling() == v1::POOLING_NONE) {
    return invalid_argument("{}: a sequence travels as rows only", what);
  }
  if (field.has_offsets_tensor()) {
    STARLING_ASSIGN_OR_RETURN(part.offsets, numbers_at(tensors, field.offsets_tensor(), what));
    if (part.offsets.size() != size_t{samples_} + 1 || part.offsets.front() != 0 ||
        !std::is_sorted(part.offsets.begin(), part.offsets.end())) {
      return invalid_argument("{}: its offsets are not those of {} samples", what, samples_);
    }
  }
  STARLING_RETURN_IF_ERROR(part.pooled ? add_pooled(field, tensors, part)
                                       : add_rows(field, tensors, part));
  told_.push_back({.name = field.field(),
                   .table = field.table(),
                   .dim = table->dim,
                   .pooling = field.pooling(),
                   .column = width_});
  if (field.pooling() != v1::POOLING_NONE) width_ += table->dim;
  parts_.push_back(std::move(part));
  return absl::OkStatus();
}

Status StepLayout::add_rows(const v1::TrainerField& field, const std::vector<Tensor>& tensors,
                            Part& part) {
  const std::string what = "field '" + field.field() + "' of a lease";
  if (!field.has_positions_tensor()) return invalid_argument("{}: it has no positions", what);
  STARLING_ASSIGN_OR_RETURN(part.positions, numbers_at(tensors, field.positions_tensor(), what));
  const size_t keys = part.offsets.empty() ? samples_ : part.offsets.back();
  if (part.positions.size() != keys) {
    return invalid_argument("{}: {} positions of {} keys", what, part.positions.size(), keys);
  }
  Table& table = tables_[part.table];
  table.has_row_fields = true;
  for (const uint32_t position : part.positions) {
    if (position >= table.rows) {
      return invalid_argument("{}: position {} of {} rows", what, position, table.rows);
    }
  }
  return absl::OkStatus();
}

Status StepLayout::add_pooled(const v1::TrainerField& field, const std::vector<Tensor>& tensors,
                              Part& part) {
  const std::string what = "field '" + field.field() + "' of a lease";
  const Table& table = tables_[part.table];
  if (static_cast<size_t>(field.samples_tensors_size()) != table.shards.size()) {
    return invalid_argument("{}: segments of {} shards, its table has {}", what,
                            field.samples_tensors_size(), table.shards.size());
  }
  for (const uint32_t index : field.samples_tensors()) {
    STARLING_ASSIGN_OR_RETURN(const auto segments, numbers_at(tensors, index, what));
    for (const uint32_t sample : segments) {
      if (sample >= samples_) {
        return invalid_argument("{}: sample {} of {}", what, sample, samples_);
      }
    }
    part.segments.push_back(segments);
  }
  part.sums.resize(table.shards.size());
  return absl::OkStatus();
}

Status StepLayout::take(std::vector<Message> replies) {
  if (replies.size() != shards_) {
    return invalid_argument("lookup: {} replies of {} shards", replies.size(), shards_);
  }
  replies_ = std::move(replies);
  for (Table& table : tables_) table.row.assign(table.rows, nullptr);
  for (uint32_t shard = 0; shard < shards_; ++shard) {
    for (const v1::LookupPart& part : replies_[shard].meta.embedding_lookup_reply().parts()) {
      STARLING_RETURN_IF_ERROR(take_part(shard, replies_[shard], part));
    }
  }
  for (const Table& table : tables_) {
    if (std::find(table.row.begin(), table.row.end(), nullptr) != table.row.end()) {
      return invalid_argument("lookup: rows of table '{}' are missing", table.name);
    }
  }
  for (size_t i = 0; i < parts_.size(); ++i) {
    for (size_t s = 0; s < parts_[i].sums.size(); ++s) {
      if (parts_[i].sums[s].size() != parts_[i].segments[s].size() * told_[i].dim) {
        return invalid_argument("lookup: sums of field '{}' are missing", told_[i].name);
      }
    }
  }
  return absl::OkStatus();
}

Status StepLayout::take_part(uint32_t shard, const Message& reply, const v1::LookupPart& part) {
  const auto table = std::find_if(tables_.begin(), tables_.end(),
                                  [&](const Table& t) { return t.name == part.table(); });
  const std::string what = "lookup of table '" + part.table() + "'";
  if (table == tables_.end()) return invalid_argument("{}: it is not of the batch", what);
  const auto found = std::lower_bound(table->shards.begin(), table->shards.end(), shard);
  if (found == table->shards.end() || *found != shard) {
    return invalid_argument("{}: shard {} has none of its keys", what, shard);
  }
  const size_t at = found - table->shards.begin();
  if (table->row_keys[at] > 0) {
    STARLING_ASSIGN_OR_RETURN(const auto rows, matrix_at(reply, part.rows_tensor(),
                                                         table->row_keys[at], table->dim, what));
    size_t base = 0;
    for (size_t s = 0; s < at; ++s) base += table->row_keys[s];
    for (size_t r = 0; r < table->row_keys[at]; ++r) {
      table->row[base + r] = rows.data() + r * table->dim;
    }
  }
  for (const v1::LookupField& field : part.fields()) {
    const auto told = std::find_if(told_.begin(), told_.end(),
                                   [&](const Field& f) { return f.name == field.field(); });
    const size_t i = told - told_.begin();
    if (told == told_.end() || !parts_[i].pooled || told->table != part.table()) {
      return invalid_argument("{}: sums of field '{}' were not fed", what, field.field());
    }
    STARLING_ASSIGN_OR_RETURN(
        parts_[i].sums[at],
        matrix_at(reply, field.sums_tensor(), parts_[i].segments[at].size(), told->dim, what));
  }
  return absl::OkStatus();
}

void StepLayout::gather(std::span<float> out) const {
  STARLING_CHECK(out.size() == samples_ * width_, "gather into another shape");
  for (size_t field = 0; field < told_.size(); ++field) {
    if (told_[field].pooling == v1::POOLING_NONE) continue;
    parts_[field].pooled ? gather_sums(field, out) : gather_rows(field, out);
  }
}

void StepLayout::gather_rows(size_t field, std::span<float> out) const {
  const Part& part = parts_[field];
  const size_t dim = told_[field].dim;
  const std::vector<const float*>& rows = tables_[part.table].row;
  float* at = out.data() + told_[field].column;
  for (uint32_t sample = 0; sample < samples_; ++sample, at += width_) {
    const uint32_t begin = part.begin(sample);
    const uint32_t keys = part.keys(sample);
    if (keys == 1) {
      std::copy_n(rows[part.positions[begin]], dim, at);
      continue;
    }
    std::fill_n(at, dim, 0.0F);
    for (uint32_t k = 0; k < keys; ++k) add_to(at, rows[part.positions[begin + k]], dim);
    if (told_[field].pooling == v1::POOLING_MEAN && keys > 1) {
      for (size_t d = 0; d < dim; ++d) at[d] /= static_cast<float>(keys);
    }
  }
}

void StepLayout::gather_sums(size_t field, std::span<float> out) const {
  const Part& part = parts_[field];
  const size_t dim = told_[field].dim;
  float* const base = out.data() + told_[field].column;
  for (uint32_t sample = 0; sample < samples_; ++sample) {
    std::fill_n(base + sample * width_, dim, 0.0F);
  }
  for (size_t s = 0; s < part.sums.size(); ++s) {
    const float* from = part.sums[s].data();
    for (const uint32_t sample : part.segments[s]) {
      add_to(base + sample * width_, from, dim);
      from += dim;
    }
  }
  if (told_[field].pooling != v1::POOLING_MEAN) return;
  for (uint32_t sample = 0; sample < samples_; ++sample) {
    const uint32_t keys = part.keys(sample);
    if (keys <= 1) continue;
    float* at = base + sample * width_;
    for (size_t d = 0; d < dim; ++d) at[d] /= static_cast<float>(keys);
  }
}

std::vector<uint32_t> StepLayout::lengths(size_t field) const {
  std::vector<uint32_t> out(samples_);
  for (uint32_t sample = 0; sample < samples_; ++sample) out[sample] = parts_[field].keys(sample);
  return out;
}

void StepLayout::gather_sequence(size_t field, std::span<float> out) const {
  const Part& part = parts_[field];
  const size_t dim = told_[field].dim;
  STARLING_CHECK(out.size() == part.positions.size() * dim, "gather into another shape");
  const std::vector<const float*>& rows = tables_[part.table].row;
  float* at = out.data();
  for (const uint32_t position : part.positions) {
    std::copy_n(rows[position], dim, at);
    at += dim;
  }
}

// The gradients of the rows of one table: a row that a field meets for the first time starts its
// sum, one that a field before has met is summed aside until the field is over.
class StepLayout::RowSums {
 public:
  RowSums(const Table& table, std::vector<float*> rows)
      : dim_(table.dim), rows_(std::move(rows)), met_(rows_.size(), 0), aside_(rows_.size(), 0) {}

  void begin_field() { ++field_; }
  void add(uint32_t row, const float* grad, float divisor) {
    float* to = rows_[row];
    if (met_[row] == 0) {
      met_[row] = field_;
    } else if (met_[row] != field_) {
      if (aside_[row] == 0) {
        extra_rows_.push_back(row);
        aside_[row] = static_cast<uint32_t>(extra_rows_.size());
        extra_.resize(extra_rows_.size() * dim_, 0.0F);
      }
      to = extra_.data() + size_t{aside_[row] - 1} * dim_;
    }
    if (divisor == 1) {
      add_to(to, grad, dim_);
    } else {
      for (size_t d = 0; d < dim_; ++d) to[d] += grad[d] / divisor;
    }
  }
  void end_field() {
    for (size_t i = 0; i < extra_rows_.size(); ++i) {
      add_to(rows_[extra_rows_[i]], extra_.data() + i * dim_, dim_);
      aside_[extra_rows_[i]] = 0;
    }
    extra_rows_.clear();
    extra_.clear();
  }

 private:
  const size_t dim_;
  const std::vector<float*> rows_;
  std::vector<uint32_t> met_;    // per row: the first field that met it, from 1
  std::vector<uint32_t> aside_;  // per row: one more than its place in extra_
  std::vector<uint32_t> extra_rows_;
  std::vector<float> extra_;
  uint32_t field_ = 0;
};

void StepLayout::push_rows(uint32_t index, const Gradients& gradients,
                           std::vector<Message>& messages) const {
  const Table& table = tables_[index];
  std::vector<float*> rows;
  rows.reserve(table.rows);
  for (size_t s = 0; s < table.shards.size(); ++s) {
    if (table.row_keys[s] == 0) continue;
    Tensor grads = Tensor::allocate(DType::kFloat32, {table.row_keys[s], table.dim});
    const std::span<float> values = grads.mutable_values<float>();
    std::fill(values.begin(), values.end(), 0.0F);
    for (size_t r = 0; r < table.row_keys[s]; ++r) rows.push_back(values.data() + r * table.dim);
    Message& message = messages[table.shards[s]];
    part_of(message, table.name).set_rows_tensor(add_tensor(message, std::move(grads)));
  }
  RowSums sums(table, std::move(rows));
  for (size_t field = 0; field < parts_.size(); ++field) {
    const Part& part = parts_[field];
    if (part.table != index || part.pooled) continue;
    const bool is_sequence = told_[field].pooling == v1::POOLING_NONE;
    const bool is_mean = told_[field].pooling == v1::POOLING_MEAN;
    const float* grad = is_sequence ? gradients.sequences[field].data()
                                    : gradients.pooled.data() + told_[field].column;
    sums.begin_field();
    for (uint32_t sample = 0; sample < samples_; ++sample) {
      const uint32_t begin = part.begin(sample);
      const uint32_t keys = part.keys(sample);
      for (uint32_t k = 0; k < keys; ++k) {
        sums.add(part.positions[begin + k], grad, is_mean ? static_cast<float>(keys) : 1.0F);
        if (is_sequence) grad += table.dim;
      }
      if (!is_sequence) grad += width_;
    }
    sums.end_field();
  }
}

void StepLayout::push_sums(size_t field, const Gradients& gradients,
                           std::vector<Message>& messages) const {
  const Part& part = parts_[field];
  const Table& table = tables_[part.table];
  const bool is_mean = told_[field].pooling == v1::POOLING_MEAN;
  for (size_t s = 0; s < table.shards.size(); ++s) {
    const std::span<const uint32_t> segments = part.segments[s];
    Tensor grads =
        Tensor::allocate(DType::kFloat32, {static_cast<int64_t>(segments.size()), table.dim});
    float* to = grads.mutable_values<float>().data();
    for (const uint32_t sample : segments) {
      const float* from = gradients.pooled.data() + sample * width_ + told_[field].column;
      const float keys = is_mean ? static_cast<float>(part.keys(sample)) : 1.0F;
      for (size_t d = 0; d < table.dim; ++d) to[d] = from[d] / keys;
      to += table.dim;
    }
    Message& message = messages[table.shards[s]];
    v1::FieldGrad& grad = *part_of(message, table.name).add_fields();
    grad.set_field(told_[field].name);
    grad.set_sums_tensor(add_tensor(message, std::move(grads)));
  }
}

std::vector<Message> StepLayout::pushes(const Gradients& gradients) const {
  STARLING_CHECK(gradients.pooled.size() == samples_ * width_, "gradients of another shape");
  std::vector<Message> messages(shards_);
  for (Message& message : messages) message.meta.mutable_push_grad();
  for (uint32_t table = 0; table < tables_.size(); ++table) {
    if (tables_[table].has_row_fields) push_rows(table, gradients, messages);
  }
  for (size_t field = 0; field < parts_.size(); ++field) {
    if (parts_[field].pooled) push_sums(field, gradients, messages);
  }
  return messages;
}

}  // namespace starling
