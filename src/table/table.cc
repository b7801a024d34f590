#include "table/table.h"

#include <algorithm>

#include "base/check.h"
#include "table/half.h"
#include "table/table_probe.h"

namespace starling {

namespace {

DType storage_of(const TableOptions& options) {
  if (options.storage == "bfloat16") return DType::kBFloat16;
  return options.storage == "float16" ? DType::kFloat16 : DType::kFloat32;
}

}  // namespace

StatusOr<std::unique_ptr<Table>> Table::make(const TableOptions& options) {
  STARLING_RETURN_IF_ERROR(check_options(options));
  const std::string what = "table '" + options.name + "'";
  std::unique_ptr<Table> table(new Table(options));
  const size_t dim = options.dim;
  const bool split = options.rest_optimizer.has_value();
  Part first{0, split ? 1 : dim, 0, {}};
  STARLING_ASSIGN_OR_RETURN(first.rule,
                            make_rule(options.optimizer, RuleUse::kSparse, what + ": optimizer"));
  size_t state_floats = first.rule.ops->state_floats(first.count);
  table->parts_.push_back(first);
  if (split) {
    Part rest{1, dim - 1, state_floats, {}};
    STARLING_ASSIGN_OR_RETURN(
        rest.rule, make_rule(*options.rest_optimizer, RuleUse::kSparse, what + ": rest_optimizer"));
    if (rest.rule.clip_value != 0 || rest.rule.clip_norm != 0) {
      return invalid_argument("{}: clipping is of whole rows; set it in optimizer", what);
    }
    state_floats += rest.rule.ops->state_floats(rest.count);
    table->parts_.push_back(rest);
  }
  table->clips_ = first.rule.clip_value != 0 || first.rule.clip_norm != 0;
  STARLING_ASSIGN_OR_RETURN(table->initializer_,
                            Initializer::make(options.initializer, dim, what + ": initializer"));
  STARLING_ASSIGN_OR_RETURN(
      table->admission_,
      make_admission(options.admission, options.seed, table->stream_, what + ": admission"));
  RowLayoutOptions wanted{dim, storage_of(options), state_floats};
  wanted.click = options.statistics.enabled;
  wanted.last_step = options.statistics.enabled || options.eviction.idle_steps_max != 0 ||
                     options.eviction.by_lru();
  wanted.touches = options.eviction.by_lfu();
  wanted.second = split;
  table->layout_ = RowLayout::make(wanted);
  table->scratch_.resize((2 * kBlock + 1) * dim);
  table->slabs_.emplace(table->layout_.stride);
  table->index_.emplace(*table->slabs_);
  if (options.eviction.by_capacity()) table->victims_.resize(kBuckets);
  return table;
}

Table::Table(const TableOptions& options)
    : options_(options),
      kernels_(kernels()),
      stream_(name_hash(options.name)),
      missing_reads_zero_(options.admission.kind != "always" &&
                          !options.admission.reads_initializer),
      evicted_(options.eviction.listed_max),
      sink_(&evicted_) {}

Table::~Table() = default;

TableCounts Table::counts() const {
  TableCounts counts = counts_;
  counts.rows = live_rows_;
  counts.lookups = lookup_hints_;
  return counts;
}

size_t Table::memory_bytes() const {
  size_t bytes = sizeof *this + slabs_->bytes() + index_->bytes() + admission_->bytes() +
                 deletions_.size() * sizeof(Deletion) + evicted_.bytes() + merger_.bytes() +
                 victims_.capacity() * sizeof(VictimQueue) +
                 (missing_.capacity() + late_.capacity()) * sizeof(uint32_t) +
                 late_rows_.capacity() * sizeof(RowNumber) +
                 (scratch_.capacity() + pooled_rows_.capacity()) * sizeof(float);
  for (const VictimQueue& queue : victims_) bytes += queue.bytes();
  if (snapshot_ != nullptr) bytes += snapshot_->bytes();
  return bytes;
}

Status Table::check_keys(std::span<const Key> keys) const {
  if (keys.size() > UINT32_MAX) {
    return invalid_argument("table '{}': {} keys in one batch, at most 2^32 - 1", options_.name,
                            keys.size());
  }
  if (!options_.placement.by_range()) return {};
  for (const Key key : keys) {
    if (!options_.placement.holds(key)) {
      return invalid_argument("table '{}': key {} is outside its range [{}, {})", options_.name,
                              value(key), options_.placement.low, options_.placement.high);
    }
  }
  return {};
}

RowNumber Table::find(Key key) const {
  const uint64_t hash = mixed_hash(key);
  return index_->find(bucket_of(key, hash), hash, key);
}

ProbeView Table::probe_view(size_t touched_bytes) const {
  // Rows start at multiples of the stride's largest power of two, so the furthest start in a line
  // is known.
  const size_t furthest =
      64 - std::min<size_t>(64, size_t{1} << std::countr_zero(slabs_->stride()));
  const bool two_lines = furthest + touched_bytes <= 128;
  const size_t lines = (touched_bytes + 63) / 64;
  const size_t ahead = std::max<size_t>(kLinesAhead / lines / kProbeBlock, 1) * kProbeBlock;
  return {index_->buckets(),
          slabs_->chunk_table(),
          slabs_->shift(),
          slabs_->mask(),
          slabs_->stride(),
          slabs_->end(),
          touched_bytes,
          two_lines ? 0 : touched_bytes,
          std::min(ahead, kMatchAheadMax),
          options_.placement};
}

ProbePass Table::probe_pass(std::span<const Key> keys, const RowHints* hints) const {
  late_.resize(keys.size());
  ProbePass pass;
  pass.keys = keys;
  if (hints != nullptr) pass.hints = hints->rows.data();
  pass.late = late_.data();
  return pass;
}

void Table::find_late(const ProbeView& view, std::span<const Key> keys, const RowHints* hints,
                      size_t late, HintCounts& counts) const {
  late_rows_.resize(late);
  for (size_t l = 0; l < late; l += kLateBlock) {
    const size_t n = std::min(kLateBlock, late - l);
    uint64_t further = kernels_.look_again(view, keys.data(), std::span(late_).subspan(l, n),
                                           late_rows_.data() + l);
    for (; further != 0; further &= further - 1) {
      const size_t at = l + static_cast<size_t>(std::countr_zero(further));
      late_rows_[at] = find(keys[late_[at]]);
    }
  }
  if (hints == nullptr) return;
  const bool current = hints->generation == generation_;
  size_t good = 0;  // hints of late keys that were right: late for another reason, or still missing
  for (size_t l = 0; l < late; ++l) {
    const RowNumber hint = hints->rows[late_[l]];
    good += static_cast<size_t>(hint == late_rows_[l] && (current || hint != kNoRow));
  }
  counts.probed += late - good;
  counts.kept += keys.size() - late + good;
}

void Table::first_weights(Key key, bool with_rest, std::span<float> out) const {
  initializer_.fill(options_.seed, stream_, key, out);
  if (!with_rest) std::fill(out.begin() + 1, out.end(), 0.0f);
}

void Table::missing_weights(Key key, std::span<float> out) const {
  if (missing_reads_zero_) {
    std::fill(out.begin(), out.end(), 0.0f);
  } else {
    first_weights(key, parts_.size() == 1, out);
  }
}

void Table::read_weights(const std::byte* row, std::span<float> out) const {
  if (layout_.is_float32()) {
    std::memcpy(out.data(), row + kWeightsOffset, layout_.weight_bytes);
  } else {
    const auto* halves = reinterpret_cast<const uint16_t*>(row + kWeightsOffset);
    decode_half({halves, layout_.dim}, layout_.storage, out.data());
  }
}

void Table::write_weights(std::byte* row, std::span<const float> weights) const {
  if (layout_.is_float32()) {
    std::memcpy(row + kWeightsOffset, weights.data(), layout_.weight_bytes);
  } else {
    encode_half(weights, layout_.storage, layout_.halves_of(row));
  }
}

Status Table::locate(std::span<const Key> keys, RowHints& hints) const {
  STARLING_RETURN_IF_ERROR(check_keys(keys));
  hints.rows.resize(keys.size());
  hints.generation = generation_;
  const ProbeView view = probe_view(kWeightsOffset);
  const ProbePass pass = probe_pass(keys, nullptr);
  ProbeRing ring;
  const size_t late = kernels_.find(view, pass, 0, keys.size(), ring, {hints.rows.data(), nullptr});
  find_late(view, keys, nullptr, late, lookup_hints_);
  for (size_t l = 0; l < late; ++l) hints.rows[late_[l]] = late_rows_[l];
  return {};
}

Status Table::gather(std::span<const Key> keys, const RowHints* hints, std::span<float> out,
                     uint64_t* missing) const {
  STARLING_RETURN_IF_ERROR(check_keys(keys));
  if (out.size() != keys.size() * layout_.dim ||
      (hints != nullptr && hints->rows.size() != keys.size())) {
    return invalid_argument("table '{}': gather of {} keys into {} floats", options_.name,
                            keys.size(), out.size());
  }
  const size_t dim = layout_.dim;
  const ProbeView view = probe_view(kWeightsOffset + layout_.weight_bytes);
  ProbePass pass = probe_pass(keys, hints);
  size_t late;
  if (layout_.is_float32()) {
    late = kernels_.gather(view, pass, dim, out.data());
  } else {
    late = find_blocks(view, pass, [&](size_t first, size_t n, std::byte** data, RowNumber*) {
      for (size_t i = 0; i < n; ++i) {
        if (data[i] != nullptr) read_weights(data[i], out.subspan((first + i) * dim, dim));
      }
    });
  }
  find_late(view, keys, hints, late, lookup_hints_);
  uint64_t without = 0;
  for (size_t l = 0; l < late; ++l) {
    const std::span<float> weights = out.subspan(late_[l] * dim, dim);
    if (late_rows_[l] == kNoRow) {
      missing_weights(keys[late_[l]], weights);
      ++without;
    } else {
      read_weights(slabs_->at(late_rows_[l]), weights);
    }
  }
  if (missing != nullptr) *missing = without;
  return {};
}

Status Table::pool(std::span<const Key> keys, const RowHints* hints, const SegmentLayout& segments,
                   Pooling pooling, std::span<float> out) const {
  STARLING_RETURN_IF_ERROR(segments.check(keys.size()));
  if (out.size() != segments.outputs(pooling) * layout_.dim) {
    return invalid_argument("table '{}': pool of {} vectors of {} into {} floats", options_.name,
                            segments.outputs(pooling), layout_.dim, out.size());
  }
  pooled_rows_.resize(keys.size() * layout_.dim);
  STARLING_RETURN_IF_ERROR(gather(keys, hints, pooled_rows_));
  pool_rows(segments, pooling, layout_.dim, pooled_rows_.data(), out.data());
  return {};
}

Status Table::get(std::span<const Key> keys, RowBatch& out) const {
  STARLING_RETURN_IF_ERROR(check_keys(keys));
  const size_t n = keys.size();
  out.weights.assign(n * layout_.dim, 0);
  out.state.assign(n * layout_.state_floats, 0);
  out.statistics.assign(n, {});
  out.found.assign(n, 0);
  for (size_t i = 0; i < n; ++i) {
    const std::span<float> weights(out.weights.data() + i * layout_.dim, layout_.dim);
    const RowNumber row = find(keys[i]);
    if (row == kNoRow) {
      missing_weights(keys[i], weights);
      continue;
    }
    const std::byte* data = slabs_->at(row);
    out.found[i] = 1;
    read_weights(data, weights);
    std::copy_n(reinterpret_cast<const float*>(data + layout_.state), layout_.state_floats,
                out.state.begin() + static_cast<ptrdiff_t>(i * layout_.state_floats));
    out.statistics[i] = layout_.read_statistics(data);
  }
  return {};
}

bool Table::prepare() {
  // A small table may not cost pages that it will never use.
  constexpr uint64_t kIndexAheadRows = 1 << 18;
  return slabs_->prepare() || (live_rows_ >= kIndexAheadRows && index_->prepare());
}

void Table::begin_operation() {
  ++operation_;
  if (operation_ - stamp_base_ > options_.operations_max) restamp();
}

void Table::restamp() {
  // The stamps have run out: all rows count as touched just before this operation, and older ones
  // are out of reach.
  stamp_base_ = operation_ - 2;
  changes_floor_ = std::max(changes_floor_, operation_ - 1);
  for (RowNumber row = 1; row < slabs_->end(); ++row) {
    std::byte* data = slabs_->at(row);
    if (stamp_of(data) != 0) set_stamp(data, 1);
  }
}

RowNumber Table::create(Key key, uint64_t hash, uint32_t bucket) {
  const RowNumber row = slabs_->take();
  std::byte* data = slabs_->at(row);
  std::memcpy(data, &key, sizeof key);
  const bool whole = parts_.size() == 1;
  const std::span<float> weights(scratch_.data(), layout_.dim);
  first_weights(key, whole, weights);
  write_weights(data, weights);
  for (const Part& part : parts_) {
    start_state(part.rule, part.count, layout_.state_of(data) + part.state);
  }
  RowStatistics statistics;
  statistics.second = whole;
  layout_.write_statistics(data, statistics);
  set_stamp(data, stamp());
  index_->insert(bucket, hash, row);
  if (snapshot_ != nullptr) snapshot_->settle(row);
  ++live_rows_;
  ++generation_;
  return row;
}

void Table::forget(Key key) {
  if (deletions_.size() >= options_.deletions_max) {
    changes_floor_ =
        std::max(changes_floor_, deletions_.empty() ? operation_ : deletions_.front().operation);
    if (!deletions_.empty()) deletions_.pop_front();
  }
  if (options_.deletions_max != 0) deletions_.push_back({operation_, key});
}

void Table::remove(uint32_t bucket, uint64_t hash, RowNumber row) {
  // While the index still has it: handing the bucket out is one way to preserve a row.
  if (snapshot_ != nullptr) preserve(bucket, row);
  forget(key_of(slabs_->at(row)));
  index_->erase(bucket, hash, row);
  discard(bucket, row);
}

void Table::discard(uint32_t bucket, RowNumber row) {
  if (snapshot_ != nullptr) {
    preserve(bucket, row);
    // Not live any more, but its number must wait.
    set_stamp(slabs_->at(row), 0);
    snapshot_->erased.push_back(row);
  } else {
    slabs_->give(row);
  }
  --live_rows_;
  ++generation_;
}

StatusOr<uint64_t> Table::erase(std::span<const Key> keys) {
  STARLING_RETURN_IF_ERROR(check_keys(keys));
  begin_operation();
  uint64_t erased = 0;
  for (const Key key : keys) {
    const uint64_t hash = mixed_hash(key);
    const uint32_t bucket = bucket_of(key, hash);
    const RowNumber row = index_->find(bucket, hash, key);
    if (row == kNoRow) continue;
    remove(bucket, hash, row);
    ++erased;
  }
  counts_.erased += erased;
  return erased;
}

void Table::clear() {
  begin_operation();
  counts_.erased += live_rows_;
  for (uint32_t bucket = 0; bucket < kBuckets; ++bucket) empty_bucket(bucket);
  deletions_.clear();
  changes_floor_ = operation_;
  compact();
}

void Table::scan(RowCursor& cursor, size_t rows_max, const std::function<void(Key)>& visit) const {
  std::vector<std::pair<uint64_t, Key>> found;
  while (!cursor.done() && rows_max > 0) {
    found.clear();
    index_->for_each(cursor.bucket, [&](RowNumber row) {
      const Key key = key_of(slabs_->at(row));
      const uint64_t hash = mixed_hash(key);
      if (hash >= cursor.hash) found.emplace_back(hash, key);
    });
    const size_t taken = std::min(rows_max, found.size());
    std::partial_sort(found.begin(), found.begin() + static_cast<ptrdiff_t>(taken), found.end());
    for (size_t i = 0; i < taken; ++i) visit(found[i].second);
    rows_max -= taken;
    // The mix is a bijection: no two keys share a hash, and the largest hash is the last of its
    // bucket.
    if (taken == found.size() || found[taken - 1].first == UINT64_MAX) {
      cursor = {cursor.bucket + 1, 0};
    } else if (taken > 0) {
      cursor.hash = found[taken - 1].first + 1;
    }
  }
}

Status Table::changed_since(uint64_t n, const std::function<void(Key)>& changed,
                            const std::function<void(Key)>& deleted) const {
  if (n < changes_floor_) {
    return out_of_range("table '{}': changes are known after operation {}, not after {}",
                        options_.name, changes_floor_, n);
  }
  for (RowNumber row = 1; row < slabs_->end(); ++row) {
    const std::byte* data = slabs_->at(row);
    if (stamp_of(data) != 0 && stamp_of(data) + stamp_base_ > n) changed(key_of(data));
  }
  std::vector<Key> gone;
  for (auto entry = deletions_.rbegin(); entry != deletions_.rend() && entry->operation > n;
       ++entry) {
    if (find(entry->key) == kNoRow) gone.push_back(entry->key);
  }
  std::sort(gone.begin(), gone.end());
  gone.erase(std::unique(gone.begin(), gone.end()), gone.end());
  for (const Key key : gone) deleted(key);
  return {};
}

StatusOr<std::vector<Key>> Table::deleted_since(uint64_t n) const {
  if (n < changes_floor_) {
    return out_of_range("table '{}': changes are known after operation {}, not after {}",
                        options_.name, changes_floor_, n);
  }
  auto first = deletions_.end();
  while (first != deletions_.begin() && std::prev(first)->operation > n) --first;
  std::vector<Key> keys;
  keys.reserve(static_cast<size_t>(deletions_.end() - first));
  for (; first != deletions_.end(); ++first) keys.push_back(first->key);
  return keys;
}

}  // namespace starling
