#include "tests/sim/node.h"

#include "table/hash.h"

namespace starling::sim {
namespace {

constexpr Duration kRegisterTimeout = milliseconds(500);
constexpr Duration kWatchTimeout = seconds(3);
constexpr Duration kBeatEvery = milliseconds(700);
constexpr Duration kBeatTimeout = milliseconds(400);

}  // namespace

v1::BatchId to_proto(const BatchId& id) {
  v1::BatchId out;
  out.set_epoch(id.epoch);
  out.set_item(id.item);
  out.set_number(id.number);
  return out;
}

BatchId from_proto(const v1::BatchId& id) {
  return {.epoch = id.epoch(), .item = id.item(), .number = id.number()};
}

std::string text(const BatchId& id) {
  return fmt::format("{}/{}/{}", id.epoch, id.item, id.number);
}

void Node::on_start() {
  incarnation_ = world().rng().next_u64() | 1;
  session_ = world().rng().next_u64() | 1;
  number_ = 0;
  replaces_ = 0;
  id_ = 0;
  generation_ = 0;
  revision_ = 0;
  cut_id_ = 0;
  map_.Clear();
  job_state_ = v1::JOB_STATE_UNKNOWN;
  enroll();
}

Message Node::request() const {
  Message message;
  v1::Header* header = message.meta.mutable_header();
  header->set_role(role_);
  header->set_role_id(id_);
  header->set_incarnation(incarnation_);
  header->set_generation(generation_);
  header->set_map_version(map_.version());
  return message;
}

Message Node::numbered() {
  Message message = request();
  message.meta.mutable_header()->set_session(session_);
  message.meta.mutable_header()->set_number(++number_);
  message.meta.mutable_header()->set_acked_below(number_);
  return message;
}

bool Node::is_over(const Message& reply) {
  const v1::Reason reason = reply.meta.status().reason();
  if (reason != v1::REASON_FENCED && reason != v1::REASON_WRONG_GENERATION) return false;
  if (has_left()) {
    crash();
    return true;
  }
  if (reason == v1::REASON_FENCED && is_known_alive(name(), incarnation_)) {
    world().fail("{} was told that it is dead, and is not: {}", name(),
                 reply.meta.status().message());
  }
  end(reply.meta.status().message());
  return true;
}

void Node::end(const std::string& why) {
  if (!is_up()) return;
  trace("ends: {}", why);
  crash();
  on_ended();
}

void Node::enroll() {
  Message message = request();
  v1::RegisterOption* option = message.meta.mutable_register_();
  option->set_name(name());
  option->set_replaces(replaces_);
  v1::Address* address = option->add_addresses();
  address->set_protocol("inproc");
  address->set_host(std::to_string(index()));
  fill_register(*option);
  call(kSchedulerIndex, 0, Method::kSchedulerRegister, std::move(message), kRegisterTimeout,
       [this](Message reply) {
         if (is_over(reply)) return;
         const Status status = status_of(reply);
         if (reply.meta.status().reason() == v1::REASON_NAME_TAKEN) {
           replaces_ = reply.meta.register_reply().living();
           return enroll();
         }
         if (!status.ok()) {
           if (status.code() == StatusCode::kInvalidArgument) {
             return world().fail("{} may not register: {}", name(), message_of(status));
           }
           trace("may not register yet: {}", message_of(status));
           return after(milliseconds(30), [this] { enroll(); });
         }
         const v1::RegisterReply& registered = reply.meta.register_reply();
         id_ = registered.id();
         generation_ = registered.generation();
         revision_ = 0;  // the whole state first
         if (registered.has_map()) map_ = registered.map();
         job_state_ = registered.job().state();
         trace("is node {} of generation {}", id_, generation_);
         on_registered(registered);
         beat();
         watch();
       });
}

void Node::beat() {
  Message message = request();
  fill_beat(*message.meta.mutable_scheduler_heartbeat());
  call(kSchedulerIndex, 0, Method::kSchedulerHeartbeat, std::move(message), kBeatTimeout,
       [this](Message reply) {
         if (is_over(reply)) return;
         const bool heard = status_of(reply).ok();
         after(heard ? kBeatEvery : milliseconds(50), [this] { beat(); });
       });
}

void Node::watch() {
  Message message = request();
  message.meta.mutable_watch()->set_revision(revision_);
  call(kSchedulerIndex, 0, Method::kSchedulerWatch, std::move(message), kWatchTimeout,
       [this](Message reply) {
         if (is_over(reply)) return;
         if (!status_of(reply).ok()) return after(milliseconds(50), [this] { watch(); });
         const v1::WatchReply& news = reply.meta.watch_reply();
         const uint64_t life_now = life();
         if (news.whole()) on_whole(news);
         for (const v1::Event& event : news.events()) {
           if (!is_up() || life() != life_now) return;
           take(event);
         }
         revision_ = std::max(revision_, news.revision());
         watch();
       });
}

void Node::on_whole(const v1::WatchReply&) {}

void Node::take(const v1::Event& event) {
  if (event.has_map() && event.map().version() > map_.version()) map_ = event.map();
  if (event.has_job()) {
    job_state_ = event.job().state();
    if (event.job().generation() != generation_) return end("the job starts anew");
  }
  if (event.has_cut()) cut_id_ = event.cut().cut_id();
  on_event(event);
}

uint32_t Node::actor_of(uint32_t shard) const {
  return static_cast<uint32_t>(
      std::stoul(map_.shards(static_cast<int>(shard)).addresses(0).host()));
}

uint32_t Node::owner_of_key(uint64_t key) const {
  return map_.bucket_shard(static_cast<int>(mixed_hash(static_cast<Key>(key)) >> 52));
}

void Node::report_cut(v1::CutPhase phase, uint32_t lane, v1::SaveJobOption option) {
  option.set_action(v1::SAVE_ACTION_REPORT);
  option.set_cut_id(cut_id_);
  option.set_phase(phase);
  option.set_lane(lane);
  Message message = request();
  *message.meta.mutable_save_job() = std::move(option);
  ask_scheduler(Method::kSchedulerSave, std::move(message), [this, phase](Message reply) {
    if (is_over(reply)) return;
    const Status status = status_of(reply);
    if (!status.ok() && status.code() != StatusCode::kNotFound) {
      world().fail("{}: its report of {} was refused: {}", name(), v1::CutPhase_Name(phase),
                   message_of(status));
    }
  });
}

}  // namespace starling::sim
