// Shard is one slice of every table and variable as a state machine: it is told "this request came,
// it is now t" or "it is now t" and answers with replies and the next time it wants to be woken.
// Only numbered operations change its state.
//
// Uses: base, wire, table. Threads: shard-local. It starts no thread, reads no clock, does no I/O.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "ps/applied.h"
#include "ps/clocks.h"
#include "ps/dense.h"
#include "ps/hot_keys.h"
#include "ps/prepared.h"
#include "ps/route.h"
#include "ps/schema.h"
#include "table/table.h"
#include "wire/dispatch.h"
#include "wire/message.h"
#include "wire/method.h"

namespace starling {

namespace ckpt {
class ShardState;
}
struct RestoredShard;  // cut_restore.h

struct ShardOptions {
  NodeId node{0};
  LaneId lane{0};
  Incarnation incarnation{0};
  uint64_t generation = 1;       // of the job
  uint32_t prepared_max = 1024;  // batches of all hubs together
  size_t prepared_bytes_max = size_t{1} << 30;
  size_t staging_bytes_max = size_t{1} << 30;  // staged pushes and waiting lookups
  uint32_t waiting_max = 4096;                 // lookups
  size_t memory_bytes_max = 0;                 // of this shard's tables; 0: no limit
  BufferPool* pool = nullptr;                  // for large replies; none: the allocator
};

// What a shard counts of its requests.
struct ShardCounts {
  uint64_t feeds = 0;
  uint64_t repeats = 0;        // pushes answered without applying them
  uint64_t staleness_max = 0;  // the largest seen in a lookup
};

// The same of one table.
struct PartCounts {
  uint64_t lookups = 0;    // keys
  uint64_t misses = 0;     // of them without a row
  uint64_t pushes = 0;     // keys
  uint64_t last_step = 0;  // of schedules; never goes back
  HotKeys hot;
};

class Shard;

// One request on its way through a shard.
struct ShardCall {
  Message request;
  Token token;
  Deadline deadline;
  TimePoint now;
};

// What a shard cannot do without threads or files; whoever runs it answers these.
class ShardHost {
 public:
  virtual ~ShardHost() = default;
  virtual void save(Shard& shard, ShardCall& call) = 0;
  virtual void restore(Shard& shard, ShardCall& call) = 0;
  virtual void stop(Shard& shard, ShardCall& call) = 0;
  virtual void profile(Shard& shard, ShardCall& call) = 0;
  // Requests of this shard that are not answered yet, for Heartbeat.
  virtual uint32_t open_requests() const { return 0; }
  // Latencies and bytes per RPC, for Stat.
  virtual void describe_rpcs(v1::StatReply& reply) = 0;
};

class Shard {
 public:
  // The host outlives the shard.
  Shard(ShardOptions options, ShardHost& host);
  ~Shard();

  struct Output {
    Token token;
    Message reply;
  };

  // Every request gets one output, now or later. Requests of other services are the caller's
  // mistake.
  void handle(Method method, Message request, Token token, Deadline deadline, TimePoint now);
  // Gives up what has waited for too long.
  void tick(TimePoint now);
  // When tick() wants to be called; TimePoint::max() for never.
  TimePoint next_wake() const;
  std::vector<Output> take_outputs();

  // What the scheduler tells: maps, ranks, staleness, deaths, the job's generation.
  void on_event(const v1::Event& event);

  bool frozen() const { return frozen_; }
  uint64_t generation() const { return options_.generation; }
  uint64_t step() const { return step_; }
  size_t memory_bytes() const;
  // Makes memory present that the next new rows will need, at most one huge page of it. No state
  // changes. False: enough is. For a lane that has nothing else to do.
  bool prepare();
  const ShardCounts& counts() const { return counts_; }
  const RankClocks& clocks() const { return clocks_; }
  // The newest batch that each rank has finished here, with its clock after it.
  const std::map<Rank, v1::RankBatch>& rank_batches() const { return rank_batches_; }

  // For checkpoints and tests.
  const ShardSchema& schema() const { return schema_; }
  Table* table(const std::string& name);
  DenseVariable* variable(const std::string& name);
  const ShardRoutes& routes() const { return routes_; }
  bool owns_bucket(uint32_t bucket) const {
    return !routes_.empty() && routes_.owner_of_bucket(bucket) == index_;
  }
  const ShardOptions& options() const { return options_; }
  // What a cut keeps beside rows and variables. cut_state.cc
  void save_state(ckpt::ShardState& out) const;
  // Takes over what was read from a cut; the job is of `generation` from now on. Requests that wait
  // are refused with Aborted. Clocks are not the cut's but what the scheduler tells: its ranks may
  // be others now, and start where SetJob.start_clock says.
  void adopt(RestoredShard restored, uint64_t generation);

