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
#include "table/admission_model.h"
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

// One push as the model takes it; shows and clicks may be empty.
struct ModelPush {
  const std::vector<Key>& keys;
  const std::vector<float>& gradients;  // (keys, dim)
  const std::vector<float>& shows;
  const std::vector<float>& clicks;
  uint64_t step;
};

class TableModel {
 public:
  explicit TableModel(const TableOptions& options)
      : options_(options),
        initializer_(*Initializer::make(options.initializer, options.dim, "model")),
        admission_(options.admission, options.seed, name_hash(options.name)) {
    const bool split = options.rest_optimizer.has_value();
    parts_.push_back({options.optimizer, 0, split ? 1 : options.dim});
    if (split) parts_.push_back({*options.rest_optimizer, 1, options.dim});
  }

  void push(const ModelPush& batch) {
    ++operation_;
    std::vector<Key> unique;
    std::map<Key, Sums> sums;
    for (size_t i = 0; i < batch.keys.size(); ++i) {
      if (!sums.contains(batch.keys[i])) unique.push_back(batch.keys[i]);
      add(batch, i, sums[batch.keys[i]]);
    }
    std::vector<Key> missing;
    for (const Key key : unique) {
      const std::vector<float>& g = sums[key].gradient;
      if (!std::all_of(g.begin(), g.end(), [](float x) { return std::isfinite(x); })) continue;
      if (rows.contains(key)) {
        touch_and_step(key, sums[key], batch.step);
      } else {
        missing.push_back(key);
      }
    }
    for (const Key key : missing) {
      const double score = score_of(options_.statistics, sums[key].show, sums[key].click);
      if (!admission_.admits(key, batch.step, score)) continue;
      make_room(key);
      create(key);
      touch_and_step(key, sums[key], batch.step);
    }
  }

  std::vector<float> read(Key key) const {
    const auto found = rows.find(key);
    if (found != rows.end()) return found->second.w;
    if (options_.admission.kind != "always" && !options_.admission.reads_initializer) {
      return std::vector<float>(options_.dim);
    }
    return first(key, parts_.size() == 1);
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
    std::vector<std::pair<Key, EvictionReason>> gone;
    for (auto& [key, row] : rows) {
      row.statistics.show *= options_.eviction.decay;
      row.statistics.click *= options_.eviction.decay;
      if (const auto reason = reason_to_go(row, step); reason) gone.emplace_back(key, *reason);
    }
    for (const auto& [key, reason] : gone) evict(key, reason);
  }

  // A save of this kind was published.
  void finish_save(SaveFilter filter) {
    ++operation_;
    for (auto& [key, row] : rows) {
      RowStatistics& s = row.statistics;
      if (filter == SaveFilter::kDaily) ++s.unseen_days;
      const StatisticsOptions& limits = options_.statistics;
      const bool taken = score(row) >= limits.base_threshold &&
                         s.delta_score >= limits.delta_threshold &&
                         s.unseen_days <= limits.delta_keep_days;
      if (filter == SaveFilter::kDelta && taken) s.delta_score = 0;
    }
  }

  void next_operation() { ++operation_; }
  uint64_t operation() const { return operation_; }
  static uint32_t bucket(Key key) { return bucket_bits(mixed_hash(key)); }

  std::map<Key, ModelRow> rows;
  std::map<Key, uint64_t> deleted;  // -> newest operation that deleted it
  std::multiset<std::pair<Key, EvictionReason>> evicted;

 private:
  // What one push brings to one key.
  struct Sums {
    std::vector<float> gradient;
    float show = 0;
    float click = 0;
    bool has_shows = false;
  };
  // Weights [begin, end) with a rule of their own.
  struct Part {
    Part(const OptimizerOptions& optimizer, size_t first, size_t last)
        : name(optimizer.rule),
          rule(*make_rule(optimizer, RuleUse::kSparse, "model")),
          begin(first),
          end(last) {}
    std::string name;
    RuleSettings rule;
    size_t begin;
    size_t end;
    size_t state_floats() const { return rule.ops->state_floats(end - begin); }
  };

  void add(const ModelPush& batch, size_t i, Sums& sums) const {
    const float* g = batch.gradients.data() + i * options_.dim;
    sums.has_shows = !batch.shows.empty();
    if (sums.gradient.empty()) {
      sums.gradient.assign(g, g + options_.dim);
    } else {
      for (size_t j = 0; j < options_.dim; ++j) sums.gradient[j] += g[j];
    }
    if (!sums.has_shows) return;
    sums.show += batch.shows[i];
    sums.click += batch.clicks[i];
  }

