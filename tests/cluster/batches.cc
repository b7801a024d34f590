#include "tests/cluster/batches.h"

#include "tests/cluster/world.h"

namespace starling::cluster {
namespace {

uint32_t add(Message& message, Tensor tensor) {
  message.tensors.push_back(std::move(tensor));
  return static_cast<uint32_t>(message.tensors.size() - 1);
}

Tensor numbers_of(const std::vector<uint32_t>& values) {
  return Tensor::of<uint32_t>({static_cast<int64_t>(values.size())}, values);
}

}  // namespace

Batch::Batch(std::vector<Field> fields, Samples samples, const ShardRoutes& routes,
             std::map<std::string, uint32_t> dims)
    : fields_(std::move(fields)),
      samples_(std::move(samples)),
      shards_(routes.shards()),
      map_version_(routes.version()),
      dims_(std::move(dims)),
      parts_(shards_) {
  for (size_t field = 0; field < fields_.size(); ++field) {
    const std::string& table = fields_[field].table;
    for (const auto& keys : samples_.keys[field]) {
      for (const uint64_t key : keys) {
        const uint32_t shard = routes.owner(Placement(), static_cast<Key>(key));
        if (!owner_[table].emplace(key, shard).second) continue;
        Part& part = parts_[shard][table];
        part.position[key] = static_cast<uint32_t>(part.keys.size());
        part.keys.push_back(key);
      }
    }
  }
}

Message Batch::header(uint32_t rank, uint64_t clock) const {
  Message message;
  v1::Header* header = message.meta.mutable_header();
  header->mutable_batch()->set_epoch(samples_.id.epoch);
  header->mutable_batch()->set_item(samples_.id.item);
  header->mutable_batch()->set_number(samples_.id.number);
  header->set_rank(rank);
  header->set_clock(clock);
  return message;
}

std::vector<ShardMessage> Batch::feeds() const {
  std::vector<ShardMessage> out;
  for (uint32_t shard = 0; shard < shards_; ++shard) {
    Message message = header(0, 0);
    message.meta.mutable_header()->clear_rank();
    v1::FeedSampleOption* option = message.meta.mutable_feed_sample();
    option->set_samples(static_cast<uint32_t>(samples_.samples()));
    option->set_window(1000);
    option->set_step(samples_.step);
    for (const auto& [table, part] : parts_[shard]) {
      v1::FeedPart* feed = option->add_parts();
      feed->set_table(table);
      feed->set_keys_tensor(add(message, keys_of(part.keys)));
      feed->set_row_keys(static_cast<uint32_t>(part.keys.size()));
      for (size_t field = 0; field < fields_.size(); ++field) {
        if (fields_[field].table != table) continue;
        std::vector<uint32_t> samples, offsets{0}, positions;
        for (uint32_t sample = 0; sample < samples_.samples(); ++sample) {
          for (const uint64_t key : samples_.keys[field][sample]) {
            if (part.position.contains(key)) positions.push_back(part.position.at(key));
          }
          if (positions.size() == offsets.back()) continue;
          samples.push_back(sample);
          offsets.push_back(static_cast<uint32_t>(positions.size()));
        }
        v1::FieldLayout* layout = feed->add_fields();
        layout->set_field(fields_[field].name);
        if (fields_[field].mean) layout->set_pooling(v1::POOLING_MEAN);
        layout->set_samples_tensor(add(message, numbers_of(samples)));
        layout->set_offsets_tensor(add(message, numbers_of(offsets)));
        layout->set_positions_tensor(add(message, numbers_of(positions)));
      }
    }
    out.push_back({shard, std::move(message)});
  }
  return out;
}

std::vector<ShardMessage> Batch::lookups(uint32_t rank, uint64_t clock) const {
  std::vector<ShardMessage> out;
  for (uint32_t shard = 0; shard < shards_; ++shard) {
    Message message = header(rank, clock);
    message.meta.mutable_embedding_lookup();
    out.push_back({shard, std::move(message)});
  }
  return out;
}

Status Batch::take(const std::vector<Message>& replies) {
  if (replies.size() != shards_) return internal_error("{} replies", replies.size());
  for (uint32_t shard = 0; shard < shards_; ++shard) {
    const Message& reply = replies[shard];
    for (const v1::LookupPart& told : reply.meta.embedding_lookup_reply().parts()) {
      const Part& part = parts_[shard].at(told.table());
      const uint32_t dim = dims_.at(told.table());
      const auto values = reply.tensors.at(told.rows_tensor()).values<float>();
      if (values.size() != part.keys.size() * dim)
        return internal_error("{} values", values.size());
      for (size_t i = 0; i < part.keys.size(); ++i) {
        rows_[told.table()][part.keys[i]].assign(values.begin() + i * dim,
                                                 values.begin() + (i + 1) * dim);
      }
    }
  }
  return absl::OkStatus();
}

std::vector<float> Batch::pooled(size_t field, size_t sample) const {
  const std::string& table = fields_[field].table;
  const std::vector<uint64_t>& keys = samples_.keys[field][sample];
  std::vector<float> sum(dims_.at(table));
  for (const uint64_t key : keys) {
    const std::vector<float>& row = rows_.at(table).at(key);
    for (size_t d = 0; d < sum.size(); ++d) sum[d] += row[d];
  }
  if (fields_[field].mean && !keys.empty()) {
    for (float& x : sum) x /= static_cast<float>(keys.size());
  }
  return sum;
}

std::vector<Message> Batch::pushes(
    uint32_t rank, uint64_t clock,
    const std::function<std::vector<float>(size_t, size_t)>& gradient) const {
  std::map<std::string, std::map<uint64_t, std::vector<float>>> merged;
  for (size_t field = 0; field < fields_.size(); ++field) {
    const std::string& table = fields_[field].table;
    // Of one field in sample order first, then over the fields.
    std::map<uint64_t, std::vector<float>> of_field;
    for (size_t sample = 0; sample < samples_.samples(); ++sample) {
      const std::vector<uint64_t>& keys = samples_.keys[field][sample];
      std::vector<float> grad = gradient(field, sample);
      if (fields_[field].mean && !keys.empty()) {
        for (float& x : grad) x /= static_cast<float>(keys.size());
      }
      for (const uint64_t key : keys) {
        std::vector<float>& sum = of_field[key];
        sum.resize(grad.size());
        for (size_t d = 0; d < grad.size(); ++d) sum[d] += grad[d];
      }
    }
    for (const auto& [key, grad] : of_field) {
      std::vector<float>& sum = merged[table][key];
      sum.resize(grad.size());
      for (size_t d = 0; d < grad.size(); ++d) sum[d] += grad[d];
    }
  }
  std::vector<Message> out;
  for (uint32_t shard = 0; shard < shards_; ++shard) {
    Message message = header(rank, clock);
    v1::PushGradOption* option = message.meta.mutable_push_grad();
    for (const auto& [table, part] : parts_[shard]) {
      std::vector<float> values;
      for (const uint64_t key : part.keys) {
        const std::vector<float>& grad = merged.at(table).at(key);
        values.insert(values.end(), grad.begin(), grad.end());
      }
      v1::BatchGradPart* grads = option->add_batch();
      grads->set_table(table);
      grads->set_rows_tensor(add(message, rows_of(part.keys.size(), dims_.at(table), values)));
    }
    out.push_back(std::move(message));
  }
  return out;
}

}  // namespace starling::cluster