  using Call = ShardCall;
  // For the host's answers.
  void answer(Token token, Message reply) { outputs_.push_back({token, std::move(reply)}); }
  void refuse(Token token, const Status& status, v1::Reason reason = v1::REASON_NONE);

  // Called by dispatch().
  void on(MethodTag<Method::kPsCreate>, Call& call);
  void on(MethodTag<Method::kPsFreeze>, Call& call);
  void on(MethodTag<Method::kPsFeedSample>, Call& call);
  void on(MethodTag<Method::kPsEmbeddingLookup>, Call& call);
  void on(MethodTag<Method::kPsPush>, Call& call);
  void on(MethodTag<Method::kPsPull>, Call& call);
  void on(MethodTag<Method::kPsPushGrad>, Call& call);
  void on(MethodTag<Method::kPsSave>, Call& call);
  void on(MethodTag<Method::kPsRestore>, Call& call);
  void on(MethodTag<Method::kPsHeartbeat>, Call& call);
  void on(MethodTag<Method::kPsShrink>, Call& call);
  void on(MethodTag<Method::kPsClear>, Call& call);
  void on(MethodTag<Method::kPsStat>, Call& call);
  void on(MethodTag<Method::kPsStop>, Call& call);
  void on(MethodTag<Method::kPsProfile>, Call& call);
  void on(MethodTag<Method::kPsStep>, Call& call);

 private:
  struct Waiting {  // a lookup that waits for its feed or for the clock
    Message request;
    Token token;
    Deadline deadline;
  };
  struct Staged {                   // one rank's push of one synchronous step
    std::vector<Message> messages;  // one, or several with tensor_fuse off
    std::vector<Token> tokens;
    std::set<std::string> parts;
    uint32_t announced = 0;
    size_t bytes = 0;
    bool complete() const { return announced == 0 ? !messages.empty() : parts.size() >= announced; }
  };
  using KeptName = std::pair<BatchId, std::string>;  // a batch and the tables asked for
  struct NodeLife {
    Incarnation incarnation{0};
    bool dead = false;
    std::set<Incarnation> former;  // which came before; all of them are over
  };
  // A refusal that a program can tell from others.
  struct Refusal {
    Status status;
    v1::Reason reason = v1::REASON_NONE;
  };

  // shard.cc
  void answer_ok(Token token) { answer(token, Message()); }
  void refuse(Token token, const Refusal& refusal) {
    refuse(token, refusal.status, refusal.reason);
  }
  // OK, or why nobody with this header may change (or with `reads` read) anything.
  Refusal check_header(const v1::Header& header, bool reads) const;
  Refusal check_map(const v1::Header& header) const;
  Refusal check_trainable(const v1::Header& header, bool reads) const;
  AppliedNumbers::Operation operation_of(const Message& request) const;
  // True when the caller shall go on; else it has been answered: a repeat with OK, the rest with
  // why not.
  bool begin_numbered(Call& call, AppliedNumbers::Operation& operation);
  static v1::Reason reason_of(const Status& status, const AppliedNumbers::Operation& operation);
  Refusal memory_full() const;
  // All that belongs to ranks and batches of the generation before is over, and nobody trains until
  // the rows are those of the new one: Freeze says so again.
  void begin_generation(uint64_t generation);
  void take_staleness(const v1::StalenessEvent& event);
  // Sends those away who wait, and forgets what was fed.
  void drop_requests(const Status& why, v1::Reason reason);
  // The parts of variables are those that the map gives this shard.
  void own_variables();
  // Sessions end with the process that opened them.
  void note_session(const v1::Header& header);
  void fence_sessions_of(NodeId node, Incarnation incarnation);
  bool over_memory() const {
    return options_.memory_bytes_max > 0 && memory_bytes() >= options_.memory_bytes_max;
  }

  // shard_batch.cc
  Refusal check_feed(const PreparedBatch& batch) const;
  Refusal check_window(const PreparedBatch& batch, uint32_t window, bool is_new) const;
  void drop_done_batches();
  void drop_batches_of(NodeId hub, Incarnation incarnation);
  bool try_lookup(const Message& request, Token token, bool last_try);
  void look_up(const BatchId& id, PreparedBatch& batch, const Message& request, Token token);
  Status gather_batch(PreparedBatch& batch, const Message& request, Message& reply);
  void retry_waiting();
  Status waiting_for(const Message& request) const;

