// SchedulerClient is the one way to the scheduler: it registers a node, beats, watches, and calls,
// and goes on by itself when the scheduler restarts.
//
// Calls that the method table allows to repeat are sent again with the same number until their
// deadline. Uses: base, wire, net. Threads: any; callbacks and events come on the client's lane.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "net/client.h"

namespace starling {

struct SchedulerClientOptions {
  Address scheduler;
  // Of the node; a tool leaves these as they are, never joins, and may read and administrate the
  // generation of the job that get_job() showed it last.
  v1::Role role = v1::ROLE_UNKNOWN;
  std::string name;
  uint64_t incarnation = 0;  // random, new at each start of the process
  std::vector<v1::Address> addresses;
  uint32_t lanes = 1;
  uint32_t workers = 0;
  bool empty = false;  // of a ps: it starts without rows
  std::string version;

  uint64_t session = 0;                   // 0: from the incarnation; tools need a random one
  std::vector<std::string> key_prefixes;  // keys to be told of
  // False: events count as taken in when on_event() has returned. True: only applied() says so.
  bool applies_later = false;
  Duration attempt = seconds(10);  // one try of a call; the call's own deadline may be longer
  // One try of join(): well below the lease, which runs from the moment that the scheduler has
  // taken the node in, whether or not its answer arrives.
  Duration join_attempt = seconds(1);
  Duration watch = seconds(30);
};

// What happens in the job, on the client's lane.
class SchedulerEvents {
 public:
  virtual ~SchedulerEvents() = default;
  // In order. The first events tell the whole state.
  virtual void on_event(const v1::Event& event) {}
  // What was known may be out of date; the next events tell the whole state again.
  virtual void on_whole() {}
  // This process was declared dead (REASON_FENCED) or is of an older generation of the job
  // (REASON_WRONG_GENERATION); beating and watching have ended. join() again after the latter.
  virtual void on_refused(const Status& status) {}
  // Fills in what the next heartbeat tells: rates, clock, clocks, batches.
  virtual void on_heartbeat(v1::SchedulerHeartbeatOption* option) {}
};

// The reason that came with a refusal; REASON_NONE when none did. Every status of this client has
// it.
v1::Reason reason_of(const Status& status);
// The status of a reply, with its reason as reason_of() reads it.
Status refusal_of(const Message& reply);

// What a node that listens at these addresses registers; `advertise`: the host that others reach it
// by, where it listens on all of them. InvalidArgument: nobody could.
StatusOr<std::vector<v1::Address>> told_addresses(const std::vector<Address>& addresses,
                                                  const std::string& advertise);

class SchedulerClient {
 public:
  template <typename T>
  using DoneOr = Function<void(StatusOr<T>)>;

  // `network` and `events` (may be null) outlive it. Destroyed on its lane or after that has
  // stopped; calls that are open end with Cancelled.
  SchedulerClient(Network& network, std::shared_ptr<Lane> lane, SchedulerClientOptions options,
                  SchedulerEvents* events);
  ~SchedulerClient();

  // Registers, then beats and watches until stop(). FailedPrecondition: fenced. Again after a new
  // generation.
  void join(Deadline deadline, DoneOr<v1::RegisterReply> done);
  StatusOr<v1::RegisterReply> join_wait(Deadline deadline);
  // Ends beating and watching; the lease runs out unless leave() was called. Twice is fine.
  void stop();
  // With `applies_later`: all shards have taken in the events up to here.
  void applied(uint64_t revision);

  // Any RPC of the scheduler. Fills in the header, numbers what is numbered, repeats. A refusal by
  // the scheduler is an error status with its reason; `reply` of it, where there is one, is lost
  // (barrier: the message has the names).
  void call(Method method, Message request, Deadline deadline, DoneOr<Message> done);
  // Blocks; not on a lane with a thread of its own.
  StatusOr<Message> call_wait(Method method, Message request, Deadline deadline);

  // The same with names; each blocks.
  StatusOr<uint64_t> barrier(const v1::BarrierOption& option, Deadline deadline);
  StatusOr<v1::ShardMap> get_map(Deadline deadline);
  StatusOr<v1::AddWorkReply> add_work(const v1::AddWorkOption& option, Deadline deadline);
  StatusOr<v1::TakeWorkReply> take_work(const v1::TakeWorkOption& option, Deadline deadline);
  StatusOr<v1::RenewWorkReply> renew_work(const v1::RenewWorkOption& option, Deadline deadline);
  Status ack_work(const v1::AckWorkOption& option, Deadline deadline);
  Status give_back_work(const v1::GiveBackWorkOption& option, Deadline deadline);
  StatusOr<v1::KeyValue> put(const v1::PutOption& option, Deadline deadline);
  StatusOr<v1::GetReply> get(const v1::GetOption& option, Deadline deadline);
  StatusOr<v1::SetJobReply> set_job(const v1::SetJobOption& option, Deadline deadline);
  StatusOr<v1::GetJobReply> get_job(const v1::GetJobOption& option, Deadline deadline);
  StatusOr<v1::SaveJobReply> save(const v1::SaveJobOption& option, Deadline deadline);
  StatusOr<v1::LeaveReply> leave(const v1::LeaveOption& option, Deadline deadline);

  Lane& lane();

 private:
  class Core;
  std::shared_ptr<Core> core_;
};

}  // namespace starling
