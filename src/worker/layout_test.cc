#include "worker/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"

namespace starling {
namespace {

using testing::HasSubstr;

struct TestField {
  std::string name;
  uint32_t table = 0;
  v1::Pooling pooling = v1::POOLING_SUM;
  bool pooled = false;
  std::vector<std::vector<uint32_t>> keys;  // per sample, keys of the table
};

// A batch over some shards, as a hub leases it and the shards answer it. Key k lies on shard
// k mod shards; its row is a function of the key.
struct TestBatch {
  uint32_t samples = 0;
  uint32_t shards = 1;
  std::vector<uint32_t> dims;
  std::vector<TestField> fields;

  struct Part {  // one table on one shard
    std::vector<uint32_t> keys;
    uint32_t row_keys = 0;
  };
  std::map<std::pair<uint32_t, uint32_t>, Part> parts;  // by (table, shard)

  float weight(uint32_t table, uint32_t key, size_t d) const {
    return 0.01F * static_cast<float>(key + 1) + 0.37F * static_cast<float>(d) +
           static_cast<float>(table);
  }
  void place() {
    for (const bool is_pooled : {false, true}) {
      for (const TestField& field : fields) {
        if (field.pooled != is_pooled) continue;
        for (const auto& keys : field.keys) {
          for (const uint32_t key : keys) {
            Part& part = parts[{field.table, key % shards}];
            if (std::find(part.keys.begin(), part.keys.end(), key) == part.keys.end()) {
              part.keys.push_back(key);
            }
          }
        }
      }
      if (is_pooled) continue;
      for (auto& [at, part] : parts) part.row_keys = static_cast<uint32_t>(part.keys.size());
    }
  }
  // Where a row stands among all of its table that travel.
  uint32_t position(uint32_t table, uint32_t key) const {
    uint32_t base = 0;
    for (uint32_t shard = 0; shard < key % shards; ++shard) {
      const auto found = parts.find({table, shard});
      if (found != parts.end()) base += found->second.row_keys;
    }
    const std::vector<uint32_t>& keys = parts.at({table, key % shards}).keys;
    return base + static_cast<uint32_t>(std::find(keys.begin(), keys.end(), key) - keys.begin());
  }
  std::vector<uint32_t> segments(const TestField& field, uint32_t shard) const {
    std::vector<uint32_t> out;
    for (uint32_t sample = 0; sample < samples; ++sample) {
      for (const uint32_t key : field.keys[sample]) {
        if (key % shards == shard && (out.empty() || out.back() != sample)) out.push_back(sample);
      }
    }
    return out;
  }
  std::vector<uint32_t> shards_of(uint32_t table) const {
    std::vector<uint32_t> out;
    for (const auto& [at, part] : parts) {
      if (at.first == table) out.push_back(at.second);
    }
    return out;
  }
  static uint32_t add(std::vector<Tensor>& tensors, const std::vector<uint32_t>& values) {
    tensors.push_back(Tensor::of<uint32_t>({static_cast<int64_t>(values.size())}, values));
    return static_cast<uint32_t>(tensors.size() - 1);
  }
  v1::BatchLease lease(std::vector<Tensor>& tensors) const {
    v1::BatchLease out;
    out.set_samples(samples);
    for (uint32_t table = 0; table < dims.size(); ++table) {
      v1::TrainerTable* told = out.add_tables();
      told->set_table("t" + std::to_string(table));
      told->set_dim(dims[table]);
      for (const uint32_t shard : shards_of(table)) {
        told->add_shards(shard);
        told->add_row_keys(parts.at({table, shard}).row_keys);
      }
    }
    for (const TestField& field : fields) {
      v1::TrainerField* told = out.add_fields();
      told->set_field(field.name);
      told->set_table("t" + std::to_string(field.table));
      told->set_pooling(field.pooling);
      std::vector<uint32_t> offsets{0}, positions;
      for (const auto& keys : field.keys) {
        for (const uint32_t key : keys) positions.push_back(position(field.table, key));
        offsets.push_back(offsets.back() + static_cast<uint32_t>(keys.size()));
      }
      told->set_offsets_tensor(add(tensors, offsets));
      if (field.pooled) {
        told->set_travel(v1::TRAVEL_POOLED);
        for (const uint32_t shard : shards_of(field.table)) {
          told->add_samples_tensors(add(tensors, segments(field, shard)));
        }
      } else {
        told->set_positions_tensor(add(tensors, positions));
      }
    }
    return out;
  }
  std::vector<Message> replies() const {
    std::vector<Message> out(shards);
    for (const auto& [at, part] : parts) {
      const auto [table, shard] = at;
      Message& reply = out[shard];
      v1::LookupPart* told = reply.meta.mutable_embedding_lookup_reply()->add_parts();
      told->set_table("t" + std::to_string(table));
      Tensor rows = Tensor::allocate(DType::kFloat32, {part.row_keys, dims[table]});
      for (size_t i = 0; i < rows.mutable_values<float>().size(); ++i) {
        rows.mutable_values<float>()[i] =
            weight(table, part.keys[i / dims[table]], i % dims[table]);
      }
      told->set_rows_tensor(static_cast<uint32_t>(reply.tensors.size()));
      reply.tensors.push_back(rows);
      for (const TestField& field : fields) {
        if (field.table != table || !field.pooled) continue;
        add_sums(field, shard, reply, *told);
      }
    }
    return out;
  }
  void add_sums(const TestField& field, uint32_t shard, Message& reply,
                v1::LookupPart& told) const {
    const std::vector<uint32_t> list = segments(field, shard);
    const uint32_t dim = dims[field.table];
    std::vector<float> sums;
    for (const uint32_t sample : list) {
      for (size_t d = 0; d < dim; ++d) {
        float sum = 0;
        for (const uint32_t key : field.keys[sample]) {
          if (key % shards == shard) sum += weight(field.table, key, d);
        }
        sums.push_back(sum);
      }
    }
    v1::LookupField* out = told.add_fields();
    out->set_field(field.name);
    out->set_sums_tensor(static_cast<uint32_t>(reply.tensors.size()));
    reply.tensors.push_back(
        Tensor::of<float>({static_cast<int64_t>(list.size()), dim}, std::span<const float>(sums)));
  }
};

TestBatch random_batch(uint64_t seed, uint32_t shards, bool may_pool) {
  Rng rng(seed, 1, 0);
  TestBatch batch{.samples = 7, .shards = shards, .dims = {3, 2}};
  const std::vector<v1::Pooling> poolings{v1::POOLING_SUM, v1::POOLING_MEAN, v1::POOLING_NONE,
                                          v1::POOLING_SUM};
  for (uint32_t f = 0; f < 4; ++f) {
    TestField field{.name = "f" + std::to_string(f),
                    .table = f == 3 ? 1U : 0U,
                    .pooling = poolings[f],
                    .pooled = may_pool && f % 3 != 2 && f != 0};
    for (uint32_t sample = 0; sample < batch.samples; ++sample) {
      std::vector<uint32_t>& keys = field.keys.emplace_back();
      for (uint64_t n = rng.next_u64() % 4; n > 0; --n) {
        keys.push_back(static_cast<uint32_t>(rng.next_u64() % 9));
      }
    }
    batch.fields.push_back(std::move(field));
  }
  batch.place();
  return batch;
}

float gradient(size_t field, uint32_t sample, size_t k, size_t d) {
  return 0.125F * static_cast<float>(field + 1) + 0.3F * static_cast<float>(sample) -
         0.7F * static_cast<float>(d) + 0.011F * static_cast<float>(k);
}

// Row gradients as the rules say: per field in sample order, then over fields.
std::map<std::pair<uint32_t, uint32_t>, std::vector<float>> oracle_rows(const TestBatch& batch) {
  std::map<std::pair<uint32_t, uint32_t>, std::vector<float>> total;
  for (size_t f = 0; f < batch.fields.size(); ++f) {
    const TestField& field = batch.fields[f];
    if (field.pooled) continue;
    const uint32_t dim = batch.dims[field.table];
    std::map<uint32_t, std::vector<float>> of_field;
    for (uint32_t sample = 0; sample < batch.samples; ++sample) {
      const std::vector<uint32_t>& keys = field.keys[sample];
      for (size_t k = 0; k < keys.size(); ++k) {
        std::vector<float>& sum = of_field[keys[k]];
        sum.resize(dim);
        for (size_t d = 0; d < dim; ++d) {
          float g = gradient(f, sample, field.pooling == v1::POOLING_NONE ? k : 0, d);
          if (field.pooling == v1::POOLING_MEAN) g /= static_cast<float>(keys.size());
          sum[d] += g;
        }
      }
    }
    for (const auto& [key, sum] : of_field) {
      std::vector<float>& to = total[{field.table, key}];
      to.resize(dim);
      for (size_t d = 0; d < dim; ++d) to[d] += sum[d];
    }
  }
  return total;
}

void expect_gathered(const TestBatch& batch, const StepLayout& layout) {
  std::vector<float> out(size_t{batch.samples} * layout.width(), 99.0F);
  layout.gather(out);
  for (size_t f = 0; f < batch.fields.size(); ++f) {
    const TestField& field = batch.fields[f];
    if (field.pooling == v1::POOLING_NONE) continue;
    for (uint32_t sample = 0; sample < batch.samples; ++sample) {
      for (size_t d = 0; d < batch.dims[field.table]; ++d) {
        float sum = 0;
        for (const uint32_t key : field.keys[sample]) sum += batch.weight(field.table, key, d);
        const size_t n = field.keys[sample].size();
        if (field.pooling == v1::POOLING_MEAN && n > 0) sum /= static_cast<float>(n);
        const float got = out[sample * layout.width() + layout.fields()[f].column + d];
        if (field.pooled) {
          EXPECT_NEAR(got, sum, 1e-5) << field.name << " sample " << sample;
        } else {
          EXPECT_EQ(got, sum) << field.name << " sample " << sample;
        }
      }
    }
  }
}

class Layouts : public testing::TestWithParam<uint64_t> {};

// The gradient of everything that was gathered, as gradient() has it.
struct TestGradients {
  std::vector<float> pooled;
  std::vector<std::vector<float>> sequences;  // per field