  // shard_push.cc
  void push_batch(Call& call);
  Refusal check_batch_push(const Message& request, const PreparedBatch* batch) const;
  Refusal check_batch_part(const Message& request, const v1::BatchGradPart& part,
                           const PreparedPart& prepared) const;
  Refusal check_dense_push(const Message& request) const;
  void stage(Call& call, Rank rank, uint64_t clock);
  void apply_ready_steps();
  bool is_staged(const BatchId& id) const;
  // The rank takes no part from `clock` on: what it staged for later steps is refused.
  void drop_staged_of(Rank rank, uint64_t clock);
  void apply_step(uint64_t clock, const std::vector<Rank>& ranks);
  // Applies the parts of one message that are new; the message has passed its checks.
  void apply_batch_parts(const Message& request, PreparedBatch* batch, bool with_dense);
  Status apply_sparse(const Message& request, const v1::BatchGradPart& part, PreparedBatch& batch);
  void note_batch(const v1::Header& header);
  void tick_rank(const v1::Header& header, uint32_t announced,
                 const std::vector<std::string>& parts);

  // shard_admin.cc
  StatusOr<std::vector<Table*>> tables_of(
      const google::protobuf::RepeatedPtrField<std::string>& names);
  void describe(const Table& table, const v1::StatOption& option, v1::TableStat& out);

  // shard_keys.cc
  void push_keys(Call& call);
  // The keys that a part names: by a tensor, or all of a range that this shard owns.
  struct KeyList {
    Tensor tensor;            // holds the memory where the keys come from a message
    std::vector<Key> listed;  // holds it for ranges
    std::span<const Key> keys;
  };
  Refusal list_keys(const Message& request, const std::string& table,
                    std::optional<uint32_t> keys_tensor, const v1::KeyRange* range,
                    KeyList& out) const;
  Refusal list_range(const v1::Header& header, const Table& table, const v1::KeyRange& range,
                     KeyList& out) const;
  Refusal check_keys(const Table& table, std::span<const Key> keys) const;
  Refusal stale_map(const std::string& what) const;
  struct KeyPush;  // one part of a push by key, checked
  Refusal check_key_push(const Message& request, std::vector<KeyPush>& parts) const;
  Refusal check_push(const Message& request, std::vector<KeyList>& lists) const;
  Refusal check_pull(const Message& request, std::vector<KeyList>& lists) const;
  bool create_pulled(const Call& call, const std::vector<KeyList>& lists);
  Status pull_existing(const Table& table, std::span<const Key> asked, Message& reply,
                       v1::KeyPullReply* out);
  Status pull_part(const v1::KeyPullPart& part, const KeyList& list, Message& reply);

  ShardOptions options_;
  ShardHost& host_;
  ShardSchema schema_;
  std::map<std::string, std::unique_ptr<Table>> tables_;
  std::map<std::string, PartCounts> part_counts_;
  std::map<std::string, std::unique_ptr<DenseVariable>> variables_;
  bool frozen_ = false;
  uint64_t step_ = 0;

  ShardRoutes routes_;
  uint32_t index_ = 0;  // of this shard in the map
  std::map<NodeId, NodeLife> nodes_;

  AppliedNumbers numbers_;
  std::map<uint64_t, std::pair<NodeId, Incarnation>> session_owners_;
  AppliedBatches batches_;
  RankClocks clocks_;
  std::map<Rank, v1::RankBatch> rank_batches_;

  std::map<BatchId, PreparedBatch> prepared_;
  std::map<KeptName, Message> kept_replies_;  // of synchronous lookups, until the watermark passes
  size_t prepared_bytes_ = 0;
  KeyMerger merger_;  // of feeds
  std::deque<Waiting> waiting_;
  std::map<uint64_t, std::map<Rank, Staged>> staged_;  // by clock
  std::map<std::pair<Rank, uint64_t>, std::set<std::string>>
      announced_;  // asynchronous parts of a step so far
  size_t staged_bytes_ = 0;

  ShardCounts counts_;
  std::vector<Output> outputs_;
};

// Sets the reply's status with what a program needs to tell refusals of one code apart.
Message refusal_reply(const Status& status, v1::Reason reason);

}  // namespace starling
