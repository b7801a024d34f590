// What the tests of this room share: a scheduler over a memory ledger in manual time, and nodes
// that talk to it.
//
// Uses: gtest. Threads: one.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/memory_ledger.h"
#include "scheduler/scheduler.h"

namespace starling::scheduler_testing {

// A part of the machine alone: a turn with its own event log.
struct Bench {
  SchedulerOptions options;
  EventLog events{options.limits, 0};
  TimePoint now{seconds(100)};

  Turn turn() { return Turn(now, events); }
};

// The writes of a turn as entries of a ledger, over what was there before.
inline std::vector<LedgerEntry> entries_of(const std::vector<LedgerWrite>& writes,
                                           std::string_view prefix) {
  std::map<std::string, std::string> kept;
  for (const LedgerWrite& write : writes) {
    if (write.value.has_value()) {
      kept[write.key] = *write.value;
    } else {
      kept.erase(write.key);
    }
  }
  std::vector<LedgerEntry> entries;
  for (const auto& [key, value] : kept) {
    if (key.starts_with(prefix)) entries.push_back({key, value, 1});
  }
  return entries;
}

inline StatusCode code_of(const Message& message) { return status_of(message).code(); }

struct TestNode {
  v1::Role role = v1::ROLE_UNKNOWN;
  std::string name;
  uint64_t incarnation = 0;
  uint32_t id = 0;
  uint64_t generation = 0;
  uint64_t session = 0;
  uint64_t number = 0;
};

// The scheduler as a server would run it: commit, sync, then the answers leave.
class World {
 public:
  explicit World(SchedulerOptions options = {}) : options_(std::move(options)) { open(); }

  // Loses what was not synced, and everything in memory.
  void crash() {
    answers_.clear();
    open();
  }
  // Of the n-th commit from now on nothing becomes durable: the process dies before its sync.
  void crash_at_commit(int n) { crash_in_ = n; }
  bool has_crashed() const { return is_down_; }

  void advance(Duration by) {
    // In steps, as the timer of the server would wake it.
    const TimePoint end = now_ + by;
    while (now_ < end) {
      now_ = std::min(end, std::max(scheduler_->wake(now_), now_ + milliseconds(1)));
      take(scheduler_->tick(now_));
    }
  }
  // Time passes and nobody turns the scheduler.
  void sleep(Duration by) { now_ += by; }

  Token send(const TestNode& node, Method method, Message request, Duration timeout = seconds(10)) {
    v1::Header* header = request.meta.mutable_header();
    header->set_role(node.role);
    header->set_role_id(node.id);
    header->set_incarnation(node.incarnation);
    header->set_generation(node.generation);
    header->set_session(node.session);
    header->set_number(node.number);
    const Token token{++tokens_};
    if (is_down_) return token;
    take(scheduler_->handle(method, request, token, Deadline(now_ + timeout), now_));
    return token;
  }
  bool answered(Token token) const { return answers_.contains(token); }
  Message answer(Token token) const {
    const auto it = answers_.find(token);
    return it == answers_.end() ? status_reply(internal_error("not answered")) : it->second;
  }
  Message call(const TestNode& node, Method method, Message request) {
    return answer(send(node, method, std::move(request)));
  }
  // With the next number of the node's session.
  Message call_numbered(TestNode& node, Method method, Message request) {
    ++node.number;
    return call(node, method, std::move(request));
  }

