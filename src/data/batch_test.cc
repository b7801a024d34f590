#include "data/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/rng.h"
#include "data/data_testing.h"

namespace starling {
namespace {

using data_testing::refs_of;
using testing::ElementsAre;

struct World {
  std::shared_ptr<const SampleSchema> schema;
  std::vector<BatchTable> tables;
  std::vector<uint32_t> owner;
  uint32_t shards = 1;

  BucketOwners owners() const { return {owner, shards}; }
};

World world_of(std::vector<KeyField> fields, std::vector<BatchTable> tables, uint32_t shards) {
  SampleSchema schema;
  schema.keys = std::move(fields);
  schema.dense = {"d0", "d1"};
  schema.labels = {"y"};
  schema.has_weight = true;
  schema.has_id = true;
  World world{std::make_shared<const SampleSchema>(schema), std::move(tables), {}, shards};
  for (uint32_t bucket = 0; bucket < kBuckets; ++bucket) world.owner.push_back(bucket % shards);
  return world;
}

// keys[sample][field] -> keys
using Samples = std::vector<std::vector<std::vector<uint64_t>>>;

SampleBlock block_of(const World& world, const Samples& samples) {
  SampleBlock block(world.schema);
  for (size_t i = 0; i < samples.size(); ++i) {
    float* numbers = block.begin();
    for (uint32_t n = 0; n < 4; ++n) numbers[n] = static_cast<float>(i * 10 + n);
    for (uint32_t field = 0; field < samples[i].size(); ++field) {
      for (const uint64_t key : samples[i][field]) block.add_key(field, static_cast<Key>(key));
    }
    block.end(std::to_string(i), 0);
  }
  return block;
}

std::vector<uint32_t> list(const Tensor& tensor) {
  const auto values = tensor.values<uint32_t>();
  return {values.begin(), values.end()};
}
std::vector<uint64_t> keys(const Tensor& tensor) {
  const auto values = tensor.values<uint64_t>();
  return {values.begin(), values.end()};
}

Batch assembled(const World& world, const SampleBlock& block, BatchOptions options = {}) {
  auto assembler = BatchAssembler::make(world.schema, world.tables, options);
  EXPECT_TRUE(assembler.ok());
  auto batch = assembler->assemble(refs_of(block), world.owners());
  EXPECT_TRUE(batch.ok()) << message_of(batch.status());
  return *std::move(batch);
}

TEST(BatchTest, OneKeyPerSampleTravelsAsUniqueRowsWithoutOffsets) {
  const World world = world_of({{.name = "u", .table = "t"}}, {{.name = "t", .dim = 4}}, 1);
  const SampleBlock block = block_of(world, {{{5}}, {{7}}, {{5}}});
  const Batch batch = assembled(world, block);
  const ShardPart& part = batch.shards.at(0).parts.at(0);
  EXPECT_THAT(keys(part.keys), ElementsAre(5, 7));
  EXPECT_EQ(part.row_keys, 2u);
  EXPECT_FALSE(part.fields.at(0).offsets.has_value());
  EXPECT_THAT(list(part.fields[0].samples), ElementsAre(0, 1, 2));
  EXPECT_THAT(list(part.fields[0].positions), ElementsAre(0, 1, 0));
  EXPECT_FALSE(batch.fields.at(0).offsets.has_value());
  EXPECT_THAT(list(*batch.fields[0].positions), ElementsAre(0, 1, 0));
  EXPECT_THAT(batch.tables.at(0).row_keys, ElementsAre(2));
}

TEST(BatchTest, NumbersAndIdsGoToTheTrainer) {
  const World world = world_of({{.name = "u", .table = "t"}}, {{.name = "t"}}, 1);
  const SampleBlock block = block_of(world, {{{}}, {{}}});
  const std::vector<SampleRef> refs = {{&block, 1}, {&block, 0}};
  auto assembler = BatchAssembler::make(world.schema, world.tables);
  const Batch batch = assembler->assemble(refs, world.owners()).value();
  EXPECT_THAT(batch.dense->values<float>(), ElementsAre(10, 11, 0, 1));
  EXPECT_THAT(batch.dense->shape(), ElementsAre(2, 2));
  EXPECT_THAT(batch.labels->values<float>(), ElementsAre(12, 2));
  EXPECT_THAT(batch.labels->shape(), ElementsAre(2, 1));
  EXPECT_THAT(batch.weights->values<float>(), ElementsAre(13, 3));
  EXPECT_THAT(batch.weights->shape(), ElementsAre(2));
  EXPECT_FALSE(batch.shows.has_value());
  EXPECT_THAT(batch.ids, ElementsAre("1", "0"));
  EXPECT_TRUE(batch.shards.at(0).parts.empty());
}

TEST(BatchTest, AFieldOfManyKeysTravelsPooled) {
  const World world = world_of({{.name = "g", .table = "t"}}, {{.name = "t", .dim = 8}}, 1);
  const SampleBlock block = block_of(world, {{{1, 2, 3}}, {{}}, {{4, 5}}});
  const Batch batch = assembled(world, block);
  const ShardPart& part = batch.shards.at(0).parts.at(0);
  EXPECT_TRUE(part.fields.at(0).pooled);
  EXPECT_EQ(part.row_keys, 0u);
  EXPECT_THAT(list(part.fields[0].samples), ElementsAre(0, 2));
  EXPECT_THAT(list(*part.fields[0].offsets), ElementsAre(0, 3, 5));
  EXPECT_TRUE(batch.fields.at(0).pooled);
  EXPECT_FALSE(batch.fields[0].positions.has_value());
  EXPECT_THAT(list(*batch.fields[0].offsets), ElementsAre(0, 3, 3, 5));
  EXPECT_THAT(list(batch.fields[0].samples.at(0)), ElementsAre(0, 2));
}

TEST(BatchTest, AtStalenessZeroAndForSequencesEverythingTravelsAsRows) {
  const Samples samples = {{{1, 2, 3}}, {{4, 5}}};
  World world = world_of({{.name = "g", .table = "t"}}, {{.name = "t", .dim = 8}}, 1);
  EXPECT_FALSE(assembled(world, block_of(world, samples), {.rows_only = true}).fields[0].pooled);
  world = world_of({{.name = "g", .table = "t", .pooling = FieldPooling::kNone}},
                   {{.name = "t", .dim = 8}}, 1);
  EXPECT_FALSE(assembled(world, block_of(world, samples)).fields[0].pooled);
}

TEST(BatchTest, KeysThatTravelAsRowsComeFirst) {
  const World world = world_of({{.name = "many", .table = "t"}, {.name = "one", .table = "t"}},
                               {{.name = "t", .dim = 8}}, 1);
  const SampleBlock block = block_of(world, {{{1, 2, 3}, {3}}, {{4, 5, 1}, {9}}});
  const Batch batch = assembled(world, block);
  const ShardPart& part = batch.shards.at(0).parts.at(0);
  EXPECT_THAT(keys(part.keys), ElementsAre(3, 9, 1, 2, 4, 5));
  EXPECT_EQ(part.row_keys, 2u);
  EXPECT_THAT(list(part.fields.at(0).positions), ElementsAre(2, 3, 0, 4, 5, 2));
  EXPECT_THAT(list(part.fields.at(1).positions), ElementsAre(0, 1));
}

TEST(BatchTest, AKeyOutsideOfItsTablesRangeIsRefused) {
  const World world = world_of({{.name = "u", .table = "t"}},
                               {{.name = "t", .placement = {.low = 10, .high = 20}}}, 2);
  auto assembler = BatchAssembler::make(world.schema, world.tables);
  const SampleBlock block = block_of(world, {{{20}}});
  const auto batch = assembler->assemble(refs_of(block), world.owners());
  EXPECT_EQ(batch.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(message_of(batch.status())), testing::HasSubstr("key 20"));
}

TEST(BatchTest, AFieldWithoutTableIsRefused) {
  const World world = world_of({{.name = "u", .table = "t"}}, {{.name = "s"}}, 1);
  EXPECT_EQ(BatchAssembler::make(world.schema, world.tables).status().code(),
            StatusCode::kInvalidArgument);
}

// Puts the segments of a field together again from what the shards and the trainer got.
class Reader {
 public:
  Reader(const World& world, const Batch& batch) : world_(world), batch_(batch) {}

