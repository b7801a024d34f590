// CutBench holds the shards of a job with tables of every kind, saves and restores them by hand,
// and an oracle that no cut has touched.
//
// Uses: ps, store, GoogleTest; for tests only. Threads: one, and those of the savers.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "ps/cut_publisher.h"
#include "ps/cut_restore.h"
#include "ps/cut_saver.h"
#include "ps/shard_testing.h"
#include "store/file_systems.h"

namespace starling {

// The images of every bucket of every table, and the parts of every variable.
struct JobImage {
  std::map<std::string, std::vector<std::vector<std::byte>>> tables;
  std::map<std::string, std::map<uint64_t, DensePart>> variables;
};

inline v1::Rule rule_of(const std::string& name, std::map<std::string, double> values = {}) {
  v1::Rule rule;
  rule.set_name(name);
  for (const auto& [key, number] : values) {
    v1::NamedValue* one = rule.add_values();
    one->set_name(key);
    one->set_value(number);
  }
  return rule;
}

inline v1::TableOptions cut_table(const std::string& name, const v1::Rule& optimizer) {
  v1::TableOptions table;
  table.set_name(name);
  table.set_dim(4);
  *table.mutable_optimizer() = optimizer;
  *table.mutable_initializer() = rule_of("uniform", {{"low", -1}, {"high", 1}});
  return table;
}

// A table for every optimizer, admission, eviction and storage.
inline v1::CreateOption every_kind() {
  v1::CreateOption job;
  job.set_seed(17);
  for (const char* name :
       {"sgd", "momentum", "adagrad", "rowwise_adagrad", "adam", "adamw", "ftrl", "paddle_adagrad",
        "paddle_adagrad_v2", "paddle_std_adagrad", "paddle_adam", "paddle_shared_adam"}) {
    *job.add_tables() = cut_table(name, rule_of(name));
  }
  const auto with = [&](const char* name) {
    *job.add_tables() = cut_table(name, rule_of("adagrad"));
    return job.mutable_tables(job.tables_size() - 1);
  };
  *with("counted")->mutable_admission() = rule_of("count", {{"count", 3}});
  *with("bloomed")->mutable_admission() =
      rule_of("bloom", {{"count", 2}, {"keys", 5000}, {"error_rate", 0.01}});
  *with("drawn")->mutable_admission() = rule_of("probability", {{"probability", 0.4}});
  v1::TableOptions* scored = with("scored");
  *scored->mutable_admission() = rule_of("score", {{"threshold", 2}});
  scored->set_statistics(true);
  *with("recent")->add_eviction() = rule_of("lru", {{"rows", 4096}});
  *with("frequent")->add_eviction() = rule_of("lfu", {{"rows", 4096}});
  with("half")->set_storage(v1::DTYPE_BFLOAT16);
  with("ranged")->mutable_range()->set_hi(100000);
  v1::TableOptions* split = with("split");
  split->set_statistics(true);
  split->mutable_second()->set_threshold(1);
  *split->mutable_second()->mutable_optimizer() = rule_of("adam");
  for (const char* name : {"sum", "adam", "adam_d2sum"}) {
    v1::DenseOptions* variable = job.add_variables();
    variable->set_name(std::string("dense_") + name);
    variable->add_shape(1000);
    variable->set_split_elements(90);
    *variable->mutable_optimizer() = rule_of(name);
  }
  return job;
}

// Two tables and a variable.
inline v1::CreateOption small_job() {
  v1::CreateOption job;
  *job.add_tables() = cut_table("plain", rule_of("adam"));
  *job.add_tables() = cut_table("counted", rule_of("adagrad"));
  *job.mutable_tables(1)->mutable_admission() = rule_of("count", {{"count", 2}});
  v1::DenseOptions* variable = job.add_variables();
  variable->set_name("w");
  variable->add_shape(50);
  *variable->mutable_optimizer() = rule_of("adam");
  return job;
}

inline std::unique_ptr<FileSystems> make_files(const Clock& clock, uint64_t incarnation = 7) {
  return FileSystems::standard({.incarnation = Incarnation{incarnation}}, clock);
}

class CutBench {
 public:
  CutBench(FileSystem& fs, uint32_t shards, const v1::CreateOption& job,
           CutSaverOptions options = {})
      : fs_(fs), job_(job) {
    for (uint32_t i = 0; i < shards; ++i) {
      shards_.push_back(std::make_unique<ShardBench>(
          ShardOptions{.node = NodeId{1}, .lane = LaneId{i}, .incarnation = Incarnation{7}}));
      ShardBench& bench = *shards_.back();
      bench.set_owner([shards](uint32_t bucket) { return owner(bucket, shards); }, shards);
      Message create = bench.request();
      *create.meta.mutable_create() = job;
      EXPECT_EQ(bench.status(Method::kPsCreate, std::move(create)), absl::OkStatus());
      bench.freeze();
      savers_.push_back(std::make_unique<CutSaver>(bench.shard, fs, clock_, options));
    }
    for (const v1::TableOptions& table : job.tables()) {
      oracle_[table.name()] = *Table::make(*table_options(table, job.seed()));
    }
  }

