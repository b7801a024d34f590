// PsClient is the one way to the parameter servers: it routes by the map, splits a request over the
// shards and joins their answers, numbers what changes state and repeats it with the same number,
// takes a newer map by itself, and names the ps that died.
//
// Uses: base, wire, net, table, scheduler/client.h. Threads: any; callbacks come on the
// client's lane.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/client.h"
#include "ps/route.h"
#include "scheduler/client.h"
#include "table/dense_table.h"

namespace starling {

struct PsClientOptions {
  // Of the node, as Register answered; see joined(). A tool leaves these as they are and may read.
  v1::Role role = v1::ROLE_UNKNOWN;
  uint32_t node = 0;
  uint64_t incarnation = 0;
  uint64_t generation = 0;
  uint64_t session = 0;              // 0: from the incarnation
  std::optional<Protocol> protocol;  // none: the first that a shard offers and this process has
  Duration attempt = seconds(10);    // one try; the operation's own deadline may be longer
};

// What one shard is sent. The client fills in the header but for batch, group, rank and clock.
struct ShardMessage {
  uint32_t shard = 0;  // in routes()
  Message message;
};

// Rows by key: `keys` (uint64[n], any order, repeats allowed) or, of a range table, `range`.
struct KeyPull {
  std::string table;
  Tensor keys;
  std::optional<v1::KeyRange> range;
  bool create = false;         // count, admit and make rows; else nothing changes
  bool with_found = false;     // say which keys have rows
  bool existing_only = false;  // of a range: only keys that have rows
};
struct PulledKeys {
  Tensor values;  // float[n, dim], in the order of the keys
  Tensor found;   // uint8[n], when asked for
  Tensor keys;    // uint64[n], ascending, with existing_only
};
struct KeyGrad {
  std::string table;
  Tensor keys;
  std::optional<v1::KeyRange> range;
  Tensor grads;            // float[n, dim]
  Tensor shows, clicks;    // float[n]; empty: 1 and 0 each
  bool no_create = false;  // gradients of keys without a row are dropped
};
struct KeyValues {
  std::string table;
  Tensor keys;
  std::optional<v1::KeyRange> range;
  Tensor values;       // float[n, dim]; not looked at with erase
  bool erase = false;  // delete the keys
};
// Elements [begin, begin + n) of a variable.
struct DenseValues {
  std::string variable;
  uint64_t begin = 0;
  Tensor values;  // float[n]
};
// Elements of a variable as they were seen last; pulled again, only what has changed travels.
struct DenseCopy {
  std::string variable;
  uint64_t begin = 0;
  uint64_t end = 0;  // 0: all of the variable
  Tensor values;     // float[end - begin]; empty: not seen yet
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> versions;  // by (node, lane)
};

// What workers ask of the ps. PsClient answers it; a communicator that merges what is pushed, or
// exchanges it later, stands in between.
class Communicator {
 public:
  template <typename T>
  using DoneOr = Function<void(StatusOr<T>)>;
  using Routes = std::shared_ptr<const ShardRoutes>;

  virtual ~Communicator() = default;
  virtual Routes routes() const = 0;
  virtual void call(Method method, std::vector<ShardMessage> messages, Deadline deadline,
                    DoneOr<std::vector<Message>> done) = 0;
  virtual Status push(std::vector<KeyValues> keys, std::vector<DenseValues> dense,
                      Deadline deadline) = 0;
  virtual StatusOr<std::vector<DenseCopy>> pull_dense(std::vector<DenseCopy> known,
                                                      Deadline deadline) = 0;
};

class PsClient : public Communicator {
 public:
  using DoneStatus = Function<void(Status)>;

  // `network` and `scheduler` outlive it. `scheduler` is asked for the map; null: maps come by
  // on_event() and from the ps alone. Destroyed on its lane or after that has stopped; calls that
  // are open end with Cancelled.
  PsClient(Network& network, std::shared_ptr<Lane> lane, PsClientOptions options,
           SchedulerClient* scheduler);
  ~PsClient() override;

  // What the scheduler tells: maps, and which ps died. Requests to a dead one end at once with
  // Unavailable and its name; without events they end by their deadline.
  void on_event(const v1::Event& event);
  // The process was registered, or registered again.
  void joined(const v1::RegisterReply& reply);
  // What the job has, as create() was told by whoever called it: needed for placement and shapes.
  Status use_schema(const v1::CreateOption& option);

  // The newest map; null: none yet.
  Routes routes() const override;
  // Waits for a map. DeadlineExceeded: none came.
  StatusOr<Routes> wait_for_map(Deadline deadline);

  // Any RPC of the ps, to chosen shards; the replies come in the order of `messages`. What the
  // shards refuse is an error status with reason_of(); with REASON_STALE_MAP routes() is the new
  // map, by which the caller cuts anew. Unavailable: a ps died. DeadlineExceeded: the message says
  // which ps and why. ResourceExhausted: too many open numbers, or as the shard says.
  void call(Method method, std::vector<ShardMessage> messages, Deadline deadline,
            DoneOr<std::vector<Message>> done) override;
  StatusOr<std::vector<Message>> call(Method method, std::vector<ShardMessage> messages,
                                      Deadline deadline);
  // The same message to every shard.
  StatusOr<std::vector<Message>> call_all(Method method, const Message& message, Deadline deadline);
  // The same message to lane 0 of every ps.
  StatusOr<std::vector<Message>> call_nodes(Method method, const Message& message,
                                            Deadline deadline);

