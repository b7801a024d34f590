// A table as a std::map and plain loops: what the property test compares the real one with.
//
// Uses: base. Threads: one owner. For tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "table/half.h"
#include "table/rules_oracle.h"
#include "table/table.h"

namespace starling {

// The key whose mixed hash is `hash`: the inverse of mix64.
inline Key key_with_hash(uint64_t hash) {
  const auto unshift = [](uint64_t x, int by) {
    uint64_t y = x;
    for (int i = 0; i < 64 / by + 1; ++i) y = x ^ (y >> by);
    return y;
  };
  uint64_t x = unshift(hash, 31) * 0x319642b2d24d8ec3;
  x = unshift(x, 27) * 0x96de1b173f119089;
  return Key{unshift(x, 30) - 0x9e3779b97f4a7c15};
}

struct ModelRow {
  std::vector<float> w;
  std::vector<float> s;
  RowStatistics statistics;
  uint64_t operation = 0;
};

class TableModel {
 public:
  explicit TableModel(const TableOptions& options)
      : options_(options),
        rule_(*make_rule(options.optimizer, RuleUse::kSparse, "model")),
        initializer_(*Initializer::make(options.initializer, options.dim, "model")) {}

  void push(const std::vector<Key>& keys, const std::vector<float>& gradients, uint64_t step) {
    ++operation_;
    const size_t dim = options_.dim;
    std::vector<Key> unique;
    std::map<Key, std::vector<float>> sums;
    std::map<Key, size_t> times;
    for (size_t i = 0; i < keys.size(); ++i) {
      const float* g = gradients.data() + i * dim;
      if (times[keys[i]]++ == 0) {
        unique.push_back(keys[i]);
        sums[keys[i]] = std::vector<float>(g, g + dim);
      } else {
        for (size_t j = 0; j < dim; ++j) sums[keys[i]][j] += g[j];
      }
    }
    std::vector<Key> missing;
    for (const Key key : unique) {
      if (!std::all_of(sums[key].begin(), sums[key].end(),
                       [](float x) { return std::isfinite(x); })) {
        continue;
      }
      if (rows.contains(key)) {
        touch_and_step(key, sums[key], step);
      } else {
        missing.push_back(key);
      }
    }
    for (const Key key : missing) {
      if (!admits(key, step)) continue;
      make_room(key);
      create(key);
      touch_and_step(key, sums[key], step);
    }
  }

  std::vector<float> read(Key key) const {
    const auto found = rows.find(key);
    if (found != rows.end()) return found->second.w;
    if (options_.admission.kind != "always" && !options_.admission.reads_initializer) {
      return std::vector<float>(options_.dim);
    }
    return first(key);
  }

  void set(Key key, const ModelRow& row) {
    if (!rows.contains(key)) make_room(key);
    ModelRow copy = row;
    for (float& w : copy.w) w = stored(w);
    copy.operation = operation_;
    rows[key] = copy;
  }

  void remove(Key key) {
    rows.erase(key);
    deleted[key] = operation_;
  }

  void shrink(uint64_t step) {
    ++operation_;
    std::vector<Key> gone;
    for (const auto& [key, row] : rows) {
      const uint64_t idle = options_.eviction.idle_steps_max;
      if (idle != 0 && step > row.statistics.last_step && step - row.statistics.last_step > idle) {
        gone.push_back(key);
      }
    }
    for (const Key key : gone) remove(key);
  }

  void next_operation() { ++operation_; }
  uint64_t operation() const { return operation_; }
  static uint32_t bucket(Key key) { return bucket_bits(mixed_hash(key)); }

  std::map<Key, ModelRow> rows;
  std::map<Key, uint64_t> deleted;  // -> newest operation that deleted it

 private:
  std::vector<float> first(Key key) const {
    std::vector<float> w(options_.dim);
    initializer_.fill(options_.seed, name_hash(options_.name), key, w);
    return w;
  }

  float stored(float x) const {
    if (options_.storage == "float32") return x;
    return from_half(to_half(x, DType::kBFloat16), DType::kBFloat16);
  }

  void create(Key key) {
    ModelRow row;
    row.w = first(key);
    for (float& w : row.w) w = stored(w);
    row.s.resize(rule_.ops->state_floats(options_.dim));
    start_state(rule_, options_.dim, row.s.data());
    rows[key] = row;
  }

  bool admits(Key key, uint64_t) {
    if (options_.admission.kind == "always") return true;
    if (++counts_[key] < options_.admission.count) return false;
    counts_.erase(key);
    return true;
  }

  void make_room(Key key) {
    if (!options_.eviction.by_capacity()) return;
    std::vector<std::pair<uint64_t, Key>> ranks;
    for (const auto& [other, row] : rows) {
      if (bucket(other) != bucket(key)) continue;
      ranks.emplace_back(
          options_.eviction.by_lru() ? row.statistics.last_step : row.statistics.touches, other);
    }
    if (ranks.size() >= options_.eviction.bucket_rows_max()) {
      remove(std::min_element(ranks.begin(), ranks.end())->second);
    }
  }

  void touch_and_step(Key key, const std::vector<float>& g, uint64_t step) {
    ModelRow& row = rows[key];
    row.operation = operation_;
    if (options_.eviction.idle_steps_max != 0 || options_.eviction.by_lru()) {
      row.statistics.last_step = std::max(row.statistics.last_step, step);
    }
    if (options_.eviction.by_lfu()) ++row.statistics.touches;
    OracleRow stepped{row.w, row.s};
    oracle_step(options_.optimizer.rule, rule_, static_cast<float>(rule_.rate()), g, 1, stepped);
    row.s = stepped.state;
    row.w = stepped.w;
    if (options_.storage == "float32") return;
    Rng rng(mix64(options_.seed) ^ step, ~name_hash(options_.name), value(key));
    for (float& w : row.w)
      w = from_half(to_half(w, DType::kBFloat16, rng.next_u32()), DType::kBFloat16);
  }

  const TableOptions options_;
  const RuleSettings rule_;
  const Initializer initializer_;
  std::map<Key, uint32_t> counts_;
  uint64_t operation_ = 0;
};

}  // namespace starling
