// Client sends requests to any lane of any server and brings each to one end: a reply, or a status
// by its deadline.
//
// Uses: base, wire. Threads: call(), call_future(), call_wait() and cancel() from any; callbacks
// come on the client's lane.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <atomic>
#include <future>
#include <map>
#include <memory>

#include "base/function.h"
#include "net/address.h"
#include "net/network.h"

namespace starling {

using Done = Function<void(StatusOr<Message>)>;

class Client {
 public:
  // On a lane of its own: callbacks run there, and on a driven lane call_wait() costs no hand-off.
  // The network outlives the client; the lane must not run any more, or be driven by this thread,
  // when the client is destroyed.
  Client(Network& network, std::shared_ptr<Lane> lane);
  // On the lane that all callers without one share.
  explicit Client(Network& network);
  // Calls still open end with Cancelled.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // `done` is called once, on the lane, never before this returns.
  // Unavailable: the peer went away while the call was in flight. DeadlineExceeded: no answer in
  // time, which also ends the wait for a server that is not there. ResourceExhausted: too much in
  // flight to this peer, or in this client (client_bytes_max); wait for an answer. Unauthenticated,
  // FailedPrecondition: the peer refused us (token, version). Else: what the handler answered.
  CallId call(const Target& target, Method method, Message message, Deadline deadline, Done done);
  std::future<StatusOr<Message>> call_future(const Target& target, Method method, Message message,
                                             Deadline deadline);
  // Blocks. Not on a lane with a thread of its own: it would wait for itself.
  StatusOr<Message> call_wait(const Target& target, Method method, Message message,
                              Deadline deadline);
  // The call ends with Cancelled, unless it has ended already.
  void cancel(CallId id);

  Lane& lane() { return *lane_; }

 private:
  class Core;
  std::shared_ptr<Lane> lane_;
  std::shared_ptr<Core> core_;
};

}  // namespace starling