  // By key and by name. NotFound: a table or variable that use_schema() and create() do not know.
  // InvalidArgument: tensors that do not fit.
  void pull(std::vector<KeyPull> parts, Deadline deadline, DoneOr<std::vector<PulledKeys>> done);
  StatusOr<std::vector<PulledKeys>> pull(std::vector<KeyPull> parts, Deadline deadline);
  // One step of the optimizer; a gradient of a variable covers whole parts.
  void push_grad(std::vector<KeyGrad> keys, std::vector<DenseValues> dense, Deadline deadline,
                 DoneStatus done);
  Status push_grad(std::vector<KeyGrad> keys, std::vector<DenseValues> dense, Deadline deadline);
  // Sets rows and elements.
  void push(std::vector<KeyValues> keys, std::vector<DenseValues> dense, Deadline deadline,
            DoneStatus done);
  Status push(std::vector<KeyValues> keys, std::vector<DenseValues> dense,
              Deadline deadline) override;
  void pull_dense(std::vector<DenseCopy> known, Deadline deadline,
                  DoneOr<std::vector<DenseCopy>> done);
  StatusOr<std::vector<DenseCopy>> pull_dense(std::vector<DenseCopy> known,
                                              Deadline deadline) override;

  // By batch: `messages` as the hub and the worker built them for routes().
  Status feed(std::vector<ShardMessage> messages, Deadline deadline);
  StatusOr<std::vector<Message>> lookup(std::vector<ShardMessage> messages, Deadline deadline);
  Status push_batch(std::vector<ShardMessage> messages, Deadline deadline);

  // Of the whole job: every shard of every ps. Each blocks.
  Status create(const v1::CreateOption& option, Deadline deadline);
  // The schema's hash, the same on all shards, which all know the same map. Where that has changed
  // since, what this client has created and pushed into variables is created and pushed again.
  StatusOr<uint64_t> freeze(const v1::FreezeOption& option, Deadline deadline);
  // Reads a cut into every shard; rows and bytes of the reply are those of all. Before freeze(), as
  // restore_job() does it. FailedPrecondition: what does not fit, all of it named. DataLoss: a
  // damaged file, named.
  StatusOr<v1::RestoreReply> restore(const v1::RestoreOption& option, Deadline deadline);
  StatusOr<std::vector<v1::StatReply>> stat(const v1::StatOption& option, Deadline deadline);
  StatusOr<std::vector<v1::PsHeartbeatReply>> heartbeat(Deadline deadline);
  StatusOr<std::vector<v1::TableCount>> shrink(const v1::ShrinkOption& option, Deadline deadline);
  Status clear(const v1::ClearOption& option, Deadline deadline);
  // The highest of all shards.
  StatusOr<uint64_t> step(Deadline deadline);
  Status set_step(uint64_t step, Deadline deadline);
  Status stop(const v1::StopOption& option, Deadline deadline);
  // One per ps.
  StatusOr<std::vector<v1::ProfileReply>> profile(const v1::ProfileOption& option,
                                                  Deadline deadline);

  // Every call that is open, and every later one, ends with Cancelled. From any thread.
  void stop();

  Lane& lane();

 private:
  class Core;
  StatusOr<std::vector<Message>> freeze_by(uint64_t version, const v1::FreezeOption& option,
                                           Deadline deadline);
  std::shared_ptr<Core> core_;
};

// How a job goes back to a cut.
struct RestoreJob {
  v1::CreateOption schema;  // what is made first: that of the cut
  v1::RestoreOption restore;
  v1::FreezeOption freeze;
  uint64_t start_clock = 0;  // of the cut
  bool trains = true;        // false: the job is left frozen
};
struct RestoredJob {
  uint64_t generation = 0;
  uint64_t schema_hash = 0;
  v1::RestoreReply read;
};

// Starts a new generation of the job and brings it from the cut to training: every ps registers
// again, all shards read, freeze, and train. Blocks. `scheduler` and `ps` are of one registered
// process, which is registered again. Whatever fails, the same call again starts over.
//
// Unavailable, DeadlineExceeded: a ps is missing or died, named. Others as PsClient::restore.
StatusOr<RestoredJob> restore_job(SchedulerClient& scheduler, PsClient& ps, const RestoreJob& job,
                                  Deadline deadline);

// Whether a ps would create the table. InvalidArgument: options out of range.
Status check_table(const v1::TableOptions& table, uint64_t seed);

// A whole variable for a process that keeps it by itself, as the ps would start it.
// InvalidArgument: options out of range.
StatusOr<std::unique_ptr<DenseTable>> make_dense_table(const v1::DenseOptions& variable,
                                                       uint64_t seed);

// Cuts a gradient of elements [values.begin, ...) of a variable into the parts of each shard and
// adds them to the shards' pushes (`messages`, one per shard of `routes`). InvalidArgument: not
// whole parts.
Status add_dense_grads(const ShardRoutes& routes, const v1::DenseOptions& variable,
                       const DenseValues& values, std::vector<Message>& messages);

}  // namespace starling
