#include "table/table.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "table/half.h"
#include "table/table_model.h"

namespace starling {
namespace {

TableOptions base_options() {
  TableOptions options;
  options.name = "users";
  options.seed = 42;
  options.dim = 4;
  options.optimizer = {"sgd", {{"lr", 1}}};
  return options;
}

std::unique_ptr<Table> make(const TableOptions& options) {
  auto made = Table::make(options);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

std::vector<Key> keys_of(std::initializer_list<uint64_t> values) {
  std::vector<Key> keys;
  for (const uint64_t value : values) keys.push_back(Key{value});
  return keys;
}

OperationCounts push(Table& table, const std::vector<Key>& keys, float gradient = 1,
                     uint64_t step = 1, const std::vector<float>& shows = {},
                     const std::vector<float>& clicks = {}) {
  const std::vector<float> gradients(keys.size() * table.dim(), gradient);
  PushBatch batch;
  batch.keys = keys;
  batch.gradients = gradients;
  batch.shows = shows;
  batch.clicks = clicks;
  batch.step = step;
  const auto counts = table.push(batch);
  EXPECT_TRUE(counts.ok()) << counts.status();
  return *counts;
}

std::vector<float> gather(const Table& table, const std::vector<Key>& keys) {
  std::vector<float> out(keys.size() * table.dim());
  EXPECT_TRUE(table.gather(keys, nullptr, out).ok());
  return out;
}

RowBatch get(const Table& table, const std::vector<Key>& keys) {
  RowBatch rows;
  EXPECT_TRUE(table.get(keys, rows).ok());
  return rows;
}

TEST(Table, AMissingKeyReadsAsItsFirstValueAndReadingCreatesNothing) {
  auto table = make(base_options());
  const auto before = gather(*table, keys_of({0, UINT64_MAX, 7, 7}));
  EXPECT_EQ(table->rows(), 0u);
  EXPECT_EQ(table->operation(), 0u);
  EXPECT_EQ(push(*table, keys_of({0, UINT64_MAX, 7}), 0).created, 3u);
  EXPECT_EQ(gather(*table, keys_of({0, UINT64_MAX, 7, 7})), before);
  EXPECT_EQ(table->rows(), 3u);
}

TEST(Table, AnEmptyBatchIsLegal) {
  auto table = make(base_options());
  EXPECT_EQ(push(*table, {}).found, 0u);
  EXPECT_TRUE(gather(*table, {}).empty());
  RowHints hints;
  EXPECT_TRUE(table->locate({}, hints).ok());
  EXPECT_TRUE(table->erase({}).ok());
}

TEST(Table, EqualKeysOfABatchTakeOneStep) {
  TableOptions options = base_options();
  options.initializer.kind = "zero";
  options.optimizer = {"adagrad", {{"lr", 1}, {"eps", 0}}};
  auto table = make(options);
  push(*table, keys_of({5, 6, 5}), 1);
  // One step with the gradient 2: the sum of squares is 4, not 2.
  EXPECT_EQ(get(*table, keys_of({5})).state, std::vector<float>(4, 4));
  EXPECT_EQ(get(*table, keys_of({6})).state, std::vector<float>(4, 1));
}

TEST(Table, ResolveCreatesTouchesAndGathers) {
  auto table = make(base_options());
  const auto keys = keys_of({1, 2, 1});
  const auto expected = gather(*table, keys);
  PushBatch batch;
  batch.keys = keys;
  RowHints hints;
  std::vector<float> out(12);
  const auto counts = table->resolve(batch, &hints, out);
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(counts->created, 2u);
  EXPECT_EQ(out, expected);
  EXPECT_EQ(hints.rows[0], hints.rows[2]);
  EXPECT_NE(hints.rows[0], kNoRow);
  EXPECT_EQ(hints.generation, table->generation());
  EXPECT_EQ(table->resolve(batch, nullptr)->found, 2u);
}

TEST(Table, ApplyStepsOnlyRowsThatExist) {
  auto table = make(base_options());
  push(*table, keys_of({1}), 0);
  const auto first = gather(*table, keys_of({1}));
  const auto keys = keys_of({1, 2});
  const std::vector<float> gradients(8, 0.5f);
  PushBatch batch;
  batch.keys = keys;
  batch.gradients = gradients;
  const auto counts = table->apply(batch);
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(counts->found, 1u);
  EXPECT_EQ(counts->dropped, 1u);
  EXPECT_EQ(table->rows(), 1u);
  EXPECT_EQ(gather(*table, keys_of({1}))[0], first[0] - 0.5f);
}

TEST(Table, PoolGathersAndSums) {
  TableOptions options = base_options();
  options.dim = 1;
  options.initializer.kind = "constant";
  options.initializer.value = 2;
  auto table = make(options);
  push(*table, keys_of({1}), -3);
  const std::vector<uint32_t> starts = {0, 2, 3};
  const std::vector<uint32_t> positions = {0, 1, 0};
  std::vector<float> out(2);
  const auto keys = keys_of({1, 9});
  ASSERT_TRUE(table->pool(keys, nullptr, {starts, positions, {}}, Pooling::kSum, out).ok());
  EXPECT_EQ(out, (std::vector<float>{7, 5}));
  EXPECT_EQ(table->pool(keys_of({1}), nullptr, {starts, positions, {}}, Pooling::kSum, out).code(),
            StatusCode::kInvalidArgument);
}

TEST(Table, SpansThatDoNotFitAreRefusedBeforeAnythingChanges) {
  auto table = make(base_options());
  const auto keys = keys_of({1, 2});
  const std::vector<float> gradients(7);
  const std::vector<float> one = {1};
  PushBatch batch;
  batch.keys = keys;
  batch.gradients = gradients;
  EXPECT_EQ(table->push(batch).status().code(), StatusCode::kInvalidArgument);
  batch.shows = one;
  EXPECT_EQ(table->resolve(batch, nullptr).status().code(), StatusCode::kInvalidArgument);
  std::vector<float> out(3);
  EXPECT_EQ(table->gather(keys, nullptr, out).code(), StatusCode::kInvalidArgument);
  RowBatch rows;
  EXPECT_EQ(table->set(keys, rows).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(table->operation(), 0u);
  EXPECT_EQ(table->rows(), 0u);
}

TEST(Table, ARowHitByANonfiniteGradientIsLeftAlone) {
  auto table = make(base_options());
  push(*table, keys_of({1, 2}), 0);
  const auto before = gather(*table, keys_of({1, 2}));
  std::vector<float> gradients(12, 1);
  gradients[1] = NAN;
  gradients[11] = INFINITY;
  const auto keys = keys_of({1, 2, 3});
  PushBatch batch;
  batch.keys = keys;
  batch.gradients = gradients;
  EXPECT_EQ(table->push(batch)->nonfinite, 2u);
  const auto after = gather(*table, keys_of({1, 2}));
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[4], before[4] - 1);
  EXPECT_EQ(table->rows(), 2u) << "the missing key was not created";
  TableOptions strict = base_options();
  strict.refuse_nonfinite = true;
  auto refusing = make(strict);
  EXPECT_EQ(refusing->push(batch).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refusing->rows(), 0u);
}

TEST(Table, AKeyThatIsNotAdmittedReadsAsTheDefaultAndItsGradientIsDropped) {
  TableOptions options = base_options();
  options.admission.kind = "count";
  options.admission.count = 2;
  auto table = make(options);
  EXPECT_EQ(push(*table, keys_of({5, 5, 5})).dropped, 1u) << "once per batch";
  EXPECT_EQ(gather(*table, keys_of({5})), std::vector<float>(4));
  options.admission.reads_initializer = true;
  const auto first = gather(*make(options), keys_of({5}));
  EXPECT_NE(first, std::vector<float>(4));
  EXPECT_EQ(push(*table, keys_of({5})).created, 1u);
  EXPECT_EQ(gather(*table, keys_of({5}))[0], first[0] - 1);
  EXPECT_EQ(table->counts().total.dropped, 1u);
}

TEST(Table, ARowsFirstValueDoesNotDependOnArrivalOrder) {
  auto one = make(base_options());
  auto two = make(base_options());
  push(*one, keys_of({1, 2, 3}), 0);
  push(*two, keys_of({3}), 0);
  push(*two, keys_of({2, 1}), 0);
  EXPECT_EQ(gather(*one, keys_of({1, 2, 3})), gather(*two, keys_of({1, 2, 3})));
}

TEST(Table, TheScheduleScalesTheRate) {
  TableOptions options = base_options();
  options.initializer.kind = "zero";
  options.schedule.warmup_steps = 4;
  auto table = make(options);
  push(*table, keys_of({1}), 1, 0);
  EXPECT_EQ(gather(*table, keys_of({1}))[0], -0.25f);
  push(*table, keys_of({1}), 1, 9);
  EXPECT_EQ(gather(*table, keys_of({1}))[0], -1.25f);
}

TEST(Table, GradientsAreClippedPerRow) {
  TableOptions options = base_options();
  options.initializer.kind = "zero";
  options.optimizer.values["clip_value"] = 0.5;
  auto table = make(options);
  push(*table, keys_of({1, 2}), 3);
  EXPECT_EQ(gather(*table, keys_of({1, 2})), std::vector<float>(8, -0.5f));
}

TEST(Table, StatisticsAddUpOverPushes) {
  TableOptions options = base_options();
  options.statistics.enabled = true;
  options.statistics.nonclick_coeff = 0.2;
  auto table = make(options);
  push(*table, keys_of({1, 2, 1}), 0, 7, {4, 1, 6}, {2, 0, 4});
  const RowStatistics row = get(*table, keys_of({1})).statistics[0];
  EXPECT_EQ(row.show, 10);
  EXPECT_EQ(row.click, 6);
  EXPECT_FLOAT_EQ(row.delta_score, 6.8f);
  EXPECT_EQ(row.last_step, 7u);
  table->finish_save(SaveFilter::kDaily);
  EXPECT_EQ(get(*table, keys_of({1})).statistics[0].unseen_days, 1u);
  table->finish_save(SaveFilter::kDelta);
  EXPECT_EQ(get(*table, keys_of({1})).statistics[0].delta_score, 0);
  push(*table, keys_of({1}), 0, 8, {1}, {0});
  EXPECT_EQ(get(*table, keys_of({1})).statistics[0].unseen_days, 0u);
}

TEST(Table, TheRestOfASplitRowIsCreatedWithThePushThatEarnsIt) {
  TableOptions options = base_options();
  options.statistics.enabled = true;
  options.rest_optimizer = OptimizerOptions{"momentum", {{"lr", 0.5}}};
  options.rest_score_min = 2;
  auto table = make(options);
  std::vector<float> first(4);
  make(base_options())->gather(keys_of({1}), nullptr, first).IgnoreError();
  EXPECT_EQ(gather(*table, keys_of({1})), (std::vector<float>{first[0], 0, 0, 0}));
  push(*table, keys_of({1}), 1, 1, {1}, {1});
  EXPECT_EQ(gather(*table, keys_of({1})), (std::vector<float>{first[0] - 1, 0, 0, 0}));
  EXPECT_FALSE(get(*table, keys_of({1})).statistics[0].second);
  push(*table, keys_of({1}), 1, 2, {1}, {1});
  const auto row = gather(*table, keys_of({1}));
  EXPECT_EQ(row[0], first[0] - 1 - 1);
  for (int i = 1; i < 4; ++i)
    EXPECT_EQ(row[i], first[i] - 0.5f) << "this push's gradient was applied";
  EXPECT_EQ(get(*table, keys_of({1})).state, std::vector<float>(3, 1));
}

TEST(Table, ShrinkDecaysThenEvictsByScoreAndCounts) {
  TableOptions options = base_options();
  options.statistics.enabled = true;
  options.statistics.nonclick_coeff = 0.2;
  options.eviction.decay = 0.5;
  options.eviction.score_min = 1;
  auto table = make(options);
  push(*table, keys_of({1, 2}), 0, 1, {10, 4}, {0, 0});  // scores 2 and 0.8, then 1 and 0.4
  EXPECT_EQ(table->shrink(1), 1u);
  EXPECT_EQ(table->rows(), 1u);
  EXPECT_EQ(get(*table, keys_of({1})).statistics[0].show, 5);
  ASSERT_EQ(table->evicted().entries().size(), 1u);
  EXPECT_EQ(table->evicted().entries()[0].key, Key{2});
  EXPECT_EQ(table->counts().evicted[static_cast<size_t>(EvictionReason::kScore)], 1u);
  push(*table, keys_of({2}), 0, 2, {10}, {0});
  EXPECT_EQ(get(*table, keys_of({2})).statistics[0].show, 10)
      << "a key that comes back starts as new";
}

class LastEvicted final : public EvictionSink {
 public:
  void evicted(const EvictedRow& row) override {
    key = row.key;
    weights.assign(row.weights.begin(), row.weights.end());
  }
  Key key{0};
  std::vector<float> weights;
};

TEST(Table, EvictionByNormHandsTheRowToTheSink) {
  TableOptions options = base_options();
  options.initializer.kind = "zero";
  options.eviction.norm_min = 1;
  auto table = make(options);
  LastEvicted sink;
  table->set_eviction_sink(&sink);
  push(*table, keys_of({1}), -0.4f);
  push(*table, keys_of({2}), -0.6f);
  EXPECT_EQ(table->shrink(1), 1u);
  EXPECT_EQ(sink.key, Key{1});
  EXPECT_EQ(sink.weights, std::vector<float>(4, 0.4f));
}

TEST(Table, CapacityEvictsTheSmallestStepThenKeyOfTheBucket) {
  TableOptions options = base_options();
  options.eviction.capacity = "lru";
  options.eviction.rows_max = 2 * kBuckets;
  auto table = make(options);
  std::vector<Key> keys;
  for (uint64_t i = 0; i < 4; ++i) keys.push_back(key_with_hash((uint64_t{7} << 52) | (i * 12345)));
  std::sort(keys.begin(), keys.end());
  push(*table, {keys[1], keys[2]}, 0, 1);
  EXPECT_EQ(push(*table, {keys[0]}, 0, 2).evicted, 1u);
  EXPECT_EQ(table->evicted().entries().back().key, keys[1]);
  push(*table, {keys[2]}, 0, 3);
  push(*table, {keys[3]}, 0, 3);
  EXPECT_EQ(table->evicted().entries().back().key, keys[0]);
  EXPECT_EQ(table->rows(), 2u);
}

TEST(Table, HalfStorageRoundsStochastically) {
  for (const char* storage : {"bfloat16", "float16"}) {
    TableOptions options = base_options();
    options.dim = 64;
    options.storage = storage;
    options.initializer.kind = "constant";
    options.initializer.value = 1;
    options.optimizer.values["lr"] = 0.001;
    auto table = make(options);
    for (uint64_t step = 0; step < 500; ++step) push(*table, keys_of({1}), 1, step);
    double sum = 0;
    for (const float w : gather(*table, keys_of({1}))) sum += w;
    EXPECT_NEAR(sum / 64, 0.5, 0.02) << "rounding to the nearest would never leave 1 in bfloat16";
    EXPECT_EQ(table->layout().weight_bytes, 128u);
  }
}

TEST(Table, ARangeTableRefusesKeysOutside) {
  TableOptions options = base_options();
  options.placement = {100, 100 + 4096};
  auto table = make(options);
  push(*table, keys_of({100, 101, 4195}));
  EXPECT_EQ(table->rows_in(BucketId{0}), 1u);
  EXPECT_EQ(table->rows_in(BucketId{4095}), 1u);
  EXPECT_EQ(table->keys_in(BucketId{1}), keys_of({101}));
  RowHints hints;
  EXPECT_EQ(table->locate(keys_of({99}), hints).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(table->erase(keys_of({4196})).status().code(), StatusCode::kInvalidArgument);
  RowCursor cursor;
  size_t seen = 0;
  while (!cursor.done()) table->scan(cursor, 1, [&](Key) { ++seen; });
  EXPECT_EQ(seen, 3u);
}

TEST(Table, ABucketImageIsFrozen) {
  TableOptions options = base_options();
  options.dim = 2;
  options.initializer.kind = "constant";
  options.initializer.value = 1;
  options.optimizer = {"rowwise_adagrad", {{"initial", 0.5}}};
  auto table = make(options);
  PushBatch batch;
  const auto keys = keys_of({0});
  batch.keys = keys;
  ASSERT_TRUE(table->resolve(batch, nullptr).ok());
  const auto image = table->export_bucket(BucketId{0xe22});
  const uint8_t expected[] = {0x53, 0x42, 0x54, 0x31, 0x22, 0x0e, 1,    0,    2, 0, 0,
                              0,    1,    0,    0,    0,    1,    0,    0,    0, 0, 0,
                              0,    0,    0,    0,    0,    0,    0,    0,    0, 0,  // header
                              0,    0,    0,    0,    0,    0,    0,    0,           // key
                              0,    0,    0x80, 0x3f, 0,    0,    0x80, 0x3f,        // weights
                              0,    0,    0,    0x3f};                               // state
  ASSERT_EQ(image.size(), sizeof expected);
  for (size_t i = 0; i < image.size(); ++i)
    EXPECT_EQ(static_cast<uint8_t>(image[i]), expected[i]) << i;
}

TEST(Table, ADamagedImageChangesNothing) {
  TableOptions options = base_options();
  options.admission.kind = "count";
  auto table = make(options);
  push(*table, keys_of({0}));
  push(*table, keys_of({0}));
  const auto image = table->export_bucket(BucketId{0xe22});
  auto fresh = make(options);
  for (size_t size = 0; size < image.size(); ++size) {
    EXPECT_EQ(fresh->import_bucket(std::span(image).first(size)).code(), StatusCode::kDataLoss);
  }
  for (const size_t at : {0, 4, 6, 7, 8, 12, 16, 23, 24, 31, 32}) {
    auto bad = image;
    bad[at] ^= std::byte{0x41};
    EXPECT_EQ(fresh->import_bucket(bad).code(), StatusCode::kDataLoss) << at;
  }
  EXPECT_EQ(fresh->operation(), 0u);
  EXPECT_EQ(fresh->rows(), 0u);
  EXPECT_TRUE(fresh->import_bucket(image).ok());
}

TEST(Table, AdmissionStateMovesWithItsBucket) {
  TableOptions options = base_options();
  options.admission.kind = "count";
  options.admission.count = 2;
  auto from = make(options);
  push(*from, keys_of({0}));
  auto to = make(options);
  ASSERT_TRUE(to->import_bucket(from->export_bucket(BucketId{0xe22})).ok());
  EXPECT_EQ(push(*to, keys_of({0})).created, 1u);
  from->drop_bucket(BucketId{0xe22});
  EXPECT_EQ(push(*from, keys_of({0})).created, 0u);
}

class Images final : public SnapshotSink {
 public:
  void bucket(BucketRows rows) override { rows.make_image(images[value(rows.bucket)]); }
  std::map<uint16_t, std::vector<std::byte>> images;
};

// Has one chunk of memory to give.
class OneChunk final : public ChunkSource {
 public:
  Pages take() override {
    Pages chunk = ++asked > 1 ? Pages() : Pages::map(RowCopies::kChunkBytes);
    if (chunk.data() != nullptr) chunk.ensure(RowCopies::kChunkBytes);
    return chunk;
  }
  int asked = 0;
};

TEST(Table, ASnapshotTakesTheMomentWhateverIsTouchedHoweverOften) {
  TableOptions wide = base_options();
  wide.dim = 64;
  auto table = make(wide);
  std::vector<Key> keys;
  for (uint64_t i = 0; i < 20'000; ++i) keys.push_back(Key{i % 3 == 0 ? i : i * 7919});
  push(*table, keys);
  std::map<uint16_t, std::vector<std::byte>> then;
  for (uint32_t b = 0; b < kBuckets; ++b) {
    then[static_cast<uint16_t>(b)] = table->export_bucket(BucketId{static_cast<uint16_t>(b)});
  }
  Images sink;
  BufferPool pool;
  OneChunk chunks;
  SnapshotOptions options;
  options.pool = &pool;
  options.chunks = &chunks;
  options.copy_bytes_max = size_t{8} << 20;
  ASSERT_TRUE(table->begin_snapshot(options, sink).ok());
  bool is_more = true;
  for (size_t round = 0; is_more; ++round) {
    push(*table,
         std::vector<Key>(keys.begin() + static_cast<ptrdiff_t>(round * 997 % 15'000), keys.end()));
    is_more = table->advance_snapshot(2000);
  }
  EXPECT_EQ(table->snapshot_copy_bytes(), 0u) << "all buckets are out";
  EXPECT_GT(chunks.asked, 1) << "what it had did not reach";
  EXPECT_NE(table->end_snapshot(), nullptr);
  EXPECT_EQ(sink.images, then);
  EXPECT_EQ(table->end_snapshot(), nullptr);
}

TEST(Table, GatherTellsHowManyKeysHaveNoRow) {
  auto table = make(base_options());
  push(*table, keys_of({1, 2, 3}));
  const auto keys = keys_of({1, 2, 3, 4, 5, 4});
  std::vector<float> out(keys.size() * table->dim());
  uint64_t missing = 77;
  ASSERT_TRUE(table->gather(keys, nullptr, out, &missing).ok());
  EXPECT_EQ(missing, 3u);
  RowHints hints;
  ASSERT_TRUE(table->locate(keys, hints).ok());
  push(*table, keys_of({5}));
  ASSERT_TRUE(table->gather(keys, &hints, out, &missing).ok());
  EXPECT_EQ(missing, 2u);
}

TEST(Table, ASnapshotHoldsTheAdmissionStateOfItsMoment) {
  TableOptions options = base_options();
  options.admission.kind = "count";
  options.admission.count = 3;
  auto table = make(options);
  push(*table, keys_of({0}));
  const auto then = table->export_bucket(BucketId{0xe22});
  Images sink;
  ASSERT_TRUE(table->begin_snapshot({}, sink).ok());
  push(*table, keys_of({0}));
  push(*table, keys_of({0}));
  while (table->advance_snapshot(1)) {
  }
  table->end_snapshot();
  EXPECT_EQ(sink.images[0xe22], then);
  EXPECT_NE(table->export_bucket(BucketId{0xe22}), then);
}

TEST(Table, SnapshotCopiesAreBounded) {
  auto table = make(base_options());
  std::vector<Key> keys;
  for (uint64_t i = 0; i < 5000; ++i) keys.push_back(Key{i});
  push(*table, keys);
  Images sink;
  SnapshotOptions options;
  options.copy_bytes_max = 10000;
  ASSERT_TRUE(table->begin_snapshot(options, sink).ok());
  const size_t before = table->memory_bytes();
  push(*table, keys);
  EXPECT_LE(table->memory_bytes(), before + 30000);
  EXPECT_GT(sink.images.size(), 1000u) << "written ahead of the cursor";
  table->end_snapshot();
}

TEST(Table, ChangedSinceSaysWhenTheRecordIsTooOld) {
  TableOptions options = base_options();
  options.deletions_max = 2;
  options.operations_max = 50;
  auto table = make(options);
  const auto ignore = [](Key) {};
  push(*table, keys_of({1, 2, 3, 4}));
  EXPECT_TRUE(table->changed_since(0, ignore, ignore).ok());
  ASSERT_TRUE(table->erase(keys_of({1, 2, 3})).ok());
  EXPECT_EQ(table->changed_since(1, ignore, ignore).code(), StatusCode::kOutOfRange);
  EXPECT_TRUE(table->changed_since(2, ignore, ignore).ok());
  for (int i = 0; i < 100; ++i) push(*table, keys_of({4}));
  EXPECT_EQ(table->changed_since(2, ignore, ignore).code(), StatusCode::kOutOfRange)
      << "stamps ran out";
  std::vector<Key> changed;
  ASSERT_TRUE(table
                  ->changed_since(
                      table->operation() - 1, [&](Key key) { changed.push_back(key); }, ignore)
                  .ok());
  EXPECT_EQ(changed, keys_of({4}));
  table->clear();
  EXPECT_EQ(table->changed_since(table->operation() - 1, ignore, ignore).code(),
            StatusCode::kOutOfRange);
  EXPECT_TRUE(table->changed_since(table->operation(), ignore, ignore).ok());
}

TEST(Table, DeletionsAndSweepsAreRemembered) {
  TableOptions options = base_options();
  options.deletions_max = 3;
  auto table = make(options);
  push(*table, keys_of({1, 2, 3}));
  EXPECT_EQ(table->last_sweep(), 0u);
  const uint64_t before = table->operation();
  ASSERT_TRUE(table->erase(keys_of({3})).ok());
  ASSERT_TRUE(table->erase(keys_of({1})).ok());
  push(*table, keys_of({1}));
  EXPECT_EQ(*table->deleted_since(before), keys_of({3, 1})) << "in order, though 1 is back";
  EXPECT_EQ(*table->deleted_since(before + 1), keys_of({1}));
  EXPECT_TRUE(table->deleted_since(table->operation())->empty());
  ASSERT_TRUE(table->erase(keys_of({1, 2})).ok());
  EXPECT_EQ(table->deleted_since(before).status().code(), StatusCode::kOutOfRange);
  table->shrink(5);
  EXPECT_EQ(table->last_sweep(), table->operation());
}

TEST(Table, StaleHintsNeverReadAWrongRow) {
  auto table = make(base_options());
  std::vector<Key> keys;
  for (uint64_t i = 0; i < 300; ++i) keys.push_back(Key{i});
  push(*table, keys);
  RowHints hints;
  ASSERT_TRUE(table->locate(keys, hints).ok());
  ASSERT_TRUE(table->erase(std::span(keys).first(200)).ok());
  std::vector<Key> others;
  for (uint64_t i = 1000; i < 1100; ++i) others.push_back(Key{i});
  push(*table, others);
  table->compact();
  std::vector<float> out(keys.size() * 4);
  ASSERT_TRUE(table->gather(keys, &hints, out).ok());
  EXPECT_EQ(out, gather(*table, keys));
  EXPECT_NE(hints.generation, table->generation());
}

TEST(Table, CountsTellWhatWasFoundByHintAndWhatByAProbe) {
  auto table = make(base_options());
  const auto keys = keys_of({1, 2, 3, 4});
  push(*table, keys_of({1, 2, 3}));
  RowHints hints;
  ASSERT_TRUE(table->locate(keys, hints).ok());
  std::vector<float> out(16);
  ASSERT_TRUE(table->gather(keys, &hints, out).ok());
  // Key 4 had no row and nothing was created since: no probe for it either.
  EXPECT_EQ(table->counts().lookups.kept, 4u);
  EXPECT_EQ(table->counts().lookups.probed, 0u);
  EXPECT_EQ(out, gather(*table, keys));
  const std::vector<float> gradients(16, 0.0f);
  PushBatch batch;
  batch.keys = keys;
  batch.gradients = gradients;
  batch.hints = &hints;
  batch.key_set = KeySet::kUnique;
  const auto pushed = table->push(batch);
  ASSERT_TRUE(pushed.ok());
  EXPECT_EQ(pushed->created, 1u);
  EXPECT_EQ(table->counts().pushes.kept, 4u);
  ASSERT_TRUE(table->erase(keys_of({2})).ok());
  ASSERT_TRUE(table->gather(keys, &hints, out).ok());
  // 2 is gone, 4 has come since; 1 and 3 are where they were.
  EXPECT_EQ(table->counts().lookups.kept, 6u);
  EXPECT_EQ(table->counts().lookups.probed, 2u);
  EXPECT_EQ(table->counts().pushes.probed, 0u);
  EXPECT_EQ(out, gather(*table, keys));
}

TEST(Table, BadOptionsAreRefusedByName) {
  const auto refused = [](const std::function<void(TableOptions&)>& change,
                          const std::string& part) {
    TableOptions options = base_options();
    change(options);
    const auto made = Table::make(options);
    ASSERT_FALSE(made.ok()) << part;
    EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(message_of(made.status()).find(part), std::string_view::npos) << made.status();
  };
  refused([](auto& o) { o.name = ""; }, "name");
  refused([](auto& o) { o.dim = 0; }, "dim is 0, it must lie in [1, 4096]");
  refused([](auto& o) { o.dim = 4097; }, "dim is 4097");
  refused([](auto& o) { o.storage = "int8"; }, "storage");
  refused([](auto& o) { o.placement = {5, 5}; }, "range");
  refused([](auto& o) { o.optimizer.values["lr"] = -1; }, "optimizer.lr is -1");
  refused([](auto& o) { o.optimizer.rule = "sgdd"; }, "sgdd");
  refused([](auto& o) { o.rest_optimizer = OptimizerOptions{}; }, "statistics.enabled");
  refused([](auto& o) { o.rest_score_min = 1; }, "rest_optimizer");
  refused([](auto& o) { o.schedule.kind = "up"; }, "up");
  refused([](auto& o) { o.initializer.kind = "ones"; }, "ones");
  refused([](auto& o) { o.admission.kind = "score"; }, "statistics.enabled");
  refused([](auto& o) { o.eviction.decay = 0; }, "decay");
  refused([](auto& o) { o.eviction.score_min = 1; }, "statistics.enabled");
  refused([](auto& o) { o.eviction.capacity = "lru"; }, "rows 0");
  refused([](auto& o) { o.eviction.rows_max = 5; }, "rows 5");
  refused([](auto& o) { o.eviction.capacity = "mru"; }, "mru");
  refused([](auto& o) { o.operations_max = 0; }, "operations_max");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
size_t resident_bytes() {
  malloc_trim(0);
  std::ifstream in("/proc/self/statm");
  size_t size = 0;
  size_t resident = 0;
  in >> size >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(Table, MemoryIsWhatTheProcessUsesAndShrinkingGivesItBack) {
  constexpr uint64_t kRows = 1'500'000;
  TableOptions options = base_options();
  options.dim = 16;
  options.optimizer = {"rowwise_adagrad", {}};
  options.eviction.idle_steps_max = 1;
  options.eviction.listed_max = 1000;
  options.deletions_max = 1000;
  std::vector<Key> keys(8192);
  const size_t before = resident_bytes();
  auto table = make(options);
  const size_t empty = table->memory_bytes();
  for (uint64_t i = 0; i < kRows;) {
    for (Key& key : keys) key = Key{i++};
    PushBatch batch;
    batch.keys = keys;
    batch.step = i < kRows - 100'000 ? 1 : 9;
    batch.key_set = KeySet::kUnique;
    ASSERT_TRUE(table->resolve(batch, nullptr).ok());
  }
  const auto check = [&](const char* when) {
    const double used = static_cast<double>(resident_bytes() - before);
    const double told = static_cast<double>(table->memory_bytes());
    EXPECT_NEAR(told / used, 1, 0.05) << when << ": " << told << " of " << used;
  };
  check("full");
  const size_t full = table->memory_bytes();
  EXPECT_GT(table->shrink(10), kRows / 2);
  table->compact();
  check("shrunk");
  EXPECT_LT(table->memory_bytes(), empty + (full - empty) / 4);
}
#endif

}  // namespace
}  // namespace starling
