// Server takes requests from every transport it listens on to the lanes of this process, and their
// replies back.
//
// Uses: base, wire. Threads: Server from any; a Handler runs on its lane (or, where it blocks, on a
// pool thread); a Reply may be answered from any thread.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "net/address.h"
#include "net/lane.h"
#include "net/options.h"
#include "wire/dispatch.h"
#include "wire/message.h"
#include "wire/method.h"

namespace starling {

class Network;
class Intake;
class Listener;
class LoopLane;

// The other end of a connection.
struct Peer {
  Protocol protocol = Protocol::kInproc;
  std::string address;  // as the system shows it; for logs and errors
  Identity
      identity;  // what it says of itself; proved only as far as the token or certificate proves it
  uint64_t connection = 0;  // unique in this process
};

struct Request {
  Method method{};
  LaneId lane{0};
  Message message;
  Deadline deadline;
  std::shared_ptr<const Peer> peer;
};

// Where an answer goes; made by a transport.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  // Called once, from any thread. A non-OK status comes with an empty message.
  virtual void finish(const Status& status, Message message) = 0;

  std::atomic<bool> cancelled{false};
};

// The right and the duty to answer one request, once. Dropped without an answer it fails the call
// with INTERNAL.
class Reply {
 public:
  Reply() = default;
  explicit Reply(std::shared_ptr<ReplySink> sink) : sink_(std::move(sink)) {}
  Reply(Reply&&) = default;
  Reply& operator=(Reply&& other) noexcept;
  ~Reply() { drop(); }

  void send(Message message);
  void fail(const Status& status);
  // The caller has gone or gave up; the answer will be thrown away.
  bool cancelled() const {
    return sink_ == nullptr || sink_->cancelled.load(std::memory_order_relaxed);
  }
  explicit operator bool() const { return sink_ != nullptr; }

 private:
  void drop();
  std::shared_ptr<ReplySink> sink_;
};

// Answers the methods of one service on one lane.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual void handle(Request request, Reply reply) = 0;
  // Methods that may block or run user's code are handled on a pool thread, so that they never hold
  // the lane.
  virtual bool blocks(Method method) const { return false; }
  // A connection to this lane came or went; on the lane.
  virtual void on_peer(const Peer& peer, bool came) {}
};

// The Handler of an object with an `on(MethodTag<M>, Request, Reply)` for every method of S; one
// that is missing is a compile error.
template <Service S, typename H>
class ServiceHandler : public Handler {
 public:
  explicit ServiceHandler(H& handler) : handler_(handler) {}
  void handle(Request request, Reply reply) override {
    const Method method = request.method;
    dispatch<S>(handler_, method, std::move(request), std::move(reply));
  }

 private:
  H& handler_;
};

// The handlers of one lane, by service; null where the lane does not serve it.
using LaneHandlers = std::array<Handler*, kServices>;

struct ServerOptions {
  Service role = Service::kPeer;       // what this process calls itself in errors
  std::vector<Address> listen;         // several transports may lead to the same lanes
  std::vector<LaneHandlers> handlers;  // one per lane
  std::vector<std::shared_ptr<Lane>>
      lanes;  // the lanes, which stay the caller's; empty: a LoopLane with a thread for each
              // handlers entry, which ends with the server
};

class Server {
 public:
  // InvalidArgument: no lane or no address, or an option out of bounds. FailedPrecondition: a
  // transport that cannot run on these lanes or without a token. AlreadyExists / Unavailable: the
  // address is taken or not of this machine.
  static StatusOr<std::unique_ptr<Server>> start(Network& network, ServerOptions options);
  // Stops at once when nobody has called stop().
  ~Server();

  // With the ports that the kernel chose.
  const std::vector<Address>& addresses() const { return addresses_; }
  // InvalidArgument when it does not listen there.
  StatusOr<Address> address(Protocol protocol) const;
  Lane& lane(LaneId id);

  // Refuses new requests, waits for those at hand until the deadline, then cuts the rest. When it
  // returns no handler runs any more, and none will; lanes that the caller gave run on.
  // DeadlineExceeded when some were cut. Twice is fine. Not from a handler.
  Status stop(Deadline deadline);

 private:
  Server() = default;

  std::shared_ptr<Intake> intake_;
  std::vector<std::shared_ptr<LoopLane>> own_lanes_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<Address> addresses_;
  bool stopped_ = false;
};

}  // namespace starling
