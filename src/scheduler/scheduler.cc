#include "scheduler/scheduler.h"

#include <algorithm>
#include <array>

#include "base/answer_by.h"

namespace starling {
namespace {

constexpr const char* kJobKey = "job";

// Who may send a method's request.
enum class Caller { kAnybody, kNodeOrTool, kNode };
struct Rule {
  Method method;
  Caller caller;
};
constexpr std::array kRules = {
    Rule{Method::kSchedulerRegister, Caller::kAnybody},
    Rule{Method::kSchedulerHeartbeat, Caller::kNode},
    Rule{Method::kSchedulerBarrier, Caller::kNode},
    Rule{Method::kSchedulerGetMap, Caller::kAnybody},
    Rule{Method::kSchedulerWatch, Caller::kAnybody},
    Rule{Method::kSchedulerAddWork, Caller::kNodeOrTool},
    Rule{Method::kSchedulerTakeWork, Caller::kNode},
    Rule{Method::kSchedulerRenewWork, Caller::kNode},
    Rule{Method::kSchedulerAckWork, Caller::kNode},
    Rule{Method::kSchedulerGiveBackWork, Caller::kNode},
    Rule{Method::kSchedulerSave, Caller::kNodeOrTool},
    Rule{Method::kSchedulerGetJob, Caller::kAnybody},
    Rule{Method::kSchedulerSetJob, Caller::kNodeOrTool},
    Rule{Method::kSchedulerPut, Caller::kNodeOrTool},
    Rule{Method::kSchedulerGet, Caller::kAnybody},
    Rule{Method::kSchedulerLeave, Caller::kNode},
};

constexpr const Rule* rule_of(Method method) {
  return std::find_if(kRules.begin(), kRules.end(),
                      [method](const Rule& rule) { return rule.method == method; });
}
static_assert(std::all_of(kMethodTable.begin(), kMethodTable.end(),
                          [](const MethodInfo& info) {
                            return (info.service == Service::kScheduler) ==
                                   (rule_of(info.method) != kRules.end());
                          }),
              "every method of the scheduler has a rule");

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, uint64_t revision)
    : options_(options),
      events_(options_.limits, revision),
      nodes_(options_),
      ranks_(options_.limits, nodes_),
      changes_(options_, nodes_, ranks_,
               [this](const v1::StalenessEvent& event) { keep_staleness(event); }),
      barriers_(options_, nodes_,
                [this](v1::Role role) {
                  const auto& complete = job_.complete();
                  if (std::find(complete.begin(), complete.end(), role) != complete.end()) {
                    return 0U;
                  }
                  return role == v1::ROLE_PS    ? options_.ps_expected
                         : role == v1::ROLE_HUB ? options_.hubs_expected
                                                : options_.trainers_expected;
                }),
      work_(options_),
      keys_(options_.limits),
      sessions_(options_.limits),
      cuts_(options_, nodes_,
            [this](Turn& turn, ledger::CutRecord& record) {
              v1::GetJobReply queues;
              work_.show(true, turn.now(), &queues);
              *record.mutable_queues() = queues.queues();
              if (record.cut().has_clock()) seat_ranks(turn, record.cut().clock());
            }),
      watchers_(options_.limits, events_,
                [this](const std::vector<std::string>& prefixes, v1::WatchReply* out) {
                  tell_whole(prefixes, out);
                }) {}

StatusOr<std::unique_ptr<Scheduler>> Scheduler::restore(const SchedulerOptions& options,
                                                        const std::vector<LedgerEntry>& entries,
                                                        TimePoint now) {
  STARLING_RETURN_IF_ERROR(validate(options));
  ledger::JobRecord job;
  for (const LedgerEntry& entry : entries) {
    if (entry.key == kJobKey && !job.ParseFromString(entry.value)) {
      return data_loss("ledger: key 'job' is not a job");
    }
  }
  std::unique_ptr<Scheduler> scheduler(new Scheduler(options, job.revision()));
  scheduler->job_ = std::move(job);
  scheduler->last_awake_ = now;
  STARLING_RETURN_IF_ERROR(scheduler->load(entries, now));
  if (scheduler->job_.next_node() == 0) scheduler->start_job();
  return scheduler;
}

Status Scheduler::load(const std::vector<LedgerEntry>& entries, TimePoint now) {
  for (const LedgerEntry& entry : entries) {
    const std::string_view key = entry.key;
    if (key.starts_with("node/")) {
      STARLING_RETURN_IF_ERROR(nodes_.load(entry, now));
    } else if (key.starts_with("rank/")) {
      STARLING_RETURN_IF_ERROR(ranks_.load(entry));
    } else if (key.starts_with("change/")) {
      STARLING_RETURN_IF_ERROR(changes_.load(entry));
    } else if (key.starts_with("barrier/")) {
      STARLING_RETURN_IF_ERROR(barriers_.load(entry));
    } else if (key.starts_with("queue/")) {
      STARLING_RETURN_IF_ERROR(work_.load_queue(entry));
    } else if (key.starts_with("item/")) {
      STARLING_RETURN_IF_ERROR(work_.load_item(entry, now));
    } else if (key.starts_with("key/")) {
      STARLING_RETURN_IF_ERROR(keys_.load(entry));
    } else if (key.starts_with("session/")) {
      STARLING_RETURN_IF_ERROR(sessions_.load(entry));
    } else if (key == "cut") {
      STARLING_RETURN_IF_ERROR(cuts_.load(entry, now));
    } else if (key == "map" && !map_.ParseFromString(entry.value)) {
      return data_loss("ledger: key 'map' is not a map");
    }
  }
  return absl::OkStatus();
}

void Scheduler::start_job() {
  job_.set_next_node(1);
  job_.set_next_cut(options_.first_cut);
  job_.set_next_change(1);
  v1::JobInfo* job = job_.mutable_job();
  job->set_name(options_.job_name);
  job->set_seed(options_.seed);
  job->set_state(v1::JOB_STATE_CREATED);
  job->set_generation(1);
  v1::StalenessEvent staleness;
  if (options_.staleness.has_value()) {
    job->set_staleness(*options_.staleness);
    staleness.set_staleness(*options_.staleness);
  }
  keep_staleness(staleness);
  job_dirty_ = true;
}

bool Scheduler::is_training() const {
  return job().state() == v1::JOB_STATE_TRAINING || job().state() == v1::JOB_STATE_SAVING;
}

bool Scheduler::is_frozen() const { return is_training() || job().state() == v1::JOB_STATE_FROZEN; }

// A scheduler that was stopped (or a machine that slept) has not heard the heartbeats that were
// sent meanwhile; nobody dies of that.
void Scheduler::wake_up(TimePoint now) {
  if (now - last_awake_ > options_.lease / 2) nodes_.touch_all(now);
  last_awake_ = std::max(last_awake_, now);
}

bool Scheduler::admit(Method method, Call& call) {
  const Caller caller = rule_of(method)->caller;
  const v1::Header& header = call.header();
  if (method == Method::kSchedulerRegister) return true;
  // Who started a generation and missed the answer asks again by the one before.
  const bool is_repeat = method == Method::kSchedulerSetJob && sessions_.knows(header);
  if (caller != Caller::kAnybody && header.generation() != job().generation() && !is_repeat) {
    call.turn.refuse(
        call.token,
        failed_precondition("{}: generation {} of the job is asked for, it has {}",
                            info_of(method).name, header.generation(), job().generation()),
        v1::REASON_WRONG_GENERATION);
    return false;
  }
  if (header.incarnation() == 0) {
    const bool is_tool = header.role() == v1::ROLE_UNKNOWN;
    if (caller == Caller::kAnybody || (caller == Caller::kNodeOrTool && is_tool)) {
      return true;
    }
    call.turn.refuse(call.token,
                     failed_precondition("{}: the caller is not registered", info_of(method).name));
    return false;
  }
  const StatusOr<NodeEntry*> node = nodes_.living(header);
  if (node.ok()) {
    call.node = *node;
    call.node->pulse.last_seen = call.turn.now();
    return true;
  }
  if (caller == Caller::kAnybody && method != Method::kSchedulerWatch) return true;
  // A leave whose answer was lost.
  const NodeEntry* known = nodes_.find(header.role_id());
  if (method == Method::kSchedulerLeave && known != nullptr &&
      known->node().state() == v1::NODE_STATE_LEFT &&
      known->node().incarnation() == header.incarnation()) {
    Message reply;
    reply.meta.mutable_leave_reply();
    call.turn.answer(call.token, std::move(reply));
    return false;
  }
  call.turn.refuse(call.token, with_context(node.status(), info_of(method).name),
                   v1::REASON_FENCED);
  return false;
}

Outcome Scheduler::handle(Method method, const Message& request, Token token, Deadline deadline,
                          TimePoint now) {
  wake_up(now);
  Turn turn(now, events_);
  Call call{.request = request, .token = token, .deadline = deadline, .turn = turn};
  if (!serves<Service::kScheduler>(method)) {
    turn.refuse(token, wrong_service(static_cast<uint16_t>(method), Service::kScheduler));
  } else if (admit(method, call)) {
    dispatch<Service::kScheduler>(*this, method, call);
  }
  return finish(turn);
}

Outcome Scheduler::tick(TimePoint now) {
  wake_up(now);
  Turn turn(now, events_);
  for (NodeEntry* entry : nodes_.alive(v1::ROLE_UNKNOWN)) {
    // Its Register call is here, waiting for the ps; it cannot beat yet.
    if (changes_.has_waiters(entry->id())) entry->pulse.last_seen = now;
  }
  for (NodeEntry* entry : nodes_.expired(now)) declare_dead(turn, *entry);
  work_.expire(turn);
  barriers_.expire(turn);
  changes_.expire(turn);
  return finish(turn);
}

Outcome Scheduler::cut_written(uint64_t cut_id, const StatusOr<std::string>& path, TimePoint now) {
  wake_up(now);
  Turn turn(now, events_);
  cuts_.written(turn, cut_id, path);
  return finish(turn);
}

Outcome Scheduler::finish(Turn& turn) {
  settle(turn);
  review_leaves(turn);
  barriers_.review(turn);
  review_cut(turn);
  watchers_.serve(turn);
  Outcome outcome;
  if (job_dirty_ || events_.revision() != job_.revision()) {
    job_.set_revision(events_.revision());
    turn.put(kJobKey, job_);
    job_dirty_ = false;
  }
  outcome.writes = std::move(turn.writes);
  outcome.answers = std::move(turn.answers);
  if (cuts_.take_commit()) outcome.commit = finished_cut();
  outcome.discard = std::exchange(discard_, std::nullopt);
  return outcome;
}

void Scheduler::drop(Token token) {
  watchers_.drop(token);
  barriers_.drop(token);
  changes_.drop(token);
}

TimePoint Scheduler::wake(TimePoint now) const {
  TimePoint first = now + options_.lease / 4;
  for (const TimePoint at : {nodes_.next(), work_.next(), barriers_.next(), changes_.next(),
                             cuts_.next(), watchers_.next()}) {
    first = std::min(first, at);
  }
  return std::max(first, now);
}

void Scheduler::tell_whole(const std::vector<std::string>& prefixes, v1::WatchReply* out) const {
  *out->add_events()->mutable_job() = shown_job();
  for (const auto& [name, entry] : nodes_.all()) *out->add_events()->mutable_node() = entry.node();
  if (map_.version() > 0) *out->add_events()->mutable_map() = map_;
  ranks_.tell_all(out);
  for (const v1::StalenessEvent& event : job_.staleness()) {
    v1::StalenessEvent* told = out->add_events()->mutable_staleness();
    *told = event;
    told->set_settled(!changes_.is_announcing(event.clock()));
  }
  if (cuts_.is_running()) *out->add_events()->mutable_cut() = cuts_.record().cut();
  keys_.tell_all(prefixes, out);
}

bool Scheduler::is_fresh(Method method, Call& call) {
  StatusOr<Sessions::Verdict> verdict = sessions_.look(call.turn, method, call.request);
  if (!verdict.ok()) {
    const bool is_full = verdict.status().code() == StatusCode::kResourceExhausted;
    const bool is_numbered = call.header().session() != 0 && call.header().number() != 0;
    call.turn.refuse(call.token, verdict.status(),
                     is_full       ? v1::REASON_WINDOW_FULL
                     : is_numbered ? v1::REASON_NUMBER_REUSED
                                   : v1::REASON_NONE);
    return false;
  }
  if (verdict->is_fresh) return true;
  if (changes_.has(verdict->change)) {
    changes_.wait(verdict->change, call.token, answer_by(call.deadline, call.turn.now()));
  } else {
    call.turn.answer(call.token, std::move(*verdict->reply));
  }
  return false;
}

void Scheduler::answer_numbered(Method method, Call& call, Message reply) {
  sessions_.remember(call.turn, method, call.request, reply);
  call.turn.answer(call.token, std::move(reply));
}

void Scheduler::on(MethodTag<Method::kSchedulerBarrier>, Call& call) {
  barriers_.arrive(call.turn, call.token, *call.node, call.request, call.deadline);
}

void Scheduler::on(MethodTag<Method::kSchedulerWatch>, Call& call) {
  watchers_.add(call.turn, call.token, call.node == nullptr ? 0 : call.node->id(),
                call.request.meta.watch(), call.deadline);
}

void Scheduler::on(MethodTag<Method::kSchedulerAddWork>, Call& call) {
  call.turn.answer(call.token, work_.add(call.turn, call.request.meta.add_work()));
}

void Scheduler::on(MethodTag<Method::kSchedulerTakeWork>, Call& call) {
  if (!is_fresh(Method::kSchedulerTakeWork, call)) return;
  // An answer without leases is kept as well: a late copy of the request would take an item that
  // nobody knows of.
  answer_numbered(Method::kSchedulerTakeWork, call,
                  work_.take(call.turn, call.request.meta.take_work(), call.node->id()));
}

void Scheduler::on(MethodTag<Method::kSchedulerRenewWork>, Call& call) {
  call.turn.answer(call.token,
                   work_.renew(call.turn, call.request.meta.renew_work(), call.node->id()));
}

void Scheduler::on(MethodTag<Method::kSchedulerAckWork>, Call& call) {
  call.turn.answer(call.token, work_.ack(call.turn, call.request.meta.ack_work(), call.node->id()));
}

void Scheduler::on(MethodTag<Method::kSchedulerGiveBackWork>, Call& call) {
  call.turn.answer(call.token,
                   work_.give_back(call.turn, call.request.meta.give_back_work(), call.node->id()));
}

void Scheduler::on(MethodTag<Method::kSchedulerPut>, Call& call) {
  if (!is_fresh(Method::kSchedulerPut, call)) return;
  Message reply =
      keys_.put(call.turn, call.request.meta.put(), call.node == nullptr ? 0 : call.node->id());
  answer_numbered(Method::kSchedulerPut, call, std::move(reply));
}

void Scheduler::on(MethodTag<Method::kSchedulerGet>, Call& call) {
  call.turn.answer(call.token, keys_.get(call.request.meta.get(), call.turn.revision()));
}

}  // namespace starling
