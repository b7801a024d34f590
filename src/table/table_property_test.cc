#include <gtest/gtest.h>

#include <memory>

#include "base/sanitized.h"
#include "table/table.h"
#include "table/table_model.h"

namespace starling {
namespace {

constexpr int kOperations = kSanitized ? 250 : 2500;
constexpr uint32_t kBucketsUsed = 6;
constexpr uint64_t kUniverse = 9000;

struct Setup {
  const char* name;
  TableOptions options;
  uint64_t seed;
};

void PrintTo(const Setup& setup, std::ostream* out) {
  *out << setup.name << " seed " << setup.seed;
}

// Keeps images and turns them back into rows by importing them into a fresh table.
class KeptImages final : public SnapshotSink {
 public:
  void bucket(BucketRows rows) override {
    const auto [image, is_new] = images.try_emplace(value(rows.bucket));
    EXPECT_TRUE(is_new) << "a bucket came twice";
    rows.make_image(image->second);
  }
  std::map<uint16_t, std::vector<std::byte>> images;
};

class KeptEvictions final : public EvictionSink {
 public:
  void evicted(const EvictedRow& row) override { rows.emplace(row.key, row.reason); }
  std::multiset<std::pair<Key, EvictionReason>> rows;
};

class TableProperty : public testing::TestWithParam<Setup> {
 protected:
  TableProperty()
      : options_(GetParam().options),
        model_(options_),
        rng_(GetParam().seed, 1, 1),
        table_(*Table::make(options_)) {
    table_->set_eviction_sink(&evictions_);
  }

  // Few buckets, so that each grows a lot; the extreme keys belong to the universe.
  Key draw_key() {
    const uint64_t i = rng_.below(kUniverse);
    if (i == 0) return Key{0};
    if (i == 1) return Key{UINT64_MAX};
    const uint64_t hash = mix64(i * 77 + 5);
    return key_with_hash((hash & ((uint64_t{1} << 52) - 1)) | (i % kBucketsUsed << 52));
  }

  std::vector<Key> draw_keys(size_t most) {
    std::vector<Key> keys(rng_.below(most + 1));
    for (Key& key : keys) key = draw_key();
    return keys;
  }

  void push() {
    const std::vector<Key> keys = draw_keys(rng_.below(10) == 0 ? 600 : 80);
    std::vector<float> gradients(keys.size() * options_.dim);
    for (float& g : gradients) g = static_cast<float>(rng_.below(2001)) * 1e-3f - 1;
    if (!gradients.empty() && rng_.below(20) == 0) {
      gradients[rng_.below(gradients.size())] = rng_.below(2) == 0 ? NAN : -INFINITY;
    }
    step_ += rng_.below(3);
    std::vector<float> shows;
    std::vector<float> clicks;
    // A push without them is legal too.
    if (options_.statistics.enabled && rng_.below(8) != 0) {
      for (size_t i = 0; i < keys.size(); ++i) {
        shows.push_back(static_cast<float>(rng_.below(4)));
        clicks.push_back(shows.back() > 0 && rng_.below(3) == 0 ? 1.0f : 0.0f);
      }
    }
    PushBatch batch;
    batch.keys = keys;
    batch.gradients = gradients;
    batch.shows = shows;
    batch.clicks = clicks;
    batch.step = step_;
    RowHints hints;
    if (rng_.below(2) == 0) {
      ASSERT_TRUE(table_->locate(keys, hints).ok());
      // Hints may be as old as they like.
      if (rng_.below(2) == 0) old_hints_ = {keys, hints};
      batch.hints = &hints;
    }
    ASSERT_TRUE(table_->push(batch).ok());
    model_.push({keys, gradients, shows, clicks, step_});
  }

  void read() {
    std::vector<Key> keys = draw_keys(200);
    const RowHints* hints = nullptr;
    if (!old_hints_.first.empty() && rng_.below(2) == 0) {
      keys = old_hints_.first;
      hints = &old_hints_.second;
    }
    std::vector<float> out(keys.size() * options_.dim);
    ASSERT_TRUE(table_->gather(keys, hints, out).ok());
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::vector<float> expected = model_.read(keys[i]);
      for (size_t j = 0; j < options_.dim; ++j) ASSERT_EQ(out[i * options_.dim + j], expected[j]);
    }
  }

