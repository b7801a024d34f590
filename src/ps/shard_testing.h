// ShardBench holds one or more shards for tests: builds requests as a hub, a trainer or a client
// would, and reads the answers.
//
// Uses: ps, GoogleTest; for tests only. Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ps/shard.h"

namespace starling {

class NoHost final : public ShardHost {
 public:
  void save(Shard& shard, ShardCall& call) override {
    shard.refuse(call.token, unimplemented("no files here"));
  }
  void restore(Shard& shard, ShardCall& call) override {
    shard.refuse(call.token, unimplemented("no files here"));
  }
  void stop(Shard& shard, ShardCall& call) override {
    shard.refuse(call.token, unimplemented("no process here"));
  }
  void profile(Shard& shard, ShardCall& call) override {
    shard.refuse(call.token, unimplemented("no threads here"));
  }
  uint32_t open_requests() const override { return open; }
  void describe_rpcs(v1::StatReply&) override {}

  uint32_t open = 3;
};

// One shard that owns everything, unless it is told otherwise.
class ShardBench {
 public:
  explicit ShardBench(ShardOptions options = {}) : options_(options), shard(options, host) {
    own_all();
  }

  void own_all() {
    set_owner([](uint32_t) { return 0u; }, 1);
  }
  // `owner` gives the shard of each bucket; this one is number 0.
  template <typename Owner>
  void set_owner(Owner owner, uint32_t shards) {
    v1::Event event;
    v1::ShardMap& map = *event.mutable_map();
    map.set_version(++map_version);
    for (uint32_t i = 0; i < shards; ++i) {
      v1::Shard* one = map.add_shards();
      one->set_node(value(options_.node));
      one->set_lane(i);
    }
    for (uint32_t bucket = 0; bucket < kBuckets; ++bucket) map.add_bucket_shard(owner(bucket));
    shard.on_event(event);
  }

  // A request with the header of a registered trainer.
  Message request() const {
    Message message;
    v1::Header* header = message.meta.mutable_header();
    header->set_role(v1::ROLE_TRAINER);
    header->set_role_id(7);
    header->set_incarnation(1);
    header->set_generation(1);
    header->set_map_version(map_version);
    return message;
  }
  Message numbered(uint64_t number, uint64_t session = 99) const {
    Message message = request();
    message.meta.mutable_header()->set_session(session);
    message.meta.mutable_header()->set_number(number);
    return message;
  }
  Message of_batch(const BatchId& id, std::optional<uint32_t> rank = {}, uint64_t clock = 0) const {
    Message message = request();
    v1::Header* header = message.meta.mutable_header();
    header->mutable_batch()->set_epoch(id.epoch);
    header->mutable_batch()->set_item(id.item);
    header->mutable_batch()->set_number(id.number);
    if (rank) header->set_rank(*rank);
    header->set_clock(clock);
    return message;
  }

  static uint32_t add(Message& message, Tensor tensor) {
    message.tensors.push_back(std::move(tensor));
    return static_cast<uint32_t>(message.tensors.size() - 1);
  }
  template <typename T>
  static Tensor list(const std::vector<T>& values) {
    return Tensor::of<T>({static_cast<int64_t>(values.size())}, std::span<const T>(values));
  }
  static Tensor matrix(size_t rows, size_t columns, const std::vector<float>& values) {
    return Tensor::of<float>({static_cast<int64_t>(rows), static_cast<int64_t>(columns)},
                             std::span<const float>(values));
  }

  // Sends; the answer may come at once, or later by another send.
  Token send(Method method, Message message, Deadline deadline = Deadline::never()) {
    const auto token = static_cast<Token>(++tokens_);
    shard.handle(method, std::move(message), token, deadline, now);
    collect();
    return token;
  }
  void collect() {
    for (Shard::Output& output : shard.take_outputs()) {
      ASSERT_FALSE(answers.contains(output.token)) << "answered twice";
      answers.emplace(output.token, std::move(output.reply));
    }
  }
  bool answered(Token token) const { return answers.contains(token); }
  // The answer of a request that is answered at once.
  Message call(Method method, Message message) {
    const Token token = send(method, std::move(message));
    EXPECT_TRUE(answered(token)) << info_of(method).name << " was not answered";
    return answered(token) ? answers.at(token) : Message();
  }
  Status status(Method method, Message message) {
    return status_of(call(method, std::move(message)));
  }