  Token start_register(const TestNode& node, uint32_t lanes = 1, uint32_t workers = 1,
                       bool empty = false) {
    Message request;
    v1::RegisterOption* option = request.meta.mutable_register_();
    option->set_name(node.name);
    option->set_lanes(lanes);
    if (node.role == v1::ROLE_TRAINER) option->set_workers(workers);
    option->set_empty(empty);
    v1::Address* address = option->add_addresses();
    address->set_protocol("inproc");
    address->set_host(node.name);
    const Token token = send(node, Method::kSchedulerRegister, request);
    const Message first = answer(token);
    if (first.meta.status().reason() != v1::REASON_NAME_TAKEN) return token;
    // As SchedulerClient does: it takes the place of the one that lives.
    option->set_replaces(first.meta.register_reply().living());
    return send(node, Method::kSchedulerRegister, request);
  }
  // A registered node of a new incarnation.
  TestNode join(v1::Role role, const std::string& name, uint32_t lanes = 1, uint32_t workers = 1) {
    TestNode node{.role = role, .name = name, .incarnation = ++incarnations_};
    node.session = node.incarnation + 1000;
    const Message reply = answer(start_register(node, lanes, workers));
    EXPECT_EQ(code_of(reply), StatusCode::kOk) << reply.meta.status().message();
    node.id = reply.meta.register_reply().id();
    node.generation = reply.meta.register_reply().generation();
    return node;
  }
  Message beat(const TestNode& node, v1::SchedulerHeartbeatOption option = {}) {
    Message request;
    *request.meta.mutable_scheduler_heartbeat() = std::move(option);
    return call(node, Method::kSchedulerHeartbeat, request);
  }
  // A ps that has taken in everything, with these clocks of (rank, clock).
  Message beat_ps(const TestNode& node, std::vector<std::pair<uint32_t, uint64_t>> clocks = {}) {
    v1::SchedulerHeartbeatOption option;
    for (const auto& [rank, clock] : clocks) {
      option.add_clocks()->set_rank(rank);
      option.mutable_clocks()->rbegin()->set_clock(clock);
    }
    option.set_seen_revision(revision());
    return beat(node, option);
  }
  uint64_t revision() { return watch_all().revision(); }
  // The whole state, as a watcher from revision 0 sees it.
  v1::WatchReply watch_all(const std::string& prefix = "") {
    Message request;
    request.meta.mutable_watch()->add_key_prefixes(prefix);
    return call({}, Method::kSchedulerWatch, request).meta.watch_reply();
  }
  v1::WatchReply watch_from(uint64_t revision) {
    Message request;
    request.meta.mutable_watch()->set_revision(revision);
    return call({}, Method::kSchedulerWatch, request).meta.watch_reply();
  }
  Token start_set_job(TestNode& node, v1::SetJobOption option) {
    Message request;
    *request.meta.mutable_set_job() = std::move(option);
    ++node.number;
    return send(node, Method::kSchedulerSetJob, request);
  }
  // Freezes the job; the ps have taken it in.
  void train(TestNode& node, const std::vector<TestNode>& ps) {
    v1::SetJobOption option;
    option.set_state(v1::JOB_STATE_FROZEN);
    option.set_schema_hash(77);
    EXPECT_EQ(code_of(answer(start_set_job(node, option))), StatusCode::kOk);
    option.set_state(v1::JOB_STATE_TRAINING);
    const Token token = start_set_job(node, option);
    for (const TestNode& each : ps) beat_ps(each);
    EXPECT_EQ(code_of(answer(token)), StatusCode::kOk) << answer(token).meta.DebugString();
  }

  Scheduler& scheduler() { return *scheduler_; }
  MemoryJournal& journal() { return journal_; }
  TimePoint now() const { return now_; }
  std::vector<FinishedCut> commits;
  std::vector<FinishedCut> discards;

  void take(Outcome outcome) {
    if (is_down_) return;
    if (!outcome.writes.empty() && crash_in_ > 0 && --crash_in_ == 0) {
      is_down_ = true;
      return;
    }
    EXPECT_TRUE(ledger_->commit(outcome.writes, {}).ok());
    EXPECT_TRUE(ledger_->sync().ok());
    for (Answer& answer : outcome.answers) {
      EXPECT_TRUE(answers_.emplace(answer.token, std::move(answer.message)).second)
          << "answered twice";
    }
    if (outcome.commit.has_value()) commits.push_back(*outcome.commit);
    if (outcome.discard.has_value()) discards.push_back(*outcome.discard);
  }

 private:
  void open() {
    is_down_ = false;
    scheduler_.reset();
    ledger_ = *MemoryLedger::open(journal_);
    StatusOr<std::unique_ptr<Scheduler>> scheduler =
        Scheduler::restore(options_, *ledger_->list(""), now_);
    EXPECT_TRUE(scheduler.ok()) << scheduler.status();
    scheduler_ = *std::move(scheduler);
    take(scheduler_->tick(now_));
  }

  const SchedulerOptions options_;
  MemoryJournal journal_;
  TimePoint now_{seconds(100)};
  std::unique_ptr<MemoryLedger> ledger_;
  std::unique_ptr<Scheduler> scheduler_;
  std::map<Token, Message> answers_;
  uint64_t tokens_ = 0;
  uint64_t incarnations_ = 100;
  int crash_in_ = 0;
  bool is_down_ = false;
};

}  // namespace starling::scheduler_testing