  TestGradients(const TestBatch& batch, const StepLayout& layout)
      : pooled(size_t{batch.samples} * layout.width()), sequences(batch.fields.size()) {
    for (size_t f = 0; f < batch.fields.size(); ++f) {
      const bool is_sequence = batch.fields[f].pooling == v1::POOLING_NONE;
      for (uint32_t sample = 0; sample < batch.samples; ++sample) {
        const size_t n = is_sequence ? batch.fields[f].keys[sample].size() : 1;
        for (size_t k = 0; k < n; ++k) {
          for (size_t d = 0; d < batch.dims[batch.fields[f].table]; ++d) {
            const float g = gradient(f, sample, k, d);
            if (is_sequence) {
              sequences[f].push_back(g);
            } else {
              pooled[sample * layout.width() + layout.fields()[f].column + d] = g;
            }
          }
        }
      }
    }
  }
  StepLayout::Gradients spans() const {
    return {.pooled = pooled, .sequences = {sequences.begin(), sequences.end()}};
  }
};

void expect_pushed(const TestBatch& batch, const std::vector<Message>& pushes) {
  const auto wanted = oracle_rows(batch);
  for (const auto& [at, part] : batch.parts) {
    if (part.row_keys == 0) continue;
    const auto [table, shard] = at;
    const std::string name = "t" + std::to_string(table);
    const auto& told = pushes[shard].meta.push_grad().batch();
    const auto found = std::find_if(told.begin(), told.end(), [&](const auto& one) {
      return one.table() == name && one.has_rows_tensor();
    });
    ASSERT_NE(found, told.end());
    const auto rows = pushes[shard].tensors[found->rows_tensor()].values<float>();
    for (uint32_t r = 0; r < part.row_keys; ++r) {
      for (size_t d = 0; d < batch.dims[table]; ++d) {
        EXPECT_EQ(rows[r * batch.dims[table] + d], wanted.at({table, part.keys[r]})[d]);
      }
    }
  }
}

TEST_P(Layouts, GatherAndMergeAsASlowLoopDoes) {
  for (const uint32_t shards : {1U, 2U, 3U}) {
    for (const bool may_pool : {false, true}) {
      const TestBatch batch = random_batch(GetParam(), shards, may_pool);
      std::vector<Tensor> tensors;
      const v1::BatchLease lease = batch.lease(tensors);
      auto layout = StepLayout::make(lease, tensors, shards);
      ASSERT_TRUE(layout.ok()) << layout.status();
      ASSERT_EQ(layout->take(batch.replies()), absl::OkStatus());
      expect_gathered(batch, *layout);
      const TestGradients gradients(batch, *layout);
      expect_pushed(batch, layout->pushes(gradients.spans()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Layouts, testing::Range<uint64_t>(0, 40));

TEST(Layout, SumsOfPooledFieldsGoBackPerSegment) {
  TestBatch batch{.samples = 2, .shards = 2, .dims = {1}};
  batch.fields.push_back(
      {.name = "f", .pooling = v1::POOLING_MEAN, .pooled = true, .keys = {{0, 1}, {2}}});
  batch.place();
  std::vector<Tensor> tensors;
  const v1::BatchLease lease = batch.lease(tensors);
  auto layout = StepLayout::make(lease, tensors, 2);
  ASSERT_TRUE(layout.ok()) << layout.status();
  ASSERT_EQ(layout->take(batch.replies()), absl::OkStatus());
  const std::vector<float> grads{4, 6};
  const std::vector<Message> pushes = layout->pushes({.pooled = grads, .sequences = {{}}});
  const v1::FieldGrad& first = pushes[0].meta.push_grad().batch(0).fields(0);
  EXPECT_THAT(pushes[0].tensors[first.sums_tensor()].values<float>(), testing::ElementsAre(2, 6));
  const v1::FieldGrad& second = pushes[1].meta.push_grad().batch(0).fields(0);
  EXPECT_THAT(pushes[1].tensors[second.sums_tensor()].values<float>(), testing::ElementsAre(2));
}

TEST(Layout, RefusesWhatDoesNotFit) {
  const TestBatch batch = random_batch(3, 2, true);
  std::vector<Tensor> tensors;
  const v1::BatchLease good = batch.lease(tensors);
  const auto refused = [&](const std::function<void(v1::BatchLease&)>& change) {
    v1::BatchLease lease = good;
    change(lease);
    return std::string(StepLayout::make(lease, tensors, 2).status().message());
  };
  EXPECT_THAT(refused([](auto& l) { l.set_samples(0); }), HasSubstr("without samples"));
  EXPECT_THAT(refused([](auto& l) { l.set_samples(6); }), HasSubstr("6 samples"));
  EXPECT_THAT(refused([](auto& l) { l.mutable_fields(0)->set_table("x"); }), HasSubstr("'x'"));
  EXPECT_THAT(refused([](auto& l) { l.mutable_fields(0)->set_travel(static_cast<v1::Travel>(9)); }),
              HasSubstr("travel is 9"));
  EXPECT_THAT(
      refused([](auto& l) { l.mutable_fields(0)->set_pooling(static_cast<v1::Pooling>(9)); }),
      HasSubstr("pooling is 9"));
  EXPECT_THAT(refused([](auto& l) { l.mutable_fields(0)->set_positions_tensor(999); }),
              HasSubstr("tensor 999"));
  EXPECT_THAT(refused([](auto& l) { l.mutable_fields(0)->clear_positions_tensor(); }),
              HasSubstr("no positions"));
  EXPECT_THAT(refused([](auto& l) { l.mutable_tables(0)->set_row_keys(0, 0); }),
              HasSubstr("position"));
  EXPECT_THAT(refused([](auto& l) { l.mutable_tables(0)->set_row_keys(0, 1U << 30); }),
              HasSubstr("its fields point to"));
  EXPECT_THAT(refused([](auto& l) { l.mutable_tables(0)->set_shards(0, 7); }),
              HasSubstr("shard 7 of 2"));
  EXPECT_THAT(refused([](auto& l) { l.mutable_tables(0)->set_dim(0); }), HasSubstr("dim 0"));
}

TEST(Layout, RefusesAnswersThatWereNotFed) {
  const TestBatch batch = random_batch(5, 2, true);
  std::vector<Tensor> tensors;
  const v1::BatchLease lease = batch.lease(tensors);
  const auto refused = [&](const std::function<void(std::vector<Message>&)>& change) {
    auto layout = StepLayout::make(lease, tensors, 2);
    std::vector<Message> replies = batch.replies();
    change(replies);
    return std::string(layout->take(std::move(replies)).message());
  };
  EXPECT_EQ(refused([](auto&) {}), "");
  EXPECT_THAT(refused([](auto& r) { r.pop_back(); }), HasSubstr("1 replies of 2"));
  EXPECT_THAT(refused([](auto& r) {
                r[0].meta.mutable_embedding_lookup_reply()->mutable_parts()->RemoveLast();
              }),
              HasSubstr("missing"));
  EXPECT_THAT(refused([](auto& r) {
                r[1].meta.mutable_embedding_lookup_reply()->mutable_parts(0)->set_table("q");
              }),
              HasSubstr("'q'"));
  EXPECT_THAT(refused([](auto& r) { r[0].tensors[0] = Tensor::vector_of<float>({1}); }),
              HasSubstr("lookup of table"));
}

}  // namespace
}  // namespace starling