  const ShardPart* part_of(uint32_t shard, uint32_t table) const {
    for (const ShardPart& part : batch_.shards[shard].parts) {
      if (part.table == table) return &part;
    }
    return nullptr;
  }

  // Every key with its shard's own rule checked on the way.
  std::vector<std::multiset<uint64_t>> from_shards(uint32_t field, uint32_t table) const {
    std::vector<std::multiset<uint64_t>> segments(batch_.samples);
    for (uint32_t shard = 0; shard < world_.shards; ++shard) {
      const ShardPart* part = part_of(shard, table);
      if (part == nullptr) continue;
      const std::vector<uint64_t> unique = keys(part->keys);
      EXPECT_EQ(std::set<uint64_t>(unique.begin(), unique.end()).size(), unique.size());
      for (const ShardField& layout : part->fields) {
        if (layout.field != field) continue;
        const auto samples = list(layout.samples);
        const auto positions = list(layout.positions);
        for (size_t s = 0; s < samples.size(); ++s) {
          const uint32_t begin = layout.offsets ? list(*layout.offsets)[s] : s;
          const uint32_t end = layout.offsets ? list(*layout.offsets)[s + 1] : s + 1;
          EXPECT_LT(begin, end);
          for (uint32_t at = begin; at < end; ++at) {
            EXPECT_TRUE(layout.pooled || positions[at] < part->row_keys);
            segments[samples[s]].insert(unique[positions[at]]);
          }
        }
      }
    }
    return segments;
  }

