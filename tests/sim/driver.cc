#include "tests/sim/driver.h"

namespace starling::sim {
namespace {

constexpr const char* kQueue = "data";
constexpr uint64_t kToolSession = 77;

}  // namespace

void Driver::on_start() {
  training_ = cutting_ = false;
  Node::on_start();
}

void Driver::on_event(const v1::Event& event) {
  if (event.has_job() && event.job().state() == v1::JOB_STATE_FAILED) {
    trace("the job has failed: {}", event.job().reason());
    return on_failed();
  }
  if (!event.has_cut()) return;
  const v1::CutPhase phase = event.cut().phase();
  if (phase == v1::CUT_PHASE_DRAIN) report_cut(phase, 0, {});
  cutting_ = phase <= v1::CUT_PHASE_WRITE;
  if (phase == v1::CUT_PHASE_FAILED) trace("cut {} failed: {}", cut_id_, event.cut().error());
}

void Tool::renew_generation(uint64_t known, World::Action then) {
  Message message;
  message.meta.mutable_header()->set_generation(known);
  message.meta.mutable_header()->set_session(kToolSession);
  message.meta.mutable_header()->set_number(++number_);
  message.meta.mutable_set_job()->set_new_generation(true);
  ask(kSchedulerIndex, 0, Method::kSchedulerSetJob, std::move(message),
      [this, then = std::move(then)](Message reply) mutable {
        const bool is_done =
            status_of(reply).ok() || reply.meta.status().reason() == v1::REASON_WRONG_GENERATION;
        if (!is_done) {
          return world().fail("no new generation: {}", message_of(status_of(reply)));
        }
        then();
      });
}

void Driver::wait_for_all() {
  known_generation_ = generation_;
  const bool trains = job_state_ == v1::JOB_STATE_TRAINING || job_state_ == v1::JOB_STATE_SAVING;
  if (trains) return add_work();  // an earlier life of the driver came so far
  Message message = request();
  message.meta.mutable_get_job()->set_with_nodes(true);
  ask_scheduler(Method::kSchedulerGetJob, std::move(message), [this](Message reply) {
    if (is_over(reply)) return;
    uint32_t trainers = 0;
    for (const v1::Node& node : reply.meta.get_job_reply().nodes()) {
      if (node.state() == v1::NODE_STATE_ALIVE)
        trainers += static_cast<uint32_t>(node.ranks_size());
    }
    uint32_t lanes = 0;
    for (const uint32_t n : plan_.lanes) lanes += n;
    if (trainers < plan_.ranks || shards() < lanes) {
      return after(milliseconds(100), [this] { wait_for_all(); });
    }
    create();
  });
}

void Driver::to_all(Method method, std::function<Message()> make, World::Action then) {
  auto task = std::make_shared<ToAll>(ToAll{method, std::move(make), std::move(then), shards()});
  for (uint32_t shard = 0; shard < shards(); ++shard) to_one(shard, task);
}

void Driver::to_one(uint32_t shard, const std::shared_ptr<ToAll>& task) {
  ask_shard(shard, task->method, task->make(), [this, shard, task](Message reply) {
    if (is_over(reply)) return;
    if (reply.meta.status().reason() == v1::REASON_STALE_MAP) {
      if (reply.meta.status().map().version() > map_.version()) map_ = reply.meta.status().map();
      return after(milliseconds(20), [this, shard, task] { to_one(shard, task); });
    }
    if (const Status status = status_of(reply); !status.ok()) {
      return world().fail("{} was refused: {}", info_of(task->method).name, status.ToString());
    }
    if (reply.meta.has_freeze_reply()) schema_hash_ = reply.meta.freeze_reply().schema_hash();
    if (--task->left == 0) task->then();
  });
}

void Driver::create() {
  const auto make = [this] {
    Message message = request();
    *message.meta.mutable_create() = plan_.schema();
    return message;
  };
  to_all(Method::kPsCreate, make, [this] { restore(); });
}

void Driver::restore() {
  const auto make = [this] {
    Message message = request();
    message.meta.mutable_restore();
    return message;
  };
  if (!manifest) return freeze();
  trace("restores cut {}", manifest->cut_id);
  to_all(Method::kPsRestore, make, [this] { freeze(); });
}

void Driver::freeze() {
  const auto make = [this] {
    Message message = request();
    v1::FreezeOption* option = message.meta.mutable_freeze();
    if (plan_.staleness) option->set_staleness(*plan_.staleness);
    option->set_ranks(plan_.ranks);
    option->set_push_bytes_max(1 << 16);
    return message;
  };
  to_all(Method::kPsFreeze, make, [this] {
    set_job(v1::JOB_STATE_FROZEN,
            [this] { set_job(v1::JOB_STATE_TRAINING, [this] { add_work(); }); });
  });
}

void Driver::set_job(v1::JobState state, World::Action then) {
  Message message = numbered();
  message.meta.mutable_set_job()->set_state(state);
  message.meta.mutable_set_job()->set_schema_hash(schema_hash_);
  ask_scheduler(Method::kSchedulerSetJob, std::move(message),
                [this, then = std::move(then)](Message reply) mutable {
                  if (is_over(reply)) return;
                  if (const Status status = status_of(reply); !status.ok()) {
                    return world().fail("SetJob was refused: {}", status.ToString());
                  }
                  then();
                });
}

void Driver::add_work() {
  Message message = request();
  v1::AddWorkOption* option = message.meta.mutable_add_work();
  option->set_queue(kQueue);
  option->set_complete(true);
  uint64_t done = 0;
  if (manifest) {
    for (const v1::WorkQueueInfo& queue : manifest->queues) {
      *option->mutable_progress() = queue.progress();
      for (const v1::WorkProgress& item : queue.progress()) {
        done += item.finished() ? plan_.batches_per_item : item.done_below();
      }
    }
  }
  for (uint32_t i = 0; i < plan_.items; ++i) {
    v1::WorkItem* item = option->add_items();
    item->set_item(i);
    item->set_path("sim");
    item->set_detail(std::to_string(done));
  }
  ask_scheduler(Method::kSchedulerAddWork, std::move(message), [this](Message reply) {
    if (is_over(reply)) return;
    if (const Status status = status_of(reply); !status.ok()) {
      return world().fail("AddWork was refused: {}", status.ToString());
    }
    training_ = true;
    on_training();
  });
}

void Driver::cut() {
  if (!training_ || cutting_) return;
  cutting_ = true;
  Message message = numbered();
  message.meta.mutable_save_job();
  ask_scheduler(Method::kSchedulerSave, std::move(message), [this](Message reply) {
    if (is_over(reply)) return;
    // A cut that runs already, or a job that is about to fail.
    if (!status_of(reply).ok()) cutting_ = false;
  });
}

}  // namespace starling::sim
