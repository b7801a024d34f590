#include "data/sample.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"

namespace starling {
namespace {

using Keys = std::vector<std::pair<uint32_t, uint64_t>>;

std::shared_ptr<const SampleSchema> schema_of(uint32_t fields, uint32_t dense, bool with_id) {
  SampleSchema schema;
  for (uint32_t i = 0; i < fields; ++i) schema.keys.push_back({.name = std::to_string(i)});
  schema.dense.assign(dense, "d");
  schema.labels = {"label"};
  schema.has_id = with_id;
  schema.has_group = with_id;
  return std::make_shared<const SampleSchema>(schema);
}

Keys keys_of(const SampleBlock& block, uint32_t sample) {
  Keys keys;
  block.for_each_key(sample,
                     [&](uint32_t field, Key key) { keys.emplace_back(field, value(key)); });
  return keys;
}

void add(SampleBlock& block, const Keys& keys, float base, std::string_view id = {}) {
  float* numbers = block.begin();
  for (uint32_t i = 0; i < block.schema().numbers(); ++i) numbers[i] = base + i;
  for (const auto& [field, key] : keys) block.add_key(field, static_cast<Key>(key));
  block.end(id, id.size());
}

TEST(SampleBlockTest, SamplesComeBackAsTheyWereWritten) {
  // More than 128 fields, so that the step from one to another needs two bytes.
  SampleBlock block(schema_of(1000, 2, true));
  const std::vector<Keys> samples = {
      {{0, 7}, {0, 7}, {999, UINT64_MAX}}, {}, {{127, 0}, {255, 1}, {999, 2}, {999, 3}}};
  for (size_t i = 0; i < samples.size(); ++i)
    add(block, samples[i], static_cast<float>(10 * i), std::string(i, 'x'));
  ASSERT_EQ(block.samples(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(keys_of(block, i), samples[i]);
    EXPECT_EQ(block.dense(i)[1], 10.0f * i + 1);
    EXPECT_EQ(block.labels(i)[0], 10.0f * i + 2);
    EXPECT_EQ(block.id(i), std::string(i, 'x'));
    EXPECT_EQ(block.group(i), i);
  }
}

TEST(SampleBlockTest, ACancelledSampleLeavesNothing) {
  SampleBlock block(schema_of(300, 0, false));
  add(block, {{1, 1}}, 0);
  block.begin();
  block.add_key(200, Key{5});
  block.cancel();
  add(block, {{2, 2}, {299, 3}}, 5);
  ASSERT_EQ(block.samples(), 2u);
  EXPECT_EQ(keys_of(block, 0), (Keys{{1, 1}}));
  EXPECT_EQ(keys_of(block, 1), (Keys{{2, 2}, {299, 3}}));
  EXPECT_EQ(block.labels(1)[0], 5.0f);
}

TEST(SampleBlockTest, ACopiedSampleIsTheSame) {
  SampleBlock from(schema_of(500, 3, true));
  add(from, {{3, 1}}, 1, "a");
  add(from, {{0, 1}, {400, 2}, {400, 9}}, 2, "bcd");
  SampleBlock to(from.shared_schema());
  to.append(from, 1);
  to.append(from, 0);
  EXPECT_EQ(keys_of(to, 0), keys_of(from, 1));
  EXPECT_EQ(keys_of(to, 1), keys_of(from, 0));
  EXPECT_EQ(to.id(0), "bcd");
  EXPECT_EQ(to.group(1), 1u);
  EXPECT_EQ(to.dense(0)[2], from.dense(1)[2]);
}

// 8 bytes per key, 4 per dense value and label, 16 per sample, and a fifth more.
TEST(SampleBlockTest, ACompactBlockKeepsItsBoundOfBytes) {
  struct Shape {
    uint32_t fields, dense, keys_of_field, fields_used;
  };
  for (const Shape shape : {Shape{26, 13, 1, 26}, Shape{1, 0, 1, 1}, Shape{1, 0, 200, 1},
                            Shape{1000, 0, 1, 10}, Shape{200, 0, 3, 40}, Shape{3, 40, 2, 0}}) {
    SampleBlock block(schema_of(shape.fields, shape.dense, false));
    Rng rng(1, 2, 3);
    uint64_t keys = 0;
    for (int i = 0; i < 2000; ++i) {
      Keys sample;
      const uint32_t stride = shape.fields_used == 0 ? 1 : shape.fields / shape.fields_used;
      for (uint32_t f = 0; f < shape.fields_used; ++f) {
        for (uint32_t k = 0; k < shape.keys_of_field; ++k)
          sample.emplace_back(f * stride + rng.below(stride), rng.next_u64());
        std::sort(sample.end() - shape.keys_of_field, sample.end());
      }
      keys += sample.size();
      add(block, sample, 0);
    }
    block.compact();
    const double plain = 8.0 * keys + 2000 * (4.0 * (shape.dense + 1) + 16);
    EXPECT_LE(static_cast<double>(block.bytes()), 1.2 * plain)
        << shape.fields << " fields, " << shape.fields_used << " used";
  }
}

}  // namespace
}  // namespace starling