  // In order, of a field that travels as rows.
  std::vector<std::vector<uint64_t>> from_trainer(uint32_t field) const {
    const BatchField& layout = batch_.fields[field];
    const BatchRows* rows = nullptr;
    for (const BatchRows& table : batch_.tables) {
      if (world_.tables[table.table].name == world_.schema->keys[field].table) rows = &table;
    }
    std::vector<uint64_t> row_keys;
    for (size_t i = 0; i < rows->shards.size(); ++i) {
      const ShardPart* part = part_of(rows->shards[i], rows->table);
      EXPECT_EQ(part->row_keys, rows->row_keys[i]);
      const auto unique = keys(part->keys);
      row_keys.insert(row_keys.end(), unique.begin(), unique.begin() + part->row_keys);
    }
    std::vector<std::vector<uint64_t>> segments(batch_.samples);
    const auto positions = list(*layout.positions);
    for (uint32_t s = 0; s < batch_.samples; ++s) {
      const uint32_t begin = layout.offsets ? list(*layout.offsets)[s] : s;
      const uint32_t end = layout.offsets ? list(*layout.offsets)[s + 1] : s + 1;
      for (uint32_t at = begin; at < end; ++at) segments[s].push_back(row_keys.at(positions[at]));
    }
    return segments;
  }

 private:
  const World& world_;
  const Batch& batch_;
};

Samples random_samples(Rng& rng, size_t samples) {
  Samples out(samples);
  for (auto& sample : out) {
    sample.resize(4);
    sample[0] = {rng.below(40)};                           // always one
    if (rng.below(4) != 0) sample[1] = {rng.below(1000)};  // missing at times
    for (uint64_t n = rng.below(9); n > 0; --n) sample[2].push_back(rng.below(60));
    for (uint64_t n = rng.below(3); n > 0; --n) sample[3].push_back(rng.below(1000));
  }
  return out;
}

TEST(BatchTest, RandomBatchesCanBeReadBackOnAnyNumberOfShards) {
  Rng rng(7, 1, 1);
  int pooled = 0;
  for (int round = 0; round < 60; ++round) {
    const uint32_t shards = 1 + static_cast<uint32_t>(rng.below(5));
    const World world = world_of({{.name = "a", .table = "t"},
                                  {.name = "b", .table = "s"},
                                  {.name = "c", .table = "t"},
                                  {.name = "d", .table = "s"}},
                                 {{.name = "s", .dim = 2}, {.name = "t", .dim = 16}}, shards);
    const Samples samples = random_samples(rng, 1 + rng.below(30));
    const SampleBlock block = block_of(world, samples);
    const Batch batch = assembled(world, block, {.rows_only = round % 3 == 0});
    const Reader reader(world, batch);
    for (uint32_t field = 0; field < 4; ++field) {
      const uint32_t table = field % 2 == 0 ? 1 : 0;
      const auto segments = reader.from_shards(field, table);
      for (size_t s = 0; s < samples.size(); ++s) {
        const auto& expected = samples[s][field];
        EXPECT_EQ(segments[s], std::multiset<uint64_t>(expected.begin(), expected.end()));
      }
      if (batch.fields[field].pooled) {
        ++pooled;
        continue;
      }
      const auto rows = reader.from_trainer(field);
      for (size_t s = 0; s < samples.size(); ++s) EXPECT_EQ(rows[s], samples[s][field]);
    }
    for (uint32_t shard = 0; shard < shards; ++shard) {
      for (const ShardPart& part : batch.shards[shard].parts) {
        for (const uint64_t key : keys(part.keys))
          EXPECT_EQ(world.owner[bucket_bits(mixed_hash(static_cast<Key>(key)))], shard);
      }
    }
  }
  EXPECT_GT(pooled, 0);
}

}  // namespace
}  // namespace starling
