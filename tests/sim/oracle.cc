#include "tests/sim/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "table/hash.h"

namespace starling::sim {
namespace {

std::set<BatchId> all_of(const Plan& plan) {
  std::set<BatchId> all;
  for (uint64_t i = 0; i < plan.batches(); ++i) all.insert(plan.id_of(i));
  return all;
}

std::unique_ptr<Table> make_table(const Plan& plan, const std::string& name) {
  const v1::CreateOption schema = plan.schema();
  for (const v1::TableOptions& options : schema.tables()) {
    if (options.name() == name) return *Table::make(*table_options(options, plan.seed));
  }
  return nullptr;
}

}  // namespace

std::map<uint32_t, std::vector<std::byte>> buckets_of(const Table& table) {
  std::map<uint32_t, std::vector<std::byte>> out;
  for (uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
    const auto id = static_cast<BucketId>(bucket);
    // Without rows a bucket may still count candidates.
    const bool is_kept = table.rows_in(id) > 0 || table.options().admission.kind != "always";
    if (is_kept) out[bucket] = table.export_bucket(id);
  }
  return out;
}

void Image::add(Shard& shard) {
  for (const auto& [name, options] : shard.schema().tables()) {
    for (auto& [bucket, bytes] : buckets_of(*shard.table(name))) {
      if (shard.owns_bucket(bucket)) tables[name][bucket] = std::move(bytes);
    }
  }
  for (const auto& [name, options] : shard.schema().variables()) {
    for (const auto& [number, part] : shard.variable(name)->parts()) {
      std::vector<float>& values = dense[part->begin()];
      values.assign(part->weights().begin(), part->weights().end());
      values.insert(values.end(), part->state().begin(), part->state().end());
    }
  }
}

void Oracle::keys_acknowledged(const std::string& shard, const Message& request) {
  const v1::Header& header = request.meta.header();
  if (!numbers_.insert({shard, header.session(), header.number()}).second) return;
  for (const v1::KeyGradPart& part : request.meta.push_grad().keys()) {
    const auto keys = request.tensors[part.keys_tensor()].values<uint64_t>();
    const auto gradients = request.tensors[part.grads_tensor()].values<float>();
    for (size_t i = 0; i < keys.size(); ++i) client_rows_[keys[i]] -= gradients[i];
  }
  for (const v1::KeyValuesPart& part : request.meta.push().keys()) {
    const auto keys = request.tensors[part.keys_tensor()].values<uint64_t>();
    if (part.erase()) {
      for (const uint64_t key : keys) client_rows_.erase(key);
      continue;
    }
    const auto values = request.tensors[part.values_tensor()].values<float>();
    for (size_t i = 0; i < keys.size(); ++i) client_rows_[keys[i]] = values[i];
  }
}

void Oracle::upkept(const std::string& shard, const Message& request,
                    const std::function<bool(uint64_t key)>& owns) {
  const v1::Header& header = request.meta.header();
  if (!numbers_.insert({shard, header.session(), header.number()}).second) return;
  std::erase_if(client_rows_, [&](const auto& row) {
    return owns(row.first) && (request.meta.has_clear() || std::abs(row.second) < kShrinkBelow);
  });
}

void Oracle::restored(std::map<uint64_t, float> client_rows) {
  client_rows_ = std::move(client_rows);
}

std::map<uint32_t, std::vector<std::byte>> Oracle::replay(const std::set<BatchId>& done) {
  const std::unique_ptr<Table> table = make_table(plan_, kRowsTable);
  const uint64_t together = plan_.is_synchronous() ? plan_.ranks : 1;
  for (uint64_t first = 0; first < plan_.batches(); first += together) {
    std::vector<std::pair<uint64_t, std::vector<float>>> step;
    for (uint64_t i = first; i < std::min(first + together, plan_.batches()); ++i) {
      const BatchId id = plan_.id_of(i);
      if (!done.contains(id)) continue;
      std::vector<float> gradients;
      for (const uint64_t number : plan_.keys_of(id)) {
        const Key key{number};
        std::vector<float> row(plan_.dim);
        (void)table->gather(std::span(&key, 1), nullptr, row);
        const std::vector<float> gradient = plan_.gradient(id, number, row);
        gradients.insert(gradients.end(), gradient.begin(), gradient.end());
      }
      step.emplace_back(i, std::move(gradients));
    }
    for (const auto& [linear, gradients] : step) {
      std::vector<Key> keys;
      for (const uint64_t key : plan_.keys_of(plan_.id_of(linear))) keys.push_back(Key{key});
      const auto pushed = table->push({.keys = keys, .gradients = gradients, .step = linear});
      if (!pushed.ok()) world_.fail("oracle: {}", message_of(pushed.status()));
    }
  }
  return buckets_of(*table);
}

void Oracle::check_rows(const Image& image, const std::set<BatchId>& done,
                        const std::string& when) {
  static const std::map<uint32_t, std::vector<std::byte>> kNone;
  const auto it = image.tables.find(kRowsTable);
  const auto& held = it == image.tables.end() ? kNone : it->second;
  const auto expected = replay(done);
  for (const auto& [bucket, bytes] : expected) {
    const auto found = held.find(bucket);
    if (found != held.end() && found->second == bytes) continue;
    return world_.fail("{}: bucket {} of {} is not what {} batches, each applied once, make of it",
                       when, bucket, kRowsTable, done.size());
  }
  for (const auto& [bucket, bytes] : held) {
    if (!expected.contains(bucket))
      return world_.fail("{}: bucket {} has rows that nobody pushed", when, bucket);
  }
  check_dense(image, done, when);
}

// Synchronous steps take the mean; they are compared with the run without faults.
void Oracle::check_dense(const Image& image, const std::set<BatchId>& done,
                         const std::string& when) {
  if (plan_.is_synchronous()) return;
  std::vector<float> sum(kVariableElements);
  for (const BatchId& id : done) {
    const std::vector<float> gradient = plan_.dense_gradient(id);
    for (uint32_t i = 0; i < kVariableElements; ++i) sum[i] -= gradient[i];
  }
  uint64_t elements = 0;
  for (const auto& [begin, values] : image.dense) {
    for (size_t i = 0; i < values.size(); ++i, ++elements) {
      if (values[i] == sum.at(begin + i)) continue;
      return world_.fail("{}: element {} of {} is {}, each batch applied once makes it {}", when,
                         begin + i, kVariable, values[i], sum[begin + i]);
    }
  }
  if (elements != kVariableElements) {
    world_.fail("{}: {} of {} elements of {} are there", when, elements, kVariableElements,
                kVariable);
  }
}

void Oracle::check_client_rows(const Image& image) {
  const std::unique_ptr<Table> table = make_table(plan_, kClientTable);
  for (const auto& [number, value] : client_rows_) {
    const Key key{number};
    const float gradient = -value;
    (void)table->push({.keys = std::span(&key, 1), .gradients = std::span(&gradient, 1)});
  }
  const auto it = image.tables.find(kClientTable);
  if (it == image.tables.end() || it->second == buckets_of(*table)) return;
  const std::unique_ptr<Table> held = make_table(plan_, kClientTable);
  for (const auto& [bucket, bytes] : it->second) (void)held->import_bucket(bytes);
  std::string differs;
  for (const auto& [number, value] : client_rows_) {
    const Key key{number};
    float found = 0;
    (void)held->gather(std::span(&key, 1), nullptr, std::span(&found, 1));
    if (found != value) differs += fmt::format(" key {} is {}, not {}", number, found, value);
  }
  world_.fail(
      "{} rows of {} are not what the acknowledged pushes, each applied once, make, which is {}:{}",
      held->rows(), kClientTable, table->rows(), differs);
}

void Oracle::check(const Image& image) {
  check_rows(image, all_of(plan_), "at the end");
  check_client_rows(image);
}

}  // namespace starling::sim
