// The part of the machine that is about who comes and goes.
#include <algorithm>

#include "base/answer_by.h"
#include "scheduler/scheduler.h"

namespace starling {

uint64_t Scheduler::begin_change(Turn& turn, ledger::ChangeKind kind, const NodeEntry* node,
                                 const std::vector<uint32_t>& ranks) {
  ledger::ChangeRecord change;
  change.set_id(job_.next_change());
  job_.set_next_change(job_.next_change() + 1);
  job_dirty_ = true;
  change.set_kind(kind);
  change.set_node(node == nullptr ? 0 : node->id());
  change.mutable_ranks()->Assign(ranks.begin(), ranks.end());
  if (job().has_staleness()) change.set_staleness(job().staleness());
  const uint64_t id = change.id();
  changes_.begin(turn, std::move(change));
  return id;
}

// The role has been there in full once; from then on nodes may come and go.
void Scheduler::count_role(v1::Role role) {
  const uint32_t wanted = role == v1::ROLE_PS        ? options_.ps_expected
                          : role == v1::ROLE_HUB     ? options_.hubs_expected
                          : role == v1::ROLE_TRAINER ? options_.trainers_expected
                                                     : 0;
  const auto& complete = job_.complete();
  if (std::find(complete.begin(), complete.end(), role) != complete.end()) return;
  if (nodes_.alive(role).size() < wanted) return;
  job_.add_complete(role);
  job_dirty_ = true;
}

// What a process held that is not any more.
void Scheduler::release(Turn& turn, const NodeEntry& entry) {
  work_.drop_node(turn, entry.id());
  keys_.drop_node(turn, entry.id());
  sessions_.drop_node(turn, entry.id());
  cuts_.node_gone(turn, entry);
}

Message Scheduler::register_reply(const NodeEntry& entry) const {
  Message message;
  v1::RegisterReply* reply = message.meta.mutable_register_reply();
  reply->set_id(entry.id());
  reply->set_generation(job().generation());
  reply->set_lease_ms(static_cast<uint32_t>(options_.lease / milliseconds(1)));
  reply->set_heartbeat_ms(static_cast<uint32_t>(options_.heartbeat / milliseconds(1)));
  uint64_t start = UINT64_MAX;
  for (const uint32_t rank : ranks_.staying(entry.id())) {
    reply->add_ranks(rank);
    start = std::min(start, ranks_.all().at(rank).start_clock());
  }
  if (start != UINT64_MAX) reply->set_start_clock(start);
  reply->set_revision(events_.revision());
  *reply->mutable_job() = shown_job();
  if (map_.version() > 0) *reply->mutable_map() = map_;
  return message;
}

void Scheduler::on(MethodTag<Method::kSchedulerRegister>, Call& call) {
  const v1::RegisterOption& option = call.request.meta.register_();
  const v1::Header& header = call.header();
  Turn& turn = call.turn;
  if (header.generation() != 0 && header.generation() != job().generation()) {
    return turn.refuse(call.token,
                       failed_precondition("Scheduler.Register of {}: generation {} of the job is "
                                           "asked for, it has {}",
                                           option.name(), header.generation(), job().generation()),
                       v1::REASON_WRONG_GENERATION);
  }
  if (changes_.is_full()) {
    return turn.refuse(call.token, unavailable("Scheduler.Register of {}: too many changes are "
                                               "under way (changes_max)",
                                               option.name()));
  }
  const uint32_t workers =
      header.role() == v1::ROLE_TRAINER ? std::max(1U, option.workers()) : option.workers();
  if (NodeEntry* known = nodes_.find(option.name());
      known != nullptr && known->is_alive() && !ranks_.staying(known->id()).empty() &&
      ranks_.staying(known->id()).size() != workers) {
    return turn.refuse(
        call.token, invalid_argument("Scheduler.Register of {}: {} workers, its ranks are {}",
                                     option.name(), workers, ranks_.staying(known->id()).size()));
  }
  StatusOr<Nodes::Arrival> arrival =
      nodes_.admit(turn, header, option, job_.next_node(), job().generation());
  if (!arrival.ok()) return refuse_register(call, arrival.status());
  NodeEntry& entry = *arrival->entry;
  if (entry.id() == job_.next_node()) {
    job_.set_next_node(job_.next_node() + 1);
    job_dirty_ = true;
  }
  if (arrival->has_replaced) {
    barriers_.fail_for(turn, entry.node().name(), true);
    release(turn, entry);
  }
  if (!arrival->is_repeat) {
    nodes_.tell(turn, entry);
    count_role(header.role());
  }
  if (header.role() == v1::ROLE_PS && !arrival->is_repeat) {
    update_map(turn);
    if (is_frozen() && option.empty()) {
      set_job_state(
          turn, v1::JOB_STATE_FAILED,
          fmt::format("{} came back without its rows; all ps must restore", entry.node().name()));
    }
  }
  if (header.role() == v1::ROLE_TRAINER) return register_trainer(call, *arrival, workers);
  turn.answer(call.token, register_reply(entry));
}

void Scheduler::refuse_register(Call& call, const Status& status) {
  Message message = status_reply(status);
  if (status.code() == StatusCode::kFailedPrecondition) {
    message.meta.mutable_status()->set_reason(v1::REASON_FENCED);
  } else if (status.code() == StatusCode::kAborted) {
    message.meta.mutable_status()->set_reason(v1::REASON_NAME_TAKEN);
    const NodeEntry* living = nodes_.find(call.request.meta.register_().name());
    message.meta.mutable_register_reply()->set_living(living->node().incarnation());
  }
  call.turn.answer(call.token, std::move(message));
}

void Scheduler::register_trainer(Call& call, const Nodes::Arrival& arrival, uint32_t workers) {
  NodeEntry& entry = *arrival.entry;
  const TimePoint until = answer_by(call.deadline, call.turn.now());
  if (arrival.is_repeat) {
    for (const ledger::ChangeKind kind : {ledger::CHANGE_JOIN, ledger::CHANGE_RETURN}) {
      if (const uint64_t open = changes_.find(kind, entry.id()); open != 0) {
        return changes_.wait(open, call.token, until);
      }
    }
    return call.turn.answer(call.token, register_reply(entry));
  }
  drop_leaving(call.turn, entry);
  const std::vector<uint32_t> ranks = ranks_.staying(entry.id());
  if (ranks.size() != workers) {
    // The ranks of a death that is not collected yet are left to it; new ones join.
    return join_ranks(call, entry, workers);
  }
  for (const ledger::ChangeKind kind :
       {ledger::CHANGE_DEATH, ledger::CHANGE_RETURN, ledger::CHANGE_JOIN, ledger::CHANGE_LEAVE}) {
    const Status why = aborted("{} was replaced by a new process", entry.node().name());
    changes_.cancel(call.turn, changes_.find(kind, entry.id()), why);
  }
  nodes_.set_ranks(call.turn, entry, ranks);
  if (!is_training()) return call.turn.answer(call.token, register_reply(entry));
  const uint64_t change = begin_change(call.turn, ledger::CHANGE_RETURN, &entry, ranks);
  changes_.wait(change, call.token, until);
}

// A leave that the former process announced cannot be taken back, and nobody ticks for it any more:
// its ranks go as if the process had died.
void Scheduler::drop_leaving(Turn& turn, NodeEntry& entry) {
  std::vector<uint32_t> leaving = ranks_.of_node(entry.id());
  std::erase_if(leaving,
                [this](uint32_t rank) { return !ranks_.all().at(rank).has_leave_clock(); });
  if (leaving.empty() || changes_.find(ledger::CHANGE_DEATH, entry.id()) != 0) return;
  const Status why = aborted("{} was replaced by a new process", entry.node().name());
  changes_.cancel(turn, changes_.find(ledger::CHANGE_LEAVE, entry.id()), why);
  if (!is_training()) return leave_now(turn, entry, leaving);
  begin_change(turn, ledger::CHANGE_DEATH, &entry, leaving);
}

void Scheduler::join_ranks(Call& call, NodeEntry& entry, uint32_t workers) {
  Turn& turn = call.turn;
  StatusOr<std::vector<uint32_t>> ranks =
      ranks_.assign(turn, entry.id(), workers, job_.start_clock());
  if (!ranks.ok()) {
    nodes_.set_state(turn, entry, v1::NODE_STATE_LEFT);
    nodes_.tell(turn, entry);
    return turn.refuse(call.token, ranks.status());
  }
  nodes_.set_ranks(turn, entry, *ranks);
  if (is_training()) {
    const uint64_t change = begin_change(turn, ledger::CHANGE_JOIN, &entry, *ranks);
    return changes_.wait(change, call.token, answer_by(call.deadline, turn.now()));
  }
  for (const uint32_t rank : *ranks) Ranks::tell_join(turn, ranks_.all().at(rank));
  turn.answer(call.token, register_reply(entry));
}

void Scheduler::on(MethodTag<Method::kSchedulerHeartbeat>, Call& call) {
  nodes_.beat(*call.node, call.request.meta.scheduler_heartbeat(), call.turn.now());
  if (call.node->node().role() == v1::ROLE_PS) changes_.heard(call.turn, *call.node);
  Message message;
  v1::SchedulerHeartbeatReply* reply = message.meta.mutable_scheduler_heartbeat_reply();
  reply->set_lease_ms(static_cast<uint32_t>(options_.lease / milliseconds(1)));
  reply->set_revision(events_.revision());
  reply->set_map_version(map_.version());
  call.turn.answer(call.token, std::move(message));
}

void Scheduler::declare_dead(Turn& turn, NodeEntry& entry) {
  nodes_.set_state(turn, entry, v1::NODE_STATE_DEAD);
  nodes_.tell(turn, entry);
  barriers_.fail_for(turn, entry.node().name(), false);
  release(turn, entry);
  if (entry.node().role() == v1::ROLE_PS && is_frozen()) {
    set_job_state(turn, v1::JOB_STATE_FAILED,
                  fmt::format("{} died: silent for {} ms", entry.node().name(),
                              options_.lease / milliseconds(1)));
  }
  drop_ranks(turn, entry);
}

void Scheduler::drop_ranks(Turn& turn, NodeEntry& entry) {
  const std::vector<uint32_t> ranks = ranks_.of_node(entry.id());
  if (ranks.empty()) return;
  const Status why = aborted("{} died", entry.node().name());
  for (const ledger::ChangeKind kind :
       {ledger::CHANGE_JOIN, ledger::CHANGE_RETURN, ledger::CHANGE_LEAVE}) {
    changes_.cancel(turn, changes_.find(kind, entry.id()), why);
  }
  if (is_training()) {
    begin_change(turn, ledger::CHANGE_DEATH, &entry, ranks);
  } else {
    leave_now(turn, entry, ranks);
  }
}

// Without training there is no clock to wait for.
void Scheduler::leave_now(Turn& turn, NodeEntry& entry, const std::vector<uint32_t>& ranks) {
  for (const uint32_t rank : ranks) {
    v1::RankEvent leave;
    leave.set_rank(rank);
    leave.set_node(entry.id());
    leave.set_clock(ranks_.clocks(rank).highest);
    Ranks::tell_leave(turn, leave);
    ranks_.erase(turn, rank);
  }
  nodes_.set_ranks(turn, entry, ranks_.of_node(entry.id()));
}

void Scheduler::on(MethodTag<Method::kSchedulerLeave>, Call& call) {
  const v1::LeaveOption& option = call.request.meta.leave();
  Turn& turn = call.turn;
  NodeEntry& entry = *call.node;
  const std::vector<uint32_t> owned = ranks_.of_node(entry.id());
  std::vector<uint32_t> ranks(option.ranks().begin(), option.ranks().end());
  const size_t staying = ranks_.staying(entry.id()).size();
  if (ranks.empty()) ranks = staying > 0 ? ranks_.staying(entry.id()) : owned;
  for (const uint32_t rank : ranks) {
    if (std::find(owned.begin(), owned.end(), rank) == owned.end()) {
      return turn.refuse(call.token, invalid_argument("Scheduler.Leave: rank {} is not {}'s", rank,
                                                      entry.node().name()));
    }
  }
  if (entry.node().role() == v1::ROLE_PS && is_frozen()) {
    return turn.refuse(call.token, failed_precondition("Scheduler.Leave: {} owns buckets of a "
                                                       "frozen job",
                                                       entry.node().name()));
  }
  const TimePoint until = answer_by(call.deadline, turn.now());
  if (const uint64_t open = changes_.find(ledger::CHANGE_LEAVE, entry.id()); open != 0) {
    return changes_.wait(open, call.token, until);
  }
  Message reply;
  reply.meta.mutable_leave_reply();
  uint64_t announced = 0;
  for (const uint32_t rank : ranks)
    announced = std::max(announced, ranks_.all().at(rank).leave_clock());
  if (announced > 0) {
    reply.meta.mutable_leave_reply()->set_clock(announced);
    return turn.answer(call.token, std::move(reply));
  }
  const bool is_all = ranks.size() == staying;
  if (is_training() && !ranks.empty()) {
    if (is_all) {
      nodes_.set_state(turn, entry, v1::NODE_STATE_LEAVING);
      nodes_.tell(turn, entry);
    }
    return changes_.wait(begin_change(turn, ledger::CHANGE_LEAVE, &entry, ranks), call.token,
                         until);
  }
  leave_now(turn, entry, ranks);
  if (is_all) {
    nodes_.set_state(turn, entry, v1::NODE_STATE_LEFT);
    nodes_.tell(turn, entry);
    release(turn, entry);
    update_map(turn);
  }
  turn.answer(call.token, std::move(reply));
}

// A rank that leaves in order has left when every shard has its clock.
void Scheduler::review_leaves(Turn& turn) {
  std::vector<uint32_t> left;
  for (const auto& [rank, record] : ranks_.all()) {
    if (!record.has_leave_clock()) continue;
    if (changes_.find(ledger::CHANGE_LEAVE, record.node()) != 0) continue;
    const NodeEntry* node = nodes_.find(record.node());
    const bool has_ps = !nodes_.alive(v1::ROLE_PS).empty();
    const bool has_left = has_ps || node == nullptr ? ranks_.have_all(rank, record.leave_clock())
                                                    : node->pulse.clock >= record.leave_clock();
    if (has_left) left.push_back(rank);
  }
  for (const uint32_t rank : left) {
    NodeEntry* node = nodes_.find(ranks_.all().at(rank).node());
    ranks_.erase(turn, rank);
    if (node == nullptr) continue;
    nodes_.set_ranks(turn, *node, ranks_.of_node(node->id()));
    if (!node->node().ranks().empty() || node->node().state() != v1::NODE_STATE_LEAVING) continue;
    nodes_.set_state(turn, *node, v1::NODE_STATE_LEFT);
    nodes_.tell(turn, *node);
    release(turn, *node);
  }
}

// All shards have the final clocks: those above the lowest got the half-pushed batch.
void Scheduler::settle_death(Turn& turn, const ledger::ChangeRecord& change) {
  NodeEntry* node = nodes_.find(change.node());
  for (const uint32_t rank : change.ranks()) {
    if (!ranks_.all().contains(rank)) continue;
    const Pulse::Span span = ranks_.clocks(rank);
    v1::RankEvent leave;
    leave.set_rank(rank);
    leave.set_node(change.node());
    leave.set_clock(span.highest);
    for (const NodeEntry* ps : nodes_.alive(v1::ROLE_PS)) {
      const auto it = ps->pulse.batches.find(rank);
      if (span.lowest < span.highest && it != ps->pulse.batches.end() &&
          it->second.clock() == span.highest) {
        *leave.mutable_half_pushed() = it->second.batch();
      }
    }
    Ranks::tell_leave(turn, leave);
    // Without a bound nobody waits for the step, and the batch comes back when its lease ends.
    if (span.lowest < span.highest && job().has_staleness()) {
      ranks_.set_half_left(turn, leave);
    } else {
      ranks_.erase(turn, rank);
    }
  }
  if (node != nullptr) nodes_.set_ranks(turn, *node, ranks_.of_node(node->id()));
}

void Scheduler::settle(Turn& turn) {
  for (const Changes::Settled& settled : changes_.settle(turn)) {
    const ledger::ChangeRecord& change = settled.change;
    const NodeEntry* node = nodes_.find(change.node());
    Message reply;
    switch (change.kind()) {
      case ledger::CHANGE_DEATH:
        settle_death(turn, change);
        break;
      case ledger::CHANGE_RETURN:
        for (const uint32_t rank : change.ranks()) {
          ranks_.set_start(turn, rank, ranks_.clocks(rank).lowest);
        }
        [[fallthrough]];
      case ledger::CHANGE_JOIN:
        if (node != nullptr) reply = register_reply(*node);
        break;
      case ledger::CHANGE_LEAVE:
        reply.meta.mutable_leave_reply()->set_clock(change.clock());
        break;
      default:
        *reply.meta.mutable_set_job_reply()->mutable_job() = shown_job();
        reply.meta.mutable_set_job_reply()->set_clock(change.clock());
        sessions_.finish(turn, change.id(), reply);
    }
    for (const Token token : settled.tokens) turn.answer(token, reply);
  }
}

}  // namespace starling
