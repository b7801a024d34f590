#include "tests/sim/driver.h"

#include "tests/sim/oracle.h"

namespace starling::sim {
namespace {

constexpr const char* kQueue = "data";
constexpr uint64_t kToolSession = 77;

}  // namespace

void Driver::on_start() {
  training_ = cutting_ = false;
  upkeep_ = Upkeep::kNone;
  Node::on_start();
}

void Driver::on_registered(const v1::RegisterReply& reply) {
  has_staleness_ = reply.job().has_staleness();
  staleness_ = reply.job().staleness();
  wait_for_all();
}

void Driver::on_event(const v1::Event& event) {
  if (event.has_job() && event.job().state() == v1::JOB_STATE_FAILED) {
    trace("the job has failed: {}", event.job().reason());
    return on_failed();
  }
  if (!event.has_cut()) return;
  const v1::CutPhase phase = event.cut().phase();
  if (phase == v1::CUT_PHASE_DRAIN) report_drained(event.cut().cut_id());
  cutting_ = phase <= v1::CUT_PHASE_WRITE;
  if (phase == v1::CUT_PHASE_FAILED) trace("cut {} failed: {}", cut_id_, event.cut().error());
}

void Driver::report_drained(uint64_t cut_id) {
  if (cut_id != cut_id_) return;
  if (upkeep_ == Upkeep::kNone) return report_cut(v1::CUT_PHASE_DRAIN, 0, {});
  Message message = request();
  message.meta.mutable_save_job()->set_action(v1::SAVE_ACTION_STATUS);
  message.meta.mutable_save_job()->set_cut_id(cut_id);
  ask_scheduler(Method::kSchedulerSave, std::move(message), [this, cut_id](Message reply) {
    if (is_over(reply)) return;
    const v1::SaveJobReply& cut = reply.meta.save_job_reply();
    if (!status_of(reply).ok() || cut.cut().phase() != v1::CUT_PHASE_DRAIN) return;
    if (cut.waiting_for_size() == 1 && cut.waiting_for(0) == name()) return keep_up(cut_id);
    after(milliseconds(40), [this, cut_id] { report_drained(cut_id); });
  });
}

Message Driver::numbered_alone() {
  Message message = numbered();
  message.meta.mutable_header()->clear_acked_below();
  return message;
}

void Driver::keep_up(uint64_t cut_id) {
  Message message = numbered_alone();
  const bool shrinks = std::exchange(upkeep_, Upkeep::kNone) == Upkeep::kShrink;
  trace("{} in cut {}", shrinks ? "shrinks" : "clears", cut_id);
  if (shrinks) {
    message.meta.mutable_shrink()->add_names(kClientTable);
  } else {
    message.meta.mutable_clear()->add_names(kClientTable);
  }
  to_all(
      shrinks ? Method::kPsShrink : Method::kPsClear, [message] { return message; },
      [this, cut_id] { report_drained(cut_id); });
}

void Driver::change_staleness() {
  if (!training_ || !plan_.new_staleness) return;
  Message message = numbered_alone();
  v1::StalenessEvent* bound = message.meta.mutable_set_job()->mutable_staleness();
  if (plan_.new_staleness->staleness) bound->set_staleness(*plan_.new_staleness->staleness);
  ask_scheduler(Method::kSchedulerSetJob, std::move(message), [this](Message reply) {
    if (is_over(reply)) return;
    trace("the staleness changes at clock {}: {}", reply.meta.set_job_reply().clock(),
          status_of(reply).ToString());
  });
}

void Tool::renew_generation(uint64_t known, uint64_t clock, World::Action then) {
  Message message;
  message.meta.mutable_header()->set_generation(known);
  message.meta.mutable_header()->set_session(kToolSession);
  message.meta.mutable_header()->set_number(++number_);
  message.meta.mutable_set_job()->set_new_generation(true);
  message.meta.mutable_set_job()->set_start_clock(clock);
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
    const Status status = status_of(reply);
    // The cut has failed meanwhile, and a synchronous step is under way.
    if (task->method == Method::kPsShrink && status.code() == StatusCode::kFailedPrecondition)
      return;
    if (!status.ok()) {
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
    message.meta.mutable_restore()->set_path(Vault::kDirectory);
    message.meta.mutable_restore()->set_cut_id(manifest->cut_id);
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
    if (has_staleness_) option->set_staleness(staleness_);
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
  Message message = numbered_alone();
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
    item->set_detail(fmt::format("{} {}", done, manifest ? manifest->clock.value_or(0) : 0));
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

void Driver::cut(Upkeep upkeep) {
  if (!training_ || cutting_) return;
  cutting_ = true;
  upkeep_ = upkeep;
  Message message = numbered_alone();
  v1::SaveOption* save = message.meta.mutable_save_job()->mutable_save();
  if (base_cut() != 0 && world().chance(0.5)) {
    save->set_mode(v1::SAVE_MODE_INCREMENTAL);
    save->set_base_cut(base_cut());
  }
  ask_scheduler(Method::kSchedulerSave, std::move(message), [this](Message reply) {
    if (is_over(reply)) return;
    // A cut that runs already, or a job that is about to fail.
    if (!status_of(reply).ok()) cutting_ = false;
  });
}

}  // namespace starling::sim
