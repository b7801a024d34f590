// The part of the machine that is about the job itself: its map, its state, its cuts.
#include <algorithm>
#include <array>

#include "base/answer_by.h"
#include "scheduler/scheduler.h"
#include "scheduler/shard_map.h"

namespace starling {
namespace {

constexpr int kStalenessKept = 16;  // announcements

struct Step {
  v1::JobState from;
  v1::JobState to;
};
// FAILED may follow every state, and a new generation starts from every one.
constexpr std::array kSteps = {
    Step{v1::JOB_STATE_CREATED, v1::JOB_STATE_FROZEN},
    Step{v1::JOB_STATE_RESTORING, v1::JOB_STATE_FROZEN},
    Step{v1::JOB_STATE_FROZEN, v1::JOB_STATE_TRAINING},
    Step{v1::JOB_STATE_RESTORING, v1::JOB_STATE_TRAINING},
    Step{v1::JOB_STATE_DONE, v1::JOB_STATE_TRAINING},
    Step{v1::JOB_STATE_FROZEN, v1::JOB_STATE_DONE},
    Step{v1::JOB_STATE_TRAINING, v1::JOB_STATE_DONE},
};

bool is_allowed(v1::JobState from, v1::JobState to) {
  return from == to || to == v1::JOB_STATE_FAILED ||
         std::any_of(kSteps.begin(), kSteps.end(),
                     [&](const Step& step) { return step.from == from && step.to == to; });
}

}  // namespace

void Scheduler::on(MethodTag<Method::kSchedulerGetMap>, Call& call) {
  Message message;
  v1::GetMapReply* reply = message.meta.mutable_get_map_reply();
  reply->set_version(map_.version());
  if (map_.version() > call.request.meta.get_map().known_version()) *reply->mutable_map() = map_;
  call.turn.answer(call.token, std::move(message));
}

void Scheduler::publish_map(Turn& turn, v1::ShardMap map) {
  map_ = std::move(map);
  turn.put("map", map_);
  v1::Event event;
  *event.mutable_map() = map_;
  turn.tell(std::move(event));
}

// Before Freeze the map follows the ps; after it no bucket moves by itself, only addresses change.
void Scheduler::update_map(Turn& turn) {
  const v1::JobState state = job().state();
  const bool may_place = state == v1::JOB_STATE_CREATED || state == v1::JOB_STATE_RESTORING;
  std::vector<v1::Shard> shards;
  uint32_t ps = 0;
  for (const NodeEntry* entry : nodes_.alive(v1::ROLE_PS)) {
    if (entry->record.generation() != job().generation()) continue;
    ++ps;
    for (uint32_t lane = 0; lane < entry->node().lanes(); ++lane) {
      v1::Shard& shard = shards.emplace_back();
      shard.set_node(entry->id());
      shard.set_lane(lane);
      *shard.mutable_addresses() = entry->node().addresses();
      shard.set_incarnation(entry->node().incarnation());
    }
  }
  v1::ShardMap next = map_;
  if (may_place) {
    if (ps < std::max(1U, options_.ps_expected)) return;
    next = rebalance(map_, std::move(shards));
  } else {
    next.set_version(map_.version() + 1);
    for (v1::Shard& shard : *next.mutable_shards()) {
      for (const v1::Shard& now : shards) {
        if (now.node() == shard.node() && now.lane() == shard.lane()) shard = now;
      }
    }
  }
  v1::ShardMap same = next;
  same.set_version(map_.version());
  if (map_.version() > 0 && same.SerializeAsString() == map_.SerializeAsString()) return;
  if (!next.shards().empty()) publish_map(turn, std::move(next));
}

v1::JobInfo Scheduler::shown_job() const {
  v1::JobInfo info = job();
  info.set_clock(ranks_.lowest());
  return info;
}

void Scheduler::tell_job(Turn& turn) {
  job_dirty_ = true;
  v1::Event event;
  *event.mutable_job() = shown_job();
  turn.tell(std::move(event));
}

void Scheduler::set_job_state(Turn& turn, v1::JobState state, const std::string& reason) {
  if (job().state() == state && job().reason() == reason) return;
  if (state == v1::JOB_STATE_FAILED) cuts_.fail(turn, reason);
  job_.mutable_job()->set_state(state);
  job_.mutable_job()->set_reason(reason);
  tell_job(turn);
}

void Scheduler::keep_staleness(const v1::StalenessEvent& event) {
  auto* kept = job_.mutable_staleness();
  // What holds from a clock on replaces all that was said of it and of later ones.
  while (!kept->empty() &&
         (kept->rbegin()->clock() >= event.clock() ||
          (event.has_withdrawn_clock() && kept->rbegin()->clock() == event.withdrawn_clock()))) {
    kept->RemoveLast();
  }
  *kept->Add() = event;
  kept->rbegin()->clear_withdrawn_clock();
  if (kept->size() > kStalenessKept) kept->erase(kept->begin());
  job_dirty_ = true;
}

void Scheduler::new_generation(Turn& turn, uint64_t start_clock) {
  const Status why = aborted("the job starts generation {}", job().generation() + 1);
  cuts_.fail(turn, std::string(message_of(why)));
  changes_.clear(turn, why);
  barriers_.clear(turn);
  work_.clear(turn);
  ranks_.clear(turn);
  // What was heard of the old generation's clocks and changes is no longer so.
  for (NodeEntry* entry : nodes_.alive(v1::ROLE_UNKNOWN)) {
    entry->pulse = Pulse{.last_seen = turn.now(), .rates = entry->pulse.rates};
    nodes_.set_ranks(turn, *entry, {});
  }
  job_.mutable_job()->set_generation(job().generation() + 1);
  job_.mutable_job()->clear_schema_hash();
  job_.mutable_job()->clear_seats();
  job_.set_start_clock(start_clock);
  v1::StalenessEvent staleness;
  if (job().has_staleness()) staleness.set_staleness(job().staleness());
  keep_staleness(staleness);
}

Status Scheduler::check_set_job(const v1::SetJobOption& option) const {
  if (option.new_generation()) return absl::OkStatus();
  if (option.start_clock() != 0) {
    return invalid_argument("Scheduler.SetJob: start_clock {} is for a new generation only",
                            option.start_clock());
  }
  if (!v1::JobState_IsValid(option.state()) || option.state() == v1::JOB_STATE_SAVING ||
      option.state() == v1::JOB_STATE_RESTORING) {
    return invalid_argument("Scheduler.SetJob: state {} is not set this way",
                            static_cast<int>(option.state()));
  }
  if (option.state() != v1::JOB_STATE_UNKNOWN && !is_allowed(job().state(), option.state())) {
    return failed_precondition("Scheduler.SetJob: {} does not follow {}",
                               v1::JobState_Name(option.state()), v1::JobState_Name(job().state()));
  }
  if (option.state() == v1::JOB_STATE_FROZEN && map_.version() == 0) {
    return failed_precondition("Scheduler.SetJob: no map yet, {} of {} ps have registered",
                               nodes_.alive(v1::ROLE_PS).size(),
                               std::max(1U, options_.ps_expected));
  }
  if (option.map_version() != 0 && option.map_version() != map_.version()) {
    return failed_precondition("Scheduler.SetJob: the shards were frozen by map {}, this is {}",
                               option.map_version(), map_.version());
  }
  const uint64_t hash = option.schema_hash() != 0 ? option.schema_hash() : job().schema_hash();
  const bool needs_hash =
      option.state() == v1::JOB_STATE_FROZEN || option.state() == v1::JOB_STATE_TRAINING;
  if (needs_hash && hash == 0) {
    return failed_precondition("Scheduler.SetJob: {} needs the schema hash of Freeze",
                               v1::JobState_Name(option.state()));
  }
  if (is_frozen() && option.schema_hash() != 0 && option.schema_hash() != job().schema_hash()) {
    return failed_precondition("Scheduler.SetJob: the job is frozen with schema {:x}, not {:x}",
                               job().schema_hash(), option.schema_hash());
  }
  return absl::OkStatus();
}

void Scheduler::on(MethodTag<Method::kSchedulerSetJob>, Call& call) {
  constexpr Method kMethod = Method::kSchedulerSetJob;
  if (!is_fresh(kMethod, call)) return;
  const v1::SetJobOption& option = call.request.meta.set_job();
  Turn& turn = call.turn;
  if (const Status status = check_set_job(option); !status.ok()) {
    const bool is_stale = option.map_version() != 0 && option.map_version() != map_.version();
    return turn.refuse(call.token, status, is_stale ? v1::REASON_STALE_MAP : v1::REASON_NONE);
  }
  if (option.new_generation()) {
    new_generation(turn, option.start_clock());
    set_job_state(turn, v1::JOB_STATE_RESTORING, "");
  }
  if (!option.name().empty()) {
    job_.mutable_job()->set_name(option.name());
    job_.mutable_job()->set_seed(option.seed());
  }
  if (option.schema_hash() != 0) job_.mutable_job()->set_schema_hash(option.schema_hash());
  const bool starts = option.state() == v1::JOB_STATE_TRAINING && !is_training();
  if (option.state() != v1::JOB_STATE_UNKNOWN && !option.new_generation()) {
    set_job_state(turn, option.state(), option.reason());
  }
  uint64_t change = 0;
  if (option.has_staleness()) {
    job_.mutable_job()->clear_staleness();
    if (option.staleness().has_staleness()) {
      job_.mutable_job()->set_staleness(option.staleness().staleness());
    }
    if (is_training() && !starts) {
      change = begin_change(turn, ledger::CHANGE_STALENESS, nullptr, {});
    } else {
      v1::Event event;
      *event.mutable_staleness() = option.staleness();
      event.mutable_staleness()->set_clock(0);
      event.mutable_staleness()->clear_withdrawn_clock();
      keep_staleness(event.staleness());
      turn.tell(std::move(event));
    }
  }
  tell_job(turn);
  if (starts) change = begin_change(turn, ledger::CHANGE_START, nullptr, {});
  Message reply;
  *reply.meta.mutable_set_job_reply()->mutable_job() = shown_job();
  if (change == 0) return answer_numbered(kMethod, call, std::move(reply));
  sessions_.remember(turn, kMethod, call.request, reply, change);
  changes_.wait(change, call.token, answer_by(call.deadline, turn.now()));
}

void Scheduler::on(MethodTag<Method::kSchedulerGetJob>, Call& call) {
  const v1::GetJobOption& option = call.request.meta.get_job();
  Message message;
  v1::GetJobReply* reply = message.meta.mutable_get_job_reply();
  *reply->mutable_job() = shown_job();
  reply->set_revision(events_.revision());
  if (option.with_nodes()) {
    std::vector<const NodeEntry*> nodes;
    for (const auto& [name, entry] : nodes_.all()) nodes.push_back(&entry);
    std::sort(nodes.begin(), nodes.end(),
              [](const auto* a, const auto* b) { return a->id() < b->id(); });
    for (const NodeEntry* entry : nodes)
      *reply->add_nodes() = nodes_.shown(*entry, call.turn.now());
  }
  if (option.with_work()) work_.show(option.with_progress(), call.turn.now(), reply);
  if (cuts_.is_running()) *reply->mutable_cut() = cuts_.record().cut();
  call.turn.answer(call.token, std::move(message));
}

void Scheduler::on(MethodTag<Method::kSchedulerSave>, Call& call) {
  constexpr Method kMethod = Method::kSchedulerSave;
  const v1::SaveJobOption& option = call.request.meta.save_job();
  Turn& turn = call.turn;
  const bool starts = option.action() == v1::SAVE_ACTION_START;
  if (starts && !is_fresh(kMethod, call)) return;
  Status status;
  if (starts) {
    // What is done is trained no further and can still be saved.
    if (!is_frozen() && job().state() != v1::JOB_STATE_DONE) {
      status =
          failed_precondition("Scheduler.Save: the job is {}", v1::JobState_Name(job().state()));
    } else {
      std::optional<uint64_t> clock;
      if (job().has_staleness() && is_training()) clock = ranks_.highest() + options_.lead_clocks;
      status = cuts_.start(turn, option, job_.next_cut(), clock);
    }
    if (status.ok()) {
      job_.set_next_cut(job_.next_cut() + 1);
      job_.set_before_saving(job().state());
      set_job_state(turn, v1::JOB_STATE_SAVING, "");
      cuts_.review(turn);
    }
  } else if (option.cut_id() != 0 && option.cut_id() != cuts_.id()) {
    status = not_found("Scheduler.Save: no cut {} is known, the newest is {}", option.cut_id(),
                       cuts_.id());
  } else if (option.action() == v1::SAVE_ACTION_CANCEL) {
    cuts_.fail(turn, "cancelled");
  } else if (option.action() == v1::SAVE_ACTION_REPORT) {
    if (call.node == nullptr) {
      status = failed_precondition("Scheduler.Save: only registered nodes report");
    } else {
      status = cuts_.report(turn, *call.node, option);
      cuts_.review(turn);
    }
  } else if (option.action() != v1::SAVE_ACTION_STATUS) {
    status = invalid_argument("Scheduler.Save: no action {}", static_cast<int>(option.action()));
  }
  if (!status.ok()) return turn.refuse(call.token, status);
  Message reply;
  cuts_.show(reply.meta.mutable_save_job_reply());
  if (starts) return answer_numbered(kMethod, call, std::move(reply));
  turn.answer(call.token, std::move(reply));
}

void Scheduler::seat_ranks(Turn& turn, uint64_t clock) {
  if (!job().has_staleness() || job().staleness() > 0) return;
  uint32_t ranks = 0;
  for (const auto& [rank, record] : ranks_.all()) {
    if (!record.has_leave_clock() && record.start_clock() <= clock) ranks = rank + 1;
  }
  const auto& known = job().seats();
  if (ranks <= (known.empty() ? 0 : known.rbegin()->ranks())) return;
  v1::RankSeats* seats = job_.mutable_job()->add_seats();
  seats->set_clock(clock);
  seats->set_ranks(ranks);
  tell_job(turn);
}

// When a cut has ended the job goes back to what it did before.
void Scheduler::review_cut(Turn& turn) {
  cuts_.review(turn);
  if (cuts_.is_running() || job_.before_saving() == v1::JOB_STATE_UNKNOWN) return;
  const v1::JobState before = job_.before_saving();
  job_.set_before_saving(v1::JOB_STATE_UNKNOWN);
  job_dirty_ = true;
  if (cuts_.record().cut().phase() == v1::CUT_PHASE_COMMITTED) {
    job_.mutable_job()->set_newest_cut(cuts_.id());
  } else {
    discard_ = finished_cut();
  }
  if (job().state() == v1::JOB_STATE_SAVING) set_job_state(turn, before, "");
}

FinishedCut Scheduler::finished_cut() const {
  FinishedCut cut{.record = cuts_.record(), .map = map_, .job = shown_job()};
  cut.queues.assign(cut.record.queues().begin(), cut.record.queues().end());
  return cut;
}

}  // namespace starling
