// What goes: eviction by rule and by capacity, compaction, and the changes of a published save.
#include <algorithm>
#include <cmath>

#include "table/table.h"

namespace starling {

void Table::evict(uint32_t bucket, uint64_t hash, RowNumber row, EvictionReason reason) {
  const std::byte* data = slabs_->at(row);
  std::vector<float> weights(layout_.dim);
  read_weights(data, weights);
  const auto* state = reinterpret_cast<const float*>(data + layout_.state);
  sink_->evicted({key_of(data),
                  reason,
                  weights,
                  {state, layout_.state_floats},
                  layout_.read_statistics(data)});
  ++counts_.evicted[static_cast<size_t>(reason)];
  remove(bucket, hash, row);
}

uint64_t Table::rank_of(const std::byte* row) const {
  const RowStatistics statistics = layout_.read_statistics(row);
  return options_.eviction.by_lru() ? statistics.last_step : statistics.touches;
}

void Table::offer_victim(uint32_t bucket, const std::byte* row) {
  if (victims_.empty()) return;
  VictimQueue& queue = victims_[bucket];
  queue.offer({rank_of(row), key_of(row)});
  // Entries that are out of date pile up where rows are set again and again; starting over is
  // cheaper than them.
  if (queue.size() > 2 * size_t{index_->rows_in(bucket)} + 64) queue.clear();
}

uint64_t Table::make_room(uint32_t bucket) {
  const uint32_t rows_max = options_.eviction.bucket_rows_max();
  VictimQueue& queue = victims_[bucket];
  uint64_t evicted = 0;
  while (index_->rows_in(bucket) >= rows_max) {
    const std::optional<VictimQueue::Entry> entry = queue.pop();
    if (!entry.has_value()) {
      std::vector<VictimQueue::Entry> rows;
      rows.reserve(index_->rows_in(bucket));
      index_->for_each(bucket, [&](RowNumber row) {
        const std::byte* data = slabs_->at(row);
        rows.push_back({rank_of(data), key_of(data)});
      });
      queue.fill(std::move(rows));
      continue;
    }
    const uint64_t hash = mixed_hash(entry->key);
    const RowNumber row = index_->find(bucket, hash, entry->key);
    if (row == kNoRow) continue;
    const uint64_t rank = rank_of(slabs_->at(row));
    if (rank != entry->rank) {
      queue.offer({rank, entry->key});
      continue;
    }
    evict(bucket, hash, row, EvictionReason::kCapacity);
    ++evicted;
  }
  return evicted;
}

uint64_t Table::shrink(uint64_t step, uint32_t first, uint32_t count) {
  begin_operation();
  last_sweep_ = operation_;
  const EvictionOptions& rules = options_.eviction;
  uint64_t evicted = 0;
  std::vector<RowNumber> rows;
  std::vector<float> weights(layout_.dim);
  const uint32_t end = std::min(kBuckets, first + std::min(count, kBuckets));
  for (uint32_t bucket = first; bucket < end; ++bucket) {
    rows.clear();
    index_->for_each(bucket, [&](RowNumber row) {
      __builtin_prefetch(slabs_->at(row));
      rows.push_back(row);
    });
    for (const RowNumber row : rows) {
      std::byte* data = slabs_->at(row);
      RowStatistics statistics = layout_.read_statistics(data);
      if (rules.decay != 1) {
        if (snapshot_ != nullptr) preserve(bucket, row);
        statistics.show *= rules.decay;
        statistics.click *= rules.decay;
        layout_.write_statistics(data, statistics);
      }
      double norm = 0;
      if (rules.norm_min != 0) {
        read_weights(data, weights);
        norm = std::sqrt(static_cast<double>(kernels_.square_sum(weights.data(), weights.size())));
      }
      const auto reason = eviction_of(rules, options_.statistics, statistics, step, norm);
      if (!reason.has_value()) continue;
      evict(bucket, mixed_hash(key_of(data)), row, *reason);
      ++evicted;
    }
    index_->shrink(bucket);
  }
  return evicted;
}

void Table::compact(size_t rows_max) {
  if (snapshot_ != nullptr) return;
  std::vector<RowNumber> holes = slabs_->free_list();
  RowNumber end = slabs_->end();
  size_t moved = 0;
  size_t next_hole = 0;
  // From the highest row down: free ones fall away, live ones move into the lowest hole.
  while (next_hole < holes.size() && end > holes[next_hole]) {
    if (holes.back() == end - 1) {
      holes.pop_back();
      --end;
      continue;
    }
    if (moved == rows_max) break;
    const RowNumber from = end - 1;
    const RowNumber to = holes[next_hole++];
    const Key key = key_of(slabs_->at(from));
    const uint64_t hash = mixed_hash(key);
    std::memcpy(slabs_->at(to), slabs_->at(from), slabs_->stride());
    index_->replace(bucket_of(key, hash), hash, from, to);
    --end;
    ++moved;
  }
  holes.erase(holes.begin(), holes.begin() + static_cast<ptrdiff_t>(next_hole));
  if (end != slabs_->end()) {
    slabs_->trim(end, holes);
    ++generation_;
  }
}

void Table::finish_save(SaveFilter filter, uint32_t first, uint32_t count) {
  begin_operation();
  if (filter == SaveFilter::kAll || !options_.statistics.enabled) return;
  last_sweep_ = operation_;
  const uint32_t end = std::min(kBuckets, first + std::min(count, kBuckets));
  for (uint32_t bucket = first; bucket < end; ++bucket) {
    index_->for_each(bucket, [&](RowNumber row) {
      std::byte* data = slabs_->at(row);
      const RowStatistics before = layout_.read_statistics(data);
      RowStatistics after = before;
      save_changes(options_.statistics, filter, after);
      if (after == before) return;
      if (snapshot_ != nullptr) preserve(bucket, row);
      layout_.write_statistics(data, after);
    });
  }
}

}  // namespace starling