  void erase() {
    const std::vector<Key> keys = draw_keys(60);
    ASSERT_TRUE(table_->erase(keys).ok());
    model_.next_operation();
    for (const Key key : keys) {
      if (model_.rows.contains(key)) model_.remove(key);
    }
  }

  void set() {
    const std::vector<Key> keys = draw_keys(20);
    RowBatch rows;
    model_.next_operation();
    for (const Key key : keys) {
      ModelRow row;
      for (size_t j = 0; j < options_.dim; ++j) row.w.push_back(static_cast<float>(rng_.normal()));
      row.s.assign(table_->state_floats(), 0.25f);
      // Ranks only grow while a row lives.
      if (table_->layout().last_step != 0) row.statistics.last_step = step_;
      if (table_->layout().touches != 0) row.statistics.touches = 1;
      if (table_->layout().click != 0) {
        row.statistics.show = static_cast<double>(rng_.below(100)) / 8;
        row.statistics.click = row.statistics.show / 2;
        row.statistics.delta_score = static_cast<float>(rng_.below(8)) / 4;
        row.statistics.unseen_days = static_cast<uint32_t>(rng_.below(4));
      }
      if (table_->layout().second != 0) row.statistics.second = rng_.below(2) == 0;
      rows.weights.insert(rows.weights.end(), row.w.begin(), row.w.end());
      rows.state.insert(rows.state.end(), row.s.begin(), row.s.end());
      rows.statistics.push_back(row.statistics);
      model_.set(key, row);
    }
    ASSERT_TRUE(table_->set(keys, rows).ok());
  }

  void shrink() {
    const uint64_t before = model_.rows.size();
    const uint64_t gone = table_->shrink(step_);
    model_.shrink(step_);
    ASSERT_EQ(before - gone, model_.rows.size());
    ASSERT_EQ(evictions_.rows, model_.evicted);
    table_->compact(rng_.below(2) == 0 ? SIZE_MAX : 50);
  }

  void finish_save() {
    if (!options_.statistics.enabled) return;
    const SaveFilter filter = rng_.below(2) == 0 ? SaveFilter::kDaily : SaveFilter::kDelta;
    table_->finish_save(filter);
    model_.finish_save(filter);
  }

  // Out, dropped, and in again: a bucket is its image.
  void move_bucket() {
    const BucketId bucket{static_cast<uint16_t>(rng_.below(kBucketsUsed))};
    const std::vector<std::byte> image = table_->export_bucket(bucket);
    table_->drop_bucket(bucket);
    model_.next_operation();
    ASSERT_EQ(table_->rows_in(bucket), 0u);
    ASSERT_TRUE(table_->import_bucket(image).ok());
    model_.next_operation();
    for (auto& [key, row] : model_.rows) {
      if (TableModel::bucket(key) != value(bucket)) continue;
      model_.deleted[key] = model_.operation() - 1;
      row.operation = model_.operation();
    }
    ASSERT_EQ(table_->export_bucket(bucket), image);
  }

  void snapshot() {
    if (!table_->in_snapshot()) {
      sink_ = std::make_unique<KeptImages>();
      SnapshotOptions options;
      options.copy_bytes_max = rng_.below(2) == 0 ? 20000 : size_t{64} << 20;
      if (rng_.below(3) == 0 && model_.operation() > 5)
        options.filter.since = model_.operation() - 5;
      since_ = options.filter.since;
      ASSERT_TRUE(table_->begin_snapshot(options, *sink_).ok());
      ASSERT_EQ(table_->begin_snapshot(options, *sink_).code(), StatusCode::kFailedPrecondition);
      frozen_ = model_.rows;
      return;
    }
    if (table_->advance_snapshot(rng_.below(2000))) return;
    table_->end_snapshot();
    ASSERT_EQ(sink_->images.size(), kBuckets);
    auto copy = *Table::make(options_);
    for (const auto& [bucket, image] : sink_->images) ASSERT_TRUE(copy->import_bucket(image).ok());
    std::map<Key, ModelRow> expected;
    for (const auto& [key, row] : frozen_) {
      if (row.operation > since_) expected[key] = row;
    }
    ASSERT_EQ(copy->rows(), expected.size());
    check_rows(*copy, expected);
  }