  // A table of this dim with sgd of rate 1, so that a push subtracts its gradient; zero at the
  // start.
  static v1::TableOptions plain_table(const std::string& name, uint32_t dim) {
    v1::TableOptions table;
    table.set_name(name);
    table.set_dim(dim);
    table.mutable_optimizer()->set_name("sgd");
    v1::NamedValue* rate = table.mutable_optimizer()->add_values();
    rate->set_name("lr");
    rate->set_value(1);
    return table;
  }
  void create(const std::vector<v1::TableOptions>& tables,
              const std::vector<v1::DenseOptions>& variables = {}) {
    Message message = request();
    for (const auto& table : tables) *message.meta.mutable_create()->add_tables() = table;
    for (const auto& variable : variables)
      *message.meta.mutable_create()->add_variables() = variable;
    ASSERT_EQ(status(Method::kPsCreate, std::move(message)), absl::OkStatus());
  }
  void freeze(std::optional<uint32_t> staleness = {}, uint32_t ranks = 0) {
    Message message = request();
    v1::FreezeOption* option = message.meta.mutable_freeze();
    if (staleness) option->set_staleness(*staleness);
    if (ranks > 0) {
      option->set_ranks(ranks);
      option->set_push_bytes_max(1 << 16);
    }
    ASSERT_EQ(status(Method::kPsFreeze, std::move(message)), absl::OkStatus());
    for (uint32_t rank = 0; rank < ranks; ++rank) join(rank, 0);
  }
  void join(uint32_t rank, uint64_t clock) {
    v1::Event event;
    event.mutable_rank()->set_rank(rank);
    event.mutable_rank()->set_clock(clock);
    shard.on_event(event);
    collect();
  }

  // A feed of one table whose samples have one key each, in rows.
  Message feed_rows(const BatchId& id, const std::string& table,
                    const std::vector<uint64_t>& keys) {
    Message message = of_batch(id);
    message.meta.mutable_header()->set_role(v1::ROLE_HUB);
    message.meta.mutable_header()->set_role_id(3);
    v1::FeedSampleOption* option = message.meta.mutable_feed_sample();
    option->set_samples(static_cast<uint32_t>(keys.size()));
    v1::FeedPart* part = option->add_parts();
    part->set_table(table);
    part->set_keys_tensor(add(message, list<uint64_t>(keys)));
    part->set_row_keys(static_cast<uint32_t>(keys.size()));
    v1::FieldLayout* field = part->add_fields();
    field->set_field("f");
    std::vector<uint32_t> each(keys.size());
    for (uint32_t i = 0; i < each.size(); ++i) each[i] = i;
    field->set_samples_tensor(add(message, list<uint32_t>(each)));
    field->set_positions_tensor(add(message, list<uint32_t>(each)));
    return message;
  }
  Message push_rows(const BatchId& id, const std::string& table, size_t keys,
                    const std::vector<float>& gradients, std::optional<uint32_t> rank = {},
                    uint64_t clock = 0) {
    Message message = of_batch(id, rank, clock);
    v1::BatchGradPart* part = message.meta.mutable_push_grad()->add_batch();
    part->set_table(table);
    part->set_rows_tensor(add(message, matrix(keys, gradients.size() / keys, gradients)));
    return message;
  }
  // The weights of keys, by Pull.
  std::vector<float> weights(const std::string& table, const std::vector<uint64_t>& keys) {
    Message message = request();
    v1::KeyPullPart* part = message.meta.mutable_pull()->add_keys();
    part->set_table(table);
    part->set_keys_tensor(add(message, list<uint64_t>(keys)));
    const Message reply = call(Method::kPsPull, std::move(message));
    EXPECT_EQ(status_of(reply), absl::OkStatus());
    if (reply.tensors.empty()) return {};
    const auto values = reply.tensors[0].values<float>();
    return {values.begin(), values.end()};
  }

 private:
  ShardOptions options_;
  uint64_t tokens_ = 0;
  NoHost host;

 public:
  const uint32_t open_requests = host.open;
  Shard shard;
  TimePoint now{seconds(1)};
  uint64_t map_version = 0;
  std::map<Token, Message> answers;
};

}  // namespace starling
