#include "tests/sim/trainer_actor.h"

#include <algorithm>

#include "table/hash.h"

namespace starling::sim {

void TrainerActor::on_start() {
  running_ = finished_ = false;
  leaves_.reset();
  clock_ = 0;
  done_.clear();
  step_ = {};
  Node::on_start();
}

std::string TrainerActor::where() const {
  return fmt::format("{} rank {} clock {}: batch {}, {} lookups and {} pushes open{}", name(),
                     rank_, clock_, text(step_.id), step_.unlooked.size(), step_.unpushed.size(),
                     finished_ ? ", finished" : "");
}

void TrainerActor::on_registered(const v1::RegisterReply& reply) {
  // A leave that was announced cannot be taken back.
  if (reply.ranks_size() == 0 && has_asked_to_leave_) {
    trace("has left in its former life");
    finished_ = true;
    return crash();
  }
  if (reply.ranks_size() != 1) {
    return world().fail("{} has {} ranks, it asked for one", name(), reply.ranks_size());
  }
  rank_ = reply.ranks(0);
  clock_ = reply.start_clock();
  trace("is rank {} from clock {}", rank_, clock_);
  begin();
}

void TrainerActor::on_event(const v1::Event& event) {
  // The rank's join may have been announced again, further on, before anybody answered.
  if (event.has_job()) begin();
}

void TrainerActor::begin() {
  const bool trains = job_state_ == v1::JOB_STATE_TRAINING || job_state_ == v1::JOB_STATE_SAVING;
  if (running_ || !trains || map_.shards().empty()) return;
  running_ = true;
  next();
}

void TrainerActor::next() {
  ++steps_;
  step_ = {};
  Message message = numbered();
  message.meta.mutable_header()->set_rank(rank_);
  message.meta.mutable_header()->set_clock(clock_);
  v1::ReadSampleOption* option = message.meta.mutable_read_sample();
  option->set_dataset("data");
  option->set_batches_max(1);
  const auto hub = static_cast<uint32_t>(asked_++ % plan_.hubs);
  step_.hub = hub;
  for (const BatchId& id : done_[hub]) *option->add_done() = to_proto(id);
  ask(kHubIndex + hub, 0, Method::kHubReadSample, std::move(message), [this, hub](Message reply) {
    if (is_over(reply)) return;
    done_[hub].clear();
    heard(reply.meta.read_sample_reply());
  });
}

void TrainerActor::heard(const v1::ReadSampleReply& reply) {
  if (reply.state() == v1::DATASET_STATE_END) return leave();
  const auto wait = milliseconds(reply.retry_after_ms());
  if (reply.state() == v1::DATASET_STATE_END_OF_EPOCH) {
    return after(wait, [this] { empty_tick(); });
  }
  if (reply.batches().empty()) return after(wait, [this] { next(); });
  const v1::BatchLease& lease = reply.batches(0);
  step_.id = from_proto(lease.batch());
  step_.rank = lease.has_rank() ? lease.rank() : rank_;
  step_.clock = lease.has_rank() ? lease.clock() : clock_;
  step_.is_own = !lease.has_rank();
  trace("trains {} at clock {} as rank {}", text(step_.id), step_.clock, step_.rank);
  if (step_.id.epoch == kNoBatch) return push_all();
  step_.has_data = true;
  step_.shards = {lease.tables(0).shards().begin(), lease.tables(0).shards().end()};
  step_.unlooked = {step_.shards.begin(), step_.shards.end()};
  for (const uint32_t shard : step_.shards) look_up(shard);
}

bool TrainerActor::has_left() {
  finished_ = finished_ || leaves_.has_value();
  return leaves_.has_value();
}

void TrainerActor::leave() {
  if (leaves_ && clock_ >= *leaves_) {
    trace("has left");
    finished_ = true;
    return crash();
  }
  if (leaves_) return empty_tick();
  trace("is at the end and leaves");
  has_asked_to_leave_ = true;
  Message message = request();
  message.meta.mutable_leave();
  ask_scheduler(Method::kSchedulerLeave, std::move(message), [this](Message reply) {
    if (is_over(reply)) return;
    if (const Status status = status_of(reply); !status.ok()) {
      return world().fail("{} may not leave: {}", name(), status.ToString());
    }
    leaves_ = reply.meta.leave_reply().clock();
    trace("leaves at clock {}", *leaves_);
    next();
  });
}

void TrainerActor::empty_tick() {
  step_.id = {.epoch = kNoBatch, .item = rank_, .number = clock_};
  step_.rank = rank_;
  step_.clock = clock_;
  push_all();
}

Message TrainerActor::step_request() const {
  Message message = request();
  v1::Header* header = message.meta.mutable_header();
  *header->mutable_batch() = to_proto(step_.id);
  header->set_rank(step_.rank);
  header->set_clock(step_.clock);
  return message;
}

void TrainerActor::look_up(uint32_t shard) {
  Message message = step_request();
  message.meta.mutable_embedding_lookup();
  ask_shard(shard, Method::kPsEmbeddingLookup, std::move(message),
            [this, shard, number = steps_](Message reply) {
              if (number == steps_ && !is_over(reply)) looked_up(shard, reply);
            });
}

void TrainerActor::looked_up(uint32_t shard, const Message& reply) {
  const Status status = status_of(reply);
  if (reply.meta.status().reason() == v1::REASON_ALREADY_DONE) {
    step_.has_data = false;  // the tick is all that is left of it
  } else if (reply.meta.status().reason() == v1::REASON_UNKNOWN_BATCH) {
    return feed_again([this, shard] { look_up(shard); });
  } else if (!status.ok()) {
    return world().fail("{}: the lookup of {} was refused: {}", name(), text(step_.id),
                        status.ToString());
  } else {
    const auto rows = reply.tensors.at(0).values<float>();
    step_.rows[shard] = {rows.begin(), rows.end()};
  }
  step_.unlooked.erase(shard);
  if (!step_.unlooked.empty()) return;
  const Duration computes = world().between(Duration(0), plan_.step_time);
  after(computes, [this, number = steps_] {
    if (number == steps_) push_all();
  });
}

void TrainerActor::feed_again(World::Action then) {
  Message message = numbered();
  message.meta.mutable_read_sample()->set_dataset("data");
  *message.meta.mutable_read_sample()->add_feed_again() = to_proto(step_.id);
  ask(kHubIndex + step_.hub, 0, Method::kHubReadSample, std::move(message),
      [this, then = std::move(then), number = steps_](Message reply) mutable {
        if (is_over(reply) || number != steps_) return;
        if (!reply.meta.read_sample_reply().lost().empty()) return give_up();
        after(milliseconds(10), [this, then = std::move(then), number]() mutable {
          if (number == steps_) then();
        });
      });
}

// The batch is not the hub's any more; the tick of this step still is this trainer's.
void TrainerActor::give_up() {
  trace("gives {} up", text(step_.id));
  step_.has_data = false;
  step_.is_lost = true;
  ++steps_;
  push_all();
}

void TrainerActor::push_all() {
  for (uint32_t shard = 0; shard < shards(); ++shard) step_.unpushed.insert(shard);
  for (uint32_t shard = 0; shard < shards(); ++shard) push(shard);
}

std::vector<uint64_t> TrainerActor::keys_on(uint32_t shard) const {
  std::vector<uint64_t> keys = plan_.keys_of(real_id(step_.id));
  std::erase_if(keys, [&](uint64_t key) { return owner_of_key(key) != shard; });
  return keys;
}

Message TrainerActor::push_message(uint32_t shard) const {
  Message message = step_request();
  v1::PushGradOption* option = message.meta.mutable_push_grad();
  if (!step_.has_data) return message;
  if (const auto rows = step_.rows.find(shard); rows != step_.rows.end()) {
    std::vector<float> gradients;
    const std::vector<uint64_t> keys = keys_on(shard);
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto row = std::span(rows->second).subspan(i * plan_.dim, plan_.dim);
      const std::vector<float> gradient = plan_.gradient(real_id(step_.id), keys[i], row);
      gradients.insert(gradients.end(), gradient.begin(), gradient.end());
    }
    v1::BatchGradPart* part = option->add_batch();
    part->set_table(kRowsTable);
    part->set_rows_tensor(0);
    message.tensors.push_back(
        Tensor::of<float>({static_cast<int64_t>(keys.size()), static_cast<int64_t>(plan_.dim)},
                          std::span<const float>(gradients)));
  }
  add_dense(shard, message);
  return message;
}