  void changes() {
    const uint64_t back = rng_.below(40);
    const uint64_t n = model_.operation() - std::min(back, model_.operation());
    std::set<Key> changed;
    std::set<Key> deleted;
    ASSERT_TRUE(table_
                    ->changed_since(
                        n, [&](Key key) { ASSERT_TRUE(changed.insert(key).second); },
                        [&](Key key) { ASSERT_TRUE(deleted.insert(key).second); })
                    .ok());
    std::set<Key> expected_changed;
    std::set<Key> expected_deleted;
    for (const auto& [key, row] : model_.rows) {
      if (row.operation > n) expected_changed.insert(key);
    }
    for (const auto& [key, operation] : model_.deleted) {
      if (operation > n && !model_.rows.contains(key)) expected_deleted.insert(key);
    }
    ASSERT_EQ(changed, expected_changed);
    ASSERT_EQ(deleted, expected_deleted);
  }

  void check_rows(const Table& table, const std::map<Key, ModelRow>& expected) {
    std::vector<Key> keys;
    for (const auto& [key, row] : expected) keys.push_back(key);
    RowBatch rows;
    ASSERT_TRUE(table.get(keys, rows).ok());
    size_t i = 0;
    for (const auto& [key, row] : expected) {
      ASSERT_EQ(rows.found[i], 1) << value(key);
      for (size_t j = 0; j < options_.dim; ++j)
        ASSERT_EQ(rows.weights[i * options_.dim + j], row.w[j]);
      const size_t floats = table.state_floats();
      for (size_t j = 0; j < floats; ++j) ASSERT_EQ(rows.state[i * floats + j], row.s[j]);
      ASSERT_EQ(rows.statistics[i], row.statistics) << value(key);
      ++i;
    }
  }

  void check_all() {
    ASSERT_EQ(table_->rows(), model_.rows.size());
    ASSERT_EQ(table_->operation(), model_.operation());
    check_rows(*table_, model_.rows);
    ASSERT_EQ(evictions_.rows, model_.evicted);
    std::set<Key> seen;
    RowCursor cursor;
    while (!cursor.done()) {
      table_->scan(cursor, 700, [&](Key key) { ASSERT_TRUE(seen.insert(key).second); });
    }
    ASSERT_EQ(seen.size(), model_.rows.size());
  }

  void run() {
    for (int i = 0; i < kOperations && !HasFatalFailure(); ++i) {
      const uint64_t what = rng_.below(100);
      if (what < 55) {
        push();
      } else if (what < 75) {
        read();
      } else if (what < 80) {
        erase();
      } else if (what < 83) {
        set();
      } else if (what < 84) {
        shrink();
        finish_save();
      } else if (what < 86) {
        move_bucket();
      } else if (what < 96) {
        snapshot();
      } else {
        changes();
      }
      if (i % 100 == 99 && !HasFatalFailure()) check_all();
    }
  }