  std::vector<float> first(Key key, bool whole) const {
    std::vector<float> w(options_.dim);
    initializer_.fill(options_.seed, name_hash(options_.name), key, w);
    if (!whole) std::fill(w.begin() + 1, w.end(), 0.0f);
    return w;
  }

  float stored(float x) const {
    if (options_.storage == "float32") return x;
    return from_half(to_half(x, DType::kBFloat16), DType::kBFloat16);
  }

  double score(const ModelRow& row) const {
    return score_of(options_.statistics, row.statistics.show, row.statistics.click);
  }

  void create(Key key) {
    ModelRow row;
    row.w = first(key, parts_.size() == 1);
    for (float& w : row.w) w = stored(w);
    for (const Part& part : parts_) {
      std::vector<float> state(part.state_floats());
      start_state(part.rule, part.end - part.begin, state.data());
      row.s.insert(row.s.end(), state.begin(), state.end());
    }
    row.statistics.second = parts_.size() == 1;
    rows[key] = row;
  }

  void evict(Key key, EvictionReason reason) {
    evicted.emplace(key, reason);
    remove(key);
  }

  std::optional<EvictionReason> reason_to_go(const ModelRow& row, uint64_t step) const {
    const EvictionOptions& rules = options_.eviction;
    if (rules.score_min > 0 && score(row) < rules.score_min) return EvictionReason::kScore;
    if (rules.unseen_days_max > 0 && row.statistics.unseen_days > rules.unseen_days_max) {
      return EvictionReason::kUnseen;
    }
    const uint64_t last = row.statistics.last_step;
    if (rules.idle_steps_max > 0 && step > last && step - last > rules.idle_steps_max) {
      return EvictionReason::kIdle;
    }
    std::vector<float> squares;
    for (const float w : row.w) squares.push_back(w * w);
    const double norm = std::sqrt(static_cast<double>(oracle_sum(squares)));
    if (rules.norm_min > 0 && norm < rules.norm_min) return EvictionReason::kNorm;
    return std::nullopt;
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
      evict(std::min_element(ranks.begin(), ranks.end())->second, EvictionReason::kCapacity);
    }
  }

  void touch(Key key, const Sums& sums, uint64_t step, ModelRow& row) {
    row.operation = operation_;
    RowStatistics& s = row.statistics;
    const bool ctr = options_.statistics.enabled;
    if (ctr || options_.eviction.idle_steps_max != 0 || options_.eviction.by_lru()) {
      s.last_step = std::max(s.last_step, step);
    }
    if (options_.eviction.by_lfu()) ++s.touches;
    if (!ctr) return;
    s.unseen_days = 0;
    if (sums.has_shows) {
      s.show += sums.show;
      s.click += sums.click;
      s.delta_score += static_cast<float>(score_of(options_.statistics, sums.show, sums.click));
    }
    if (s.second || score(row) < options_.rest_score_min) return;
    s.second = true;
    const std::vector<float> whole = first(key, true);
    for (size_t j = 1; j < options_.dim; ++j) row.w[j] = stored(whole[j]);
  }

  void touch_and_step(Key key, const Sums& sums, uint64_t step) {
    ModelRow& row = rows[key];
    touch(key, sums, step, row);
    const float scale = sums.has_shows && sums.show > 0 ? sums.show : 1;
    size_t state = 0;
    for (const Part& part : parts_) {
      if (part.begin == 0 || row.statistics.second) {
        const auto w = row.w.begin() + static_cast<ptrdiff_t>(part.begin);
        const auto s = row.s.begin() + static_cast<ptrdiff_t>(state);
        const auto n = static_cast<ptrdiff_t>(part.end - part.begin);
        const auto g = sums.gradient.begin() + static_cast<ptrdiff_t>(part.begin);
        OracleRow stepped{{w, w + n}, {s, s + static_cast<ptrdiff_t>(part.state_floats())}};
        oracle_step(part.name, part.rule, static_cast<float>(part.rule.rate()), {g, g + n}, scale,
                    stepped);
        std::copy(stepped.w.begin(), stepped.w.end(), w);
        std::copy(stepped.state.begin(), stepped.state.end(), s);
      }
      state += part.state_floats();
    }
    if (options_.storage == "float32") return;
    Rng rng(mix64(options_.seed) ^ step, ~name_hash(options_.name), value(key));
    for (float& w : row.w)
      w = from_half(to_half(w, DType::kBFloat16, rng.next_u32()), DType::kBFloat16);
  }

  const TableOptions options_;
  const Initializer initializer_;
  std::vector<Part> parts_;
  AdmissionModel admission_;
  uint64_t operation_ = 0;
};

}  // namespace starling
