#include "tests/sim/client_actor.h"

namespace starling::sim {
namespace {

constexpr size_t kOpenMax = 3;
constexpr uint64_t kKeys = 12;

}  // namespace

void ClientActor::on_start() {
  running_ = finished_ = paused_ = reading_ = reported_ = false;
  left_ = plan_.client_operations;
  next_number_ = 1;
  open_.clear();
  rows_.clear();
  Node::on_start();
}

// Every life has keys of its own, so that it knows what they must hold.
uint64_t ClientActor::key(uint64_t i) const {
  return mix64(mix64(plan_.seed ^ 11) ^ (uint64_t{client_} << 40) ^ (life() << 20) ^ i);
}

void ClientActor::on_event(const v1::Event& event) {
  if (event.has_job()) begin();
  if (!event.has_cut()) return;
  const v1::CutPhase phase = event.cut().phase();
  paused_ = phase == v1::CUT_PHASE_DRAIN || phase == v1::CUT_PHASE_SNAPSHOT;
  if (phase == v1::CUT_PHASE_DRAIN) reported_ = false;
  proceed();
}

// A cut that has ended is not told any more.
void ClientActor::on_whole(const v1::WatchReply& reply) {
  for (const v1::Event& event : reply.events()) {
    if (event.has_cut()) return;
  }
  paused_ = false;
  proceed();
}

void ClientActor::begin() {
  const bool trains = job_state_ == v1::JOB_STATE_TRAINING || job_state_ == v1::JOB_STATE_SAVING;
  if (running_ || !trains || map_.shards().empty()) return;
  running_ = true;
  proceed();
}

void ClientActor::proceed() {
  if (paused_ && open_.empty() && !reading_ && !reported_) {
    reported_ = true;
    report_cut(v1::CUT_PHASE_DRAIN, 0, {});
  }
  if (!running_ || paused_ || reading_ || finished_) return;
  if (open_.empty() && (left_ == 0 || world().chance(0.2))) {
    return read_back([this] {
      finished_ = left_ == 0;
      if (left_ > 0) send_operation();
      proceed();
    });
  }
  if (left_ == 0 || open_.size() >= kOpenMax) return;
  // What is set or erased does not go together with what is added.
  if (!open_.empty() && open_.begin()->second.kind != Operation::Kind::kAdd) return;
  send_operation();
  after(world().between(Duration(0), milliseconds(60)), [this] { proceed(); });
}

void ClientActor::send_operation() {
  --left_;
  Operation operation;
  const bool is_alone = open_.empty();
  const double drawn = world().rng().uniform();
  if (is_alone && drawn < 0.15) operation.kind = Operation::Kind::kSet;
  if (is_alone && drawn > 0.9) operation.kind = Operation::Kind::kErase;
  for (uint64_t i = 1 + world().rng().below(4); i > 0; --i) {
    operation.keys[key(world().rng().below(kKeys))] =
        static_cast<float>(1 + world().rng().below(9));
  }
  for (const auto& [key, amount] : operation.keys) operation.unanswered.insert(owner_of_key(key));
  const uint64_t number = next_number_++;
  const std::set<uint32_t> shards = operation.unanswered;
  open_[number] = std::move(operation);
  for (const uint32_t shard : shards) send_part(number, shard);
}

void ClientActor::send_part(uint64_t number, uint32_t shard) {
  const Operation& operation = open_.at(number);
  Message message = request();
  v1::Header* header = message.meta.mutable_header();
  header->set_session(session_);
  header->set_number(number);
  header->set_acked_below(open_.begin()->first);
  std::vector<uint64_t> keys;
  std::vector<float> values;
  for (const auto& [key, amount] : operation.keys) {
    if (owner_of_key(key) != shard) continue;
    keys.push_back(key);
    values.push_back(operation.kind == Operation::Kind::kAdd ? -amount : amount);
  }
  const auto n = static_cast<int64_t>(keys.size());
  message.tensors.push_back(Tensor::of<uint64_t>({n}, std::span<const uint64_t>(keys)));
  message.tensors.push_back(Tensor::of<float>({n, 1}, std::span<const float>(values)));
  const bool adds = operation.kind == Operation::Kind::kAdd;
  if (adds) {
    v1::KeyGradPart* part = message.meta.mutable_push_grad()->add_keys();
    part->set_table(kClientTable);
    part->set_keys_tensor(0);
    part->set_grads_tensor(1);
  } else {
    v1::KeyValuesPart* part = message.meta.mutable_push()->add_keys();
    part->set_table(kClientTable);
    part->set_keys_tensor(0);
    part->set_values_tensor(1);
    part->set_erase(operation.kind == Operation::Kind::kErase);
  }
  ask_shard(shard, adds ? Method::kPsPushGrad : Method::kPsPush, std::move(message),
            [this, number, shard](Message reply) {
              if (!is_over(reply)) acknowledged(number, shard, reply);
            });
}

void ClientActor::acknowledged(uint64_t number, uint32_t shard, const Message& reply) {
  if (const Status status = status_of(reply); !status.ok()) {
    return world().fail("{}: number {} was refused: {}", name(), number, status.ToString());
  }
  Operation& operation = open_.at(number);
  operation.unanswered.erase(shard);
  if (!operation.unanswered.empty()) return;
  for (const auto& [key, amount] : operation.keys) {
    if (operation.kind == Operation::Kind::kErase) {
      rows_.erase(key);
    } else if (operation.kind == Operation::Kind::kSet) {
      rows_[key] = amount;
    } else {
      rows_[key] += amount;
    }
  }
  open_.erase(number);
  proceed();
}

void ClientActor::read_back(World::Action then) {
  reading_ = true;
  auto left = std::make_shared<uint32_t>(shards());
  auto after_all = std::make_shared<World::Action>(std::move(then));
  for (uint32_t shard = 0; shard < shards(); ++shard) {
    std::vector<uint64_t> keys;
    for (uint64_t i = 0; i < kKeys; ++i) {
      if (owner_of_key(key(i)) == shard) keys.push_back(key(i));
    }
    Message message = request();
    message.tensors.push_back(
        Tensor::of<uint64_t>({static_cast<int64_t>(keys.size())}, std::span<const uint64_t>(keys)));
    v1::KeyPullPart* part = message.meta.mutable_pull()->add_keys();
    part->set_table(kClientTable);
    part->set_keys_tensor(0);
    ask_shard(shard, Method::kPsPull, std::move(message),
              [this, keys, left, after_all](Message reply) {
                if (is_over(reply)) return;
                const Status status = status_of(reply);
                if (!status.ok()) {
                  return world().fail("{}: a pull was refused: {}", name(), status.ToString());
                }
                const auto values = reply.tensors.at(0).values<float>();
                for (size_t i = 0; i < keys.size(); ++i) {
                  const auto row = rows_.find(keys[i]);
                  const float expected = row == rows_.end() ? 0 : row->second;
                  // A shrink or clear that its cut did not wait for; the oracle knows of it.
                  if (values[i] == expected || plan_.has_upkeep()) continue;
                  world().fail("{}: key {} reads as {}, acknowledged is {}", name(), keys[i],
                               values[i], expected);
                }
                if (--*left > 0) return;
                reading_ = false;
                (*after_all)();
              });
  }
}

}  // namespace starling::sim