  // In runs that are not equal, with a few buckets given away, as after a ps has joined.
  static uint32_t owner(uint32_t bucket, uint32_t shards) {
    if (bucket % 97 == 0) return bucket / 97 % shards;
    return bucket * shards / kBuckets;
  }

  // One push of random keys to every table, here and in the oracle.
  void push(uint64_t round, size_t count = 300) {
    Rng rng(round, 1, 1);
    for (const v1::TableOptions& table : job_.tables()) {
      std::vector<Key> keys;
      for (size_t i = 0; i < count; ++i) keys.push_back(Key{rng.below(3000)});
      push(table.name(), keys, round);
    }
    for (const v1::DenseOptions& variable : job_.variables()) push_dense(variable.name(), round);
  }
  void push(const std::string& name, const std::vector<Key>& keys, uint64_t step) {
    Rng rng(step, name_hash(name), 2);
    std::map<Key, std::vector<float>> gradients;
    for (const Key key : keys) {
      for (int i = 0; i < 4; ++i) gradients[key].push_back(rng.uniform_float() - 0.5F);
    }
    push_some(*oracle_.at(name), gradients, step, [](Key) { return true; });
    for (const auto& bench : shards_) {
      Table& table = *bench->shard.table(name);
      push_some(table, gradients, step, [&](Key key) {
        return bench->shard.owns_bucket(table.options().placement.bucket(key, mixed_hash(key)));
      });
    }
  }
  void erase(const std::string& name, const std::vector<Key>& keys) {
    ASSERT_TRUE(oracle_.at(name)->erase(keys).ok());
    for (const auto& bench : shards_) ASSERT_TRUE(bench->shard.table(name)->erase(keys).ok());
  }

  // What the job holds now, by the shards that own it.
  JobImage image() {
    JobImage out;
    for (const v1::TableOptions& table : job_.tables()) {
      auto& images = out.tables[table.name()];
      for (uint32_t b = 0; b < kBuckets; ++b) {
        Shard& shard = shards_[owner(b, shard_count())]->shard;
        images.push_back(shard.table(table.name())->export_bucket(static_cast<BucketId>(b)));
      }
    }
    for (const v1::DenseOptions& proto : job_.variables()) {
      for (const auto& bench : shards_) {
        DenseVariable& variable = *bench->shard.variable(proto.name());
        for (const auto& [number, table] : variable.parts()) {
          DensePart part{.variable = proto.name(),
                         .begin = table->begin(),
                         .end = table->begin() + table->size(),
                         .version = variable.version(),
                         .updates = variable.updates()};
          part.weights.assign(table->weights().begin(), table->weights().end());
          part.state.assign(table->state().begin(), table->state().end());
          out.variables[proto.name()][part.begin] = part;
        }
      }
    }
    return out;
  }
  std::map<std::string, std::vector<std::vector<std::byte>>> oracle_image() const {
    std::map<std::string, std::vector<std::vector<std::byte>>> out;
    for (const auto& [name, table] : oracle_) {
      for (uint32_t b = 0; b < kBuckets; ++b) {
        out[name].push_back(table->export_bucket(static_cast<BucketId>(b)));
      }
    }
    return out;
  }