// The parts of the variable that lie on the shard, as ps_options.proto says it in words.
void TrainerActor::add_dense(uint32_t shard, Message& message) const {
  const uint64_t parts = (kVariableElements + kVariableSplit - 1) / kVariableSplit;
  const std::vector<float> gradient = plan_.dense_gradient(real_id(step_.id));
  for (uint64_t part = 0; part < parts; ++part) {
    const uint64_t bucket = ((name_hash(kVariable) >> 52) + part * kBuckets / parts) % kBuckets;
    if (map_.bucket_shard(static_cast<int>(bucket)) != shard) continue;
    const uint64_t begin = (part * kVariableElements + parts - 1) / parts;
    const uint64_t end = ((part + 1) * kVariableElements + parts - 1) / parts;
    v1::DenseGradPart* proto = message.meta.mutable_push_grad()->add_dense();
    proto->set_variable(kVariable);
    proto->mutable_range()->set_begin(begin);
    proto->mutable_range()->set_end(end);
    proto->set_grads_tensor(static_cast<uint32_t>(message.tensors.size()));
    message.tensors.push_back(Tensor::of<float>({static_cast<int64_t>(end - begin)},
                                                std::span(gradient).subspan(begin, end - begin)));
  }
}

void TrainerActor::push(uint32_t shard) {
  ask_shard(shard, Method::kPsPushGrad, push_message(shard),
            [this, shard, number = steps_](Message reply) {
              if (number == steps_ && !is_over(reply)) pushed(shard, reply);
            });
}

void TrainerActor::pushed(uint32_t shard, const Message& reply) {
  const Status status = status_of(reply);
  if (reply.meta.status().reason() == v1::REASON_UNKNOWN_BATCH) {
    return feed_again([this, shard] { push(shard); });
  }
  if (!status.ok()) {
    return world().fail("{}: the push of {} was refused: {}", name(), text(step_.id),
                        status.ToString());
  }
  step_.unpushed.erase(shard);
  if (!step_.unpushed.empty()) return;
  const bool is_report = step_.id.epoch != kNoBatch || !step_.is_own;
  if (is_report && !step_.is_lost) done_[step_.hub].push_back(step_.id);
  if (step_.is_own) ++clock_;
  next();
}

}  // namespace starling::sim
