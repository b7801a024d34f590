// Scheduler is the state machine of the role: told "this message came, it is now t" or "it is now
// t", it answers with ledger writes, replies and the next time it wants to be woken.
//
// It starts no thread, reads no clock and does no I/O. Whoever runs it makes the writes durable
// before the answers leave (PROTOCOL 7). Uses: base, wire, net (deadlines only), the records.
// Threads: one caller at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/barriers.h"
#include "scheduler/changes.h"
#include "scheduler/cut_writer.h"
#include "scheduler/cuts.h"
#include "scheduler/key_space.h"
#include "scheduler/nodes.h"
#include "scheduler/options.h"
#include "scheduler/ranks.h"
#include "scheduler/sessions.h"
#include "scheduler/watchers.h"
#include "scheduler/work.h"
#include "wire/dispatch.h"

namespace starling {

// What an input led to. In this order: commit the writes, sync, send the answers.
struct Outcome {
  std::vector<LedgerWrite> writes;
  std::vector<Answer> answers;
  std::optional<FinishedCut> commit;   // write its manifest, then call cut_written()
  std::optional<FinishedCut> discard;  // this cut failed
};

class Scheduler {
 public:
  // From all entries of the ledger; none: a new job as the options say. Everybody who was alive
  // gets a full lease from `now`. DataLoss: an entry is not what it should be.
  static StatusOr<std::unique_ptr<Scheduler>> restore(const SchedulerOptions& options,
                                                      const std::vector<LedgerEntry>& entries,
                                                      TimePoint now);

  // A request of the Scheduler service came. It is answered in this outcome or in a later one.
  Outcome handle(Method method, const Message& request, Token token, Deadline deadline,
                 TimePoint now);
  Outcome tick(TimePoint now);
  Outcome cut_written(uint64_t cut_id, const StatusOr<std::string>& path, TimePoint now);
  // The caller of a waiting request has gone; it will not be answered.
  void drop(Token token);
  // When tick() is wanted at the latest.
  TimePoint wake(TimePoint now) const;

  const v1::JobInfo& job() const { return job_.job(); }
  const v1::ShardMap& map() const { return map_; }

  // One request on its way through the machine.
  struct Call {
    const Message& request;
    Token token{};
    Deadline deadline;
    Turn& turn;
    NodeEntry* node = nullptr;  // null: the caller is not registered
    const v1::Header& header() const { return request.meta.header(); }
  };
  // One per RPC, found by dispatch(); called by handle() only.
  void on(MethodTag<Method::kSchedulerRegister>, Call& call);
  void on(MethodTag<Method::kSchedulerHeartbeat>, Call& call);
  void on(MethodTag<Method::kSchedulerBarrier>, Call& call);
  void on(MethodTag<Method::kSchedulerGetMap>, Call& call);
  void on(MethodTag<Method::kSchedulerWatch>, Call& call);
  void on(MethodTag<Method::kSchedulerAddWork>, Call& call);
  void on(MethodTag<Method::kSchedulerTakeWork>, Call& call);
  void on(MethodTag<Method::kSchedulerRenewWork>, Call& call);
  void on(MethodTag<Method::kSchedulerAckWork>, Call& call);
  void on(MethodTag<Method::kSchedulerGiveBackWork>, Call& call);
  void on(MethodTag<Method::kSchedulerSave>, Call& call);
  void on(MethodTag<Method::kSchedulerGetJob>, Call& call);
  void on(MethodTag<Method::kSchedulerSetJob>, Call& call);
  void on(MethodTag<Method::kSchedulerPut>, Call& call);
  void on(MethodTag<Method::kSchedulerGet>, Call& call);
  void on(MethodTag<Method::kSchedulerLeave>, Call& call);

 private:
  Scheduler(const SchedulerOptions& options, uint64_t revision);
  Status load(const std::vector<LedgerEntry>& entries, TimePoint now);
  void start_job();
  Outcome finish(Turn& turn);
  void wake_up(TimePoint now);
  bool admit(Method method, Call& call);
  bool is_training() const;
  bool is_frozen() const;
  void tell_whole(const std::vector<std::string>& prefixes, v1::WatchReply* out) const;

  // Numbered requests: true when it is to be carried out now; else it has been answered.
  bool is_fresh(Method method, Call& call);
  void answer_numbered(Method method, Call& call, Message reply);

  // scheduler_nodes.cc
  void register_trainer(Call& call, const Nodes::Arrival& arrival, uint32_t workers);
  void refuse_register(Call& call, const Status& status);
  void drop_leaving(Turn& turn, NodeEntry& entry);
  void join_ranks(Call& call, NodeEntry& entry, uint32_t workers);
  Message register_reply(const NodeEntry& entry) const;
  void count_role(v1::Role role);
  void release(Turn& turn, const NodeEntry& entry);
  void declare_dead(Turn& turn, NodeEntry& entry);
  void drop_ranks(Turn& turn, NodeEntry& entry);
  void review_leaves(Turn& turn);
  void leave_now(Turn& turn, NodeEntry& entry, const std::vector<uint32_t>& ranks);
  void settle(Turn& turn);
  void settle_death(Turn& turn, const ledger::ChangeRecord& change);
  uint64_t begin_change(Turn& turn, ledger::ChangeKind kind, const NodeEntry* node,
                        const std::vector<uint32_t>& ranks);

  // scheduler_job.cc
  void update_map(Turn& turn);
  void publish_map(Turn& turn, v1::ShardMap map);
  void set_job_state(Turn& turn, v1::JobState state, const std::string& reason);
  Status check_set_job(const v1::SetJobOption& option) const;
  void new_generation(Turn& turn, uint64_t start_clock);
  void tell_job(Turn& turn);
  // Keeps it for those who ask for the whole state.
  void keep_staleness(const v1::StalenessEvent& event);
  // Ranks that have joined by the clock of a synchronous cut have their share of batches from it
  // on.
  void seat_ranks(Turn& turn, uint64_t clock);
  void review_cut(Turn& turn);
  FinishedCut finished_cut() const;
  v1::JobInfo shown_job() const;

  const SchedulerOptions options_;
  ledger::JobRecord job_;
  v1::ShardMap map_;
  EventLog events_;
  Nodes nodes_;
  Ranks ranks_;
  Changes changes_;
  Barriers barriers_;
  WorkQueues work_;
  KeySpace keys_;
  Sessions sessions_;
  Cuts cuts_;
  Watchers watchers_;
  TimePoint last_awake_;
  bool job_dirty_ = false;
  std::optional<FinishedCut> discard_;
};

}  // namespace starling