  v1::SaveOption save_option(const std::string& directory, uint64_t cut_id,
                             uint64_t base = 0) const {
    v1::SaveOption option;
    option.set_cut_id(cut_id);
    option.set_path(directory + "/" + cut_name(cut_id));
    option.set_base_cut(base);
    if (base != 0) option.set_mode(v1::SAVE_MODE_INCREMENTAL);
    return option;
  }
  Status begin(const v1::SaveOption& option) {
    for (const auto& saver : savers_) STARLING_RETURN_IF_ERROR(saver->begin(option));
    return absl::OkStatus();
  }
  // Hands everything out and waits until all is durable.
  Status write(uint64_t cut_id) {
    for (const auto& saver : savers_) {
      while (true) {
        saver->advance(/*is_idle=*/true);
        STARLING_ASSIGN_OR_RETURN(const v1::SaveReply reply, saver->progress(cut_id));
        if (reply.done()) break;
        if (!saver->has_more()) std::this_thread::sleep_for(microseconds(100));
      }
    }
    return absl::OkStatus();
  }
  CutDraft draft(const v1::SaveOption& option) {
    CutDraft draft;
    draft.path = option.path();
    draft.manifest.set_cut_id(option.cut_id());
    draft.manifest.set_job("test");
    draft.manifest.set_generation(1);
    draft.manifest.set_mode(option.mode() == v1::SAVE_MODE_FULL ? ckpt::MODE_FULL
                                                                : ckpt::MODE_INCREMENTAL);
    draft.manifest.set_filter(option.filter());
    *draft.manifest.mutable_names() = option.names();
    draft.manifest.set_base_cut(option.base_cut());
    *draft.manifest.mutable_map() = shards_[0]->shard.routes().map();
    for (const auto& saver : savers_) {
      const StatusOr<v1::SaveReply> reply = saver->progress(option.cut_id());
      if (!reply.ok()) continue;
      for (const v1::SavedFile& file : reply->files()) draft.files.push_back(file);
    }
    return draft;
  }
  Status publish(const v1::SaveOption& option) {
    STARLING_RETURN_IF_ERROR(publish_cut(fs_, draft(option)).status());
    for (const auto& saver : savers_) STARLING_RETURN_IF_ERROR(saver->commit(option.cut_id()));
    return absl::OkStatus();
  }
  void cancel(uint64_t cut_id) {
    for (const auto& saver : savers_) saver->cancel(cut_id);
  }
  // All of it. A save that fails is dropped.
  Status save(const v1::SaveOption& option) {
    Status status = begin(option);
    if (status.ok()) status = write(option.cut_id());
    if (status.ok()) status = publish(option);
    if (!status.ok()) cancel(option.cut_id());
    return status;
  }
  StatusOr<std::vector<std::string>> restore(const v1::RestoreOption& option) {
    std::vector<RestoredShard> restored;
    for (const auto& bench : shards_) {
      RestoreTarget target;
      target.schema = bench->shard.schema();
      for (uint32_t b = 0; b < kBuckets; ++b) target.owns.push_back(bench->shard.owns_bucket(b));
      STARLING_ASSIGN_OR_RETURN(RestoredShard one, restore_shard(fs_, option, target));
      restored.push_back(std::move(one));
    }
    const std::vector<std::string> left_out = restored[0].left_out;
    for (uint32_t i = 0; i < shard_count(); ++i) {
      shards_[i]->shard.adopt(std::move(restored[i]), 2);
      savers_[i]->forget_bases();
    }
    return left_out;
  }
  Status restore(const std::string& path, uint64_t cut_id = 0) {
    v1::RestoreOption option;
    option.set_path(path);
    option.set_cut_id(cut_id);
    return restore(option).status();
  }

  uint32_t shard_count() const { return static_cast<uint32_t>(shards_.size()); }
  ShardBench& bench(size_t i) { return *shards_[i]; }
  CutSaver& saver(size_t i) { return *savers_[i]; }
  Table& table(size_t i, const std::string& name) { return *shards_[i]->shard.table(name); }
  Table& oracle(const std::string& name) { return *oracle_.at(name); }

 private:
  template <typename Mine>
  static void push_some(Table& table, const std::map<Key, std::vector<float>>& gradients,
                        uint64_t step, Mine is_mine) {
    std::vector<Key> keys;
    std::vector<float> values, shows, clicks;
    for (const auto& [key, gradient] : gradients) {
      if (!is_mine(key)) continue;
      keys.push_back(key);
      values.insert(values.end(), gradient.begin(), gradient.begin() + 4);
      shows.push_back(1);
      clicks.push_back(value(key) % 3 == 0 ? 1.0F : 0.0F);
    }
    PushBatch batch{.keys = keys, .gradients = values, .step = step};
    if (table.options().statistics.enabled) {
      batch.shows = shows;
      batch.clicks = clicks;
    }
    const auto done = table.push(batch);
    ASSERT_TRUE(done.ok()) << done.status();
  }
  void push_dense(const std::string& name, uint64_t round) {
    for (const auto& bench : shards_) {
      DenseVariable& variable = *bench->shard.variable(name);
      for (const auto& [number, table] : variable.parts()) {
        std::vector<float> gradient(table->size());
        for (size_t i = 0; i < gradient.size(); ++i) {
          Rng rng(round, name_hash(name), table->begin() + i);
          gradient[i] = rng.uniform_float() - 0.5F;
        }
        ASSERT_TRUE(table->push(gradient, round).ok());
      }
      variable.set_version(round + 5);
      variable.set_updates(round);
    }
  }

  FileSystem& fs_;
  const v1::CreateOption job_;
  const RealClock clock_{};
  std::vector<std::unique_ptr<ShardBench>> shards_;
  std::vector<std::unique_ptr<CutSaver>> savers_;
  std::map<std::string, std::unique_ptr<Table>> oracle_;
};

}  // namespace starling
