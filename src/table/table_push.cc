// Operations that touch rows of a batch: resolve, push, apply.
#include <algorithm>

#include "base/check.h"
#include "table/half.h"
#include "table/table.h"
#include "table/table_probe.h"

namespace starling {

// One pass over a batch of keys. What a pass does with a row follows from which pointers are set.
struct Table::Walk {
  bool creates = true;
  const float* gradients = nullptr;  // a step with these
  RowNumber* hints = nullptr;        // tell where the row is
  float* out = nullptr;              // copy the weights

  PushBatch batch;
  float rates[2] = {};  // per part, at the batch's step
  OperationCounts counts;
};

// Rows of one block on their way through the rules.
struct Table::StepBlock {
  void add(uint32_t position, std::byte* row) {
    positions[n] = position;
    rows[n++] = row;
  }

  size_t n = 0;
  uint32_t positions[kBlock];  // in the batch
  std::byte* rows[kBlock];
  float* weights[kBlock];  // in the row, or decoded
  float* state[kBlock];
  const float* gradients[kBlock];
  float scales[kBlock];
};

Status Table::check_batch(const PushBatch& batch, bool with_gradients) const {
  STARLING_RETURN_IF_ERROR(check_keys(batch.keys));
  const size_t n = batch.keys.size();
  if (with_gradients && batch.gradients.size() != n * layout_.dim) {
    return invalid_argument("table '{}': {} gradients for {} keys of dim {}", options_.name,
                            batch.gradients.size(), n, layout_.dim);
  }
  if (!batch.shows.empty() && (batch.shows.size() != n || batch.clicks.size() != n)) {
    return invalid_argument("table '{}': {} shows and {} clicks for {} keys", options_.name,
                            batch.shows.size(), batch.clicks.size(), n);
  }
  if (batch.shows.empty() && !batch.clicks.empty()) {
    return invalid_argument("table '{}': clicks without shows", options_.name);
  }
  if (batch.hints != nullptr && batch.hints->rows.size() != n) {
    return invalid_argument("table '{}': {} hints for {} keys", options_.name,
                            batch.hints->rows.size(), n);
  }
  if (with_gradients && options_.refuse_nonfinite) {
    uint8_t ok = 0;
    if (!kernels_.finite_rows(batch.gradients.data(), 1, batch.gradients.size(), &ok)) {
      return invalid_argument("table '{}': a gradient is NaN or infinite", options_.name);
    }
  }
  return {};
}

StatusOr<OperationCounts> Table::resolve(const PushBatch& batch, RowHints* hints,
                                         std::span<float> out) {
  STARLING_RETURN_IF_ERROR(check_batch(batch, false));
  const size_t n = batch.keys.size();
  if (!out.empty() && out.size() != n * layout_.dim) {
    return invalid_argument("table '{}': resolve of {} keys into {} floats", options_.name, n,
                            out.size());
  }
  Walk walk;
  if (hints != nullptr) {
    hints->rows.resize(n);
    walk.hints = hints->rows.data();
  }
  if (!out.empty()) walk.out = out.data();
  StatusOr<OperationCounts> counts = walk_any(batch, walk);
  if (hints != nullptr) hints->generation = generation_;
  return counts;
}

StatusOr<OperationCounts> Table::push(const PushBatch& batch) {
  STARLING_RETURN_IF_ERROR(check_batch(batch, true));
  Walk walk;
  walk.gradients = batch.gradients.data();
  return walk_any(batch, walk);
}

StatusOr<OperationCounts> Table::apply(const PushBatch& batch) {
  STARLING_RETURN_IF_ERROR(check_batch(batch, true));
  Walk walk;
  walk.creates = false;
  walk.gradients = batch.gradients.data();
  return walk_any(batch, walk);
}

StatusOr<OperationCounts> Table::walk_any(const PushBatch& batch, Walk& walk) {
  walk.batch = batch;
  if (batch.key_set == KeySet::kAny) merger_.merge(batch.keys);
  if (batch.key_set == KeySet::kUnique || merger_.unique().size() == batch.keys.size()) {
    return this->walk(walk);
  }
  const size_t unique = merger_.unique().size();
  std::vector<float> gradients;
  if (walk.gradients != nullptr) gradients = merger_.sum(batch.gradients, layout_.dim);
  std::vector<float> shows;
  std::vector<float> clicks;
  if (!batch.shows.empty()) {
    shows = merger_.sum(batch.shows, 1);
    clicks = merger_.sum(batch.clicks, 1);
  }
  std::vector<RowNumber> hints(walk.hints != nullptr ? unique : 0);
  std::vector<float> out(walk.out != nullptr ? unique * layout_.dim : 0);
  Walk merged = walk;
  merged.batch.keys = merger_.unique();
  merged.batch.shows = shows;
  merged.batch.clicks = clicks;
  merged.batch.hints = nullptr;
  if (walk.gradients != nullptr) merged.gradients = gradients.data();
  if (walk.hints != nullptr) merged.hints = hints.data();
  if (walk.out != nullptr) merged.out = out.data();
  StatusOr<OperationCounts> counts = this->walk(merged);
  if (!counts.ok()) return counts;
  for (size_t i = 0; i < batch.keys.size(); ++i) {
    const size_t from = merger_.position()[i];
    if (walk.hints != nullptr) walk.hints[i] = hints[from];
    if (walk.out != nullptr) {
      std::copy_n(out.data() + from * layout_.dim, layout_.dim, walk.out + i * layout_.dim);
    }
  }
  return counts;
}

// First all keys that have a row, then the others in batch order: what the second pass evicts does
// not depend on how the batch was cut into blocks or shards.
StatusOr<OperationCounts> Table::walk(Walk& walk) {
  const size_t n = walk.batch.keys.size();
  // Before anything changes: a creation must not fail half way.
  if (walk.creates) STARLING_RETURN_IF_ERROR(slabs_->reserve(n));
  begin_operation();
  const double factor = schedule_factor(options_.schedule, walk.batch.step);
  for (size_t p = 0; p < parts_.size(); ++p) {
    walk.rates[p] = static_cast<float>(parts_[p].rule.rate() * factor);
  }
  missing_.clear();
  const size_t touched = walk.gradients != nullptr || layout_.statistics != layout_.payload_end
                             ? layout_.payload_end
                             : kWeightsOffset + layout_.weight_bytes;
  const ProbeView view = probe_view(touched);
  const size_t late = walk_found(walk, view);
  find_late(view, walk.batch.keys, walk.batch.hints, late, counts_.pushes);
  walk_late(walk, late);
  walk_missing(walk);
  counts_.total.found += walk.counts.found;
  counts_.total.created += walk.counts.created;
  counts_.total.dropped += walk.counts.dropped;
  counts_.total.nonfinite += walk.counts.nonfinite;
  counts_.total.evicted += walk.counts.evicted;
  return walk.counts;
}

size_t Table::walk_found(Walk& walk, const ProbeView& view) {
  const size_t n = walk.batch.keys.size();
  ProbePass pass = probe_pass(walk.batch.keys, walk.batch.hints);
  // Rows without statistics are touched by their stamp alone.
  const bool plain = layout_.statistics == layout_.payload_end;
  if (!plain || !layout_.is_float32()) return walk_blocks(walk, view, pass);
  // A row that a snapshot has not seen to is late, where it is preserved; every other one is
  // touched as if there were none.
  if (snapshot_ != nullptr) pass.stamp_floor = snapshot_->stamp;
  pass.stamp = stamp();
  size_t late;
  if (walk.gradients != nullptr) {
    if (parts_.size() > 1 || clips_ || !walk.batch.shows.empty()) {
      return walk_blocks(walk, view, pass);
    }
    const Part& part = parts_[0];
    late = part.rule.ops->walk(view, pass,
                               {&part.rule, walk.rates[0], part.count, layout_.state,
                                walk.gradients, options_.refuse_nonfinite, scratch_.data()});
  } else if (walk.out == nullptr) {
    ProbeRing ring;
    late = kernels_.find(view, pass, 0, n, ring, {walk.hints, nullptr});
  } else if (walk.hints == nullptr) {
    late = kernels_.gather(view, pass, layout_.dim, walk.out);
  } else {
    return walk_blocks(walk, view, pass);
  }
  walk.counts.found += n - late;
  return late;
}

size_t Table::walk_blocks(Walk& walk, const ProbeView& view, ProbePass& pass) {
  pass.stamp = 0;
  pass.stamp_floor = 0;
  const size_t dim = layout_.dim;
  return find_blocks(view, pass, [&](size_t first, size_t n, std::byte** data, RowNumber* rows) {
    StepBlock block;
    for (size_t i = 0; i < n; ++i) {
      if (data[i] == nullptr) continue;
      const size_t at = first + i;
      if (!is_finite(walk, at)) {
        ++walk.counts.nonfinite;
        continue;
      }
      touch(walk, at, data[i], rows[i]);
      block.add(static_cast<uint32_t>(at), data[i]);
      if (walk.hints != nullptr) walk.hints[at] = rows[i];
      if (walk.out != nullptr) read_weights(data[i], {walk.out + at * dim, dim});
    }
    walk.counts.found += block.n;
    if (walk.gradients != nullptr) step_block(walk, block);
  });
}

bool Table::is_finite(const Walk& walk, size_t i) const {
  if (walk.gradients == nullptr || options_.refuse_nonfinite) return true;
  uint8_t ok = 0;
  return kernels_.finite_rows(walk.gradients + i * layout_.dim, 1, layout_.dim, &ok);
}

void Table::walk_late(Walk& walk, size_t late) {
  const size_t dim = layout_.dim;
  StepBlock block;
  for (size_t l = 0; l < late; ++l) {
    const uint32_t at = late_[l];
    if (!is_finite(walk, at)) {
      ++walk.counts.nonfinite;
      continue;
    }
    if (walk.hints != nullptr) walk.hints[at] = late_rows_[l];
    if (late_rows_[l] == kNoRow) {
      missing_.push_back(at);
      continue;
    }
    std::byte* data = slabs_->at(late_rows_[l]);
    touch(walk, at, data, late_rows_[l]);
    ++walk.counts.found;
    if (walk.out != nullptr) read_weights(data, {walk.out + at * dim, dim});
    if (walk.gradients == nullptr) continue;
    block.add(at, data);
    if (block.n == kBlock) {
      step_block(walk, block);
      block.n = 0;
    }
  }
  if (block.n != 0) step_block(walk, block);
}

void Table::walk_missing(Walk& walk) {
  if (!walk.creates) {
    walk.counts.dropped += missing_.size();
    return;
  }
  if (!missing_.empty()) prepare();
  constexpr size_t kAhead = 12;
  const ProbeView view = probe_view(kWeightsOffset);
  for (size_t m = 0; m < missing_.size(); ++m) {
    if (m + kAhead < missing_.size()) {
      kernels_.ask_for_group(view, walk.batch.keys[missing_[m + kAhead]]);
    }
    const uint32_t i = missing_[m];
    const Key key = walk.batch.keys[i];
    const uint64_t hash = mixed_hash(key);
    const uint32_t bucket = bucket_of(key, hash);
    // Created a moment ago where the promise of unique keys was broken.
    RowNumber row = index_->find(bucket, hash, key);
    if (row != kNoRow) {
      ++walk.counts.found;
    } else {
      row = admit(walk, i, hash, bucket);
    }
    if (row == kNoRow) {
      ++walk.counts.dropped;
      if (walk.out != nullptr) missing_weights(key, {walk.out + i * layout_.dim, layout_.dim});
      continue;
    }
    std::byte* data = slabs_->at(row);
    touch(walk, i, data, row);
    offer_victim(bucket, data);
    if (walk.gradients != nullptr) {
      StepBlock block;
      block.add(i, data);
      step_block(walk, block);
    }
    if (walk.hints != nullptr) walk.hints[i] = row;
    if (walk.out != nullptr) read_weights(data, {walk.out + i * layout_.dim, layout_.dim});
  }
}

RowNumber Table::admit(Walk& walk, size_t i, uint64_t hash, uint32_t bucket) {
  const Key key = walk.batch.keys[i];
  double score = 0;
  if (!walk.batch.shows.empty()) {
    score = score_of(options_.statistics, walk.batch.shows[i], walk.batch.clicks[i]);
  }
  if (snapshot_ != nullptr) preserve_admission(bucket);
  if (!admission_->admit({key, bucket, walk.batch.step, score})) return kNoRow;
  if (options_.eviction.by_capacity()) walk.counts.evicted += make_room(bucket);
  ++walk.counts.created;
  return create(key, hash, bucket);
}

void Table::touch_statistics(const Walk& walk, size_t i, std::byte* data) const {
  RowStatistics statistics = layout_.read_statistics(data);
  if (!walk.batch.shows.empty()) {
    const double show = walk.batch.shows[i];
    const double click = walk.batch.clicks[i];
    statistics.show += show;
    statistics.click += click;
    statistics.delta_score += static_cast<float>(score_of(options_.statistics, show, click));
  }
  statistics.unseen_days = 0;
  statistics.last_step = std::max(statistics.last_step, walk.batch.step);
  statistics.touches += 1;
  if (!statistics.second &&
      score_of(options_.statistics, statistics.show, statistics.click) >= options_.rest_score_min) {
    statistics.second = true;
    create_rest(data);
  }
  layout_.write_statistics(data, statistics);
}

void Table::create_rest(std::byte* row) const {
  std::vector<float> weights(layout_.dim);
  std::vector<float> kept(layout_.dim);
  first_weights(key_of(row), true, weights);
  read_weights(row, kept);
  weights[0] = kept[0];
  write_weights(row, weights);
}

// One optimizer step of each row of the block.
void Table::step_block(const Walk& walk, StepBlock& block) {
  const size_t dim = layout_.dim;
  const bool scaled = !walk.batch.shows.empty();
  for (size_t r = 0; r < block.n; ++r) {
    block.gradients[r] = walk.gradients + block.positions[r] * dim;
    block.weights[r] = layout_.weights_of(block.rows[r]);
    block.state[r] = layout_.state_of(block.rows[r]);
    if (scaled) {
      const float show = walk.batch.shows[block.positions[r]];
      block.scales[r] = show > 0 ? show : 1;
    }
    if (clips_) {
      const RuleSettings& rule = parts_[0].rule;
      float* clipped = scratch_.data() + r * dim;
      kernels_.clip(block.gradients[r], dim, rule.clip_value, rule.clip_norm, clipped);
      block.gradients[r] = clipped;
    }
    if (!layout_.is_float32()) {
      block.weights[r] = scratch_.data() + (kBlock + r) * dim;
      read_weights(block.rows[r], {block.weights[r], dim});
    }
  }
  const Part& part = parts_[0];
  const float* scales = scaled ? block.scales : nullptr;
  float* decay = scratch_.data() + 2 * kBlock * dim;
  part.rule.ops->step({&part.rule, walk.rates[0], part.count, block.n, block.weights, block.state,
                       block.gradients, scales, decay});
  if (parts_.size() > 1) step_rest(walk.rates[1], scales, block);
  if (layout_.is_float32()) return;
  for (size_t r = 0; r < block.n; ++r) {
    // Draws of (seed, table, key, step), so rounding is the same on any shard.
    Rng rng(mix64(options_.seed) ^ walk.batch.step, ~stream_, value(key_of(block.rows[r])));
    encode_half({block.weights[r], dim}, layout_.storage, rng, layout_.halves_of(block.rows[r]));
  }
}

// The second part of the rows that have one.
void Table::step_rest(float rate, const float* scales, StepBlock& block) {
  const Part& part = parts_[1];
  size_t n = 0;
  for (size_t r = 0; r < block.n; ++r) {
    if (!layout_.read_statistics(block.rows[r]).second) continue;
    block.state[n] = block.state[r] + part.state;
    block.gradients[n] = block.gradients[r] + part.first;
    block.scales[n] = block.scales[r];
    rest_weights_[n++] = block.weights[r] + part.first;
  }
  float* decay = scratch_.data() + 2 * kBlock * layout_.dim;
  part.rule.ops->step({&part.rule, rate, part.count, n, rest_weights_.data(), block.state,
                       block.gradients, scales, decay});
}

}  // namespace starling