  const TableOptions options_;
  TableModel model_;
  Rng rng_;
  std::unique_ptr<Table> table_;
  KeptEvictions evictions_;
  uint64_t step_ = 1;
  std::pair<std::vector<Key>, RowHints> old_hints_;
  std::unique_ptr<KeptImages> sink_;
  std::map<Key, ModelRow> frozen_;
  uint64_t since_ = 0;
};

TEST_P(TableProperty, DoesWhatASimpleMapDoes) { run(); }

TableOptions base_options() {
  TableOptions base;
  base.name = "property";
  base.seed = 99;
  base.dim = 3;
  return base;
}

// Rules of eviction and kinds of storage, without show/click statistics.
std::vector<std::pair<const char*, TableOptions>> plain_tables() {
  TableOptions lru = base_options();
  lru.eviction.capacity = "lru";
  lru.eviction.rows_max = 4096 * 150;
  TableOptions lfu = lru;
  lfu.eviction.capacity = "lfu";
  TableOptions idle = base_options();
  idle.dim = 17;
  idle.eviction.idle_steps_max = 400;
  idle.admission.kind = "count";
  idle.admission.count = 3;
  TableOptions half = base_options();
  half.storage = "bfloat16";
  TableOptions norm = base_options();
  norm.dim = 8;
  norm.eviction.norm_min = 0.02;
  norm.initializer.kind = "uniform";
  return {{"lru", lru}, {"lfu", lfu}, {"idle_and_count", idle}, {"bfloat16", half}, {"norm", norm}};
}

// Every kind of admission.
std::vector<std::pair<const char*, TableOptions>> admitting_tables() {
  TableOptions few = base_options();
  few.admission.kind = "count";
  few.admission.candidates_max = uint64_t{200} * kBuckets;
  TableOptions bloom = base_options();
  bloom.admission.kind = "bloom";
  bloom.admission.count = 3;
  // Far too small for the keys, so that many are taken for others.
  bloom.admission.expected_keys = uint64_t{400} * kBuckets;
  bloom.admission.false_positive_rate = 0.05;
  TableOptions probability = base_options();
  probability.admission.kind = "probability";
  probability.admission.probability = 0.3;
  probability.admission.reads_initializer = true;
  probability.initializer.kind = "normal";
  TableOptions score = base_options();
  score.statistics.enabled = true;
  score.admission.kind = "score";
  score.admission.score = 1.5;
  score.optimizer.rule = "paddle_adagrad";
  return {
      {"few_candidates", few}, {"bloom", bloom}, {"probability", probability}, {"score", score}};
}

// Show/click statistics, their decay, and rows whose second part is created later.
std::vector<std::pair<const char*, TableOptions>> ctr_tables() {
  TableOptions ctr = base_options();
  ctr.statistics.enabled = true;
  ctr.eviction.decay = 0.9;
  ctr.eviction.score_min = 0.3;
  ctr.eviction.unseen_days_max = 2;
  ctr.optimizer.rule = "paddle_std_adagrad";
  TableOptions split = base_options();
  split.dim = 9;
  split.statistics.enabled = true;
  split.optimizer.rule = "paddle_adagrad";
  split.rest_optimizer = OptimizerOptions{"paddle_shared_adam", {}};
  split.rest_score_min = 1.2;
  split.initializer.kind = "uniform";
  TableOptions half = split;
  half.storage = "bfloat16";
  half.eviction = ctr.eviction;
  half.admission.kind = "bloom";
  half.admission.expected_keys = uint64_t{2000} * kBuckets;
  half.admission.reads_initializer = true;
  return {{"statistics", ctr}, {"split", split}, {"split_bfloat16_bloom", half}};
}

std::vector<Setup> setups() {
  std::vector<Setup> all;
  for (const char* rule :
       {"sgd", "momentum", "adagrad", "rowwise_adagrad", "adam", "adamw", "ftrl", "paddle_adagrad",
        "paddle_adagrad_v2", "paddle_std_adagrad", "paddle_adam", "paddle_shared_adam"}) {
    TableOptions options = base_options();
    options.optimizer.rule = rule;
    all.push_back({rule, options, 1});
  }
  for (const uint64_t seed : {11, 12, 13}) {
    for (const auto& tables : {plain_tables(), admitting_tables(), ctr_tables()}) {
      for (const auto& [name, options] : tables) all.push_back({name, options, seed});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Tables, TableProperty, testing::ValuesIn(setups()),
                         [](const testing::TestParamInfo<Setup>& info) {
                           return std::string(info.param.name) + "_" +
                                  std::to_string(info.param.seed) + "_" +
                                  std::to_string(info.index);
                         });

}  // namespace
}  // namespace starling
