// Transport is the door behind which the makers stand: inproc, grpc and fast repeat it, faulty
// wraps any of them.
//
// Uses: base, wire. Threads: listen() and open() from any; a Channel belongs to the lane it was
// opened on.
#pragma once

#include <memory>

#include "net/address.h"
#include "net/intake.h"
#include "net/lane.h"
#include "wire/message.h"
#include "wire/method.h"

namespace starling {

// Names a call on its channel; chosen by the client, never used twice.
enum class CallId : uint64_t {};

// Takes the ends of calls, on the channel's lane.
class ChannelSink {
 public:
  virtual ~ChannelSink() = default;
  // At most once per call, not after it was cancelled and not inside start(). Unavailable: the peer
  // went away; the request may or may not have been run.
  virtual void finished(CallId id, StatusOr<Message> result) = 0;
};

// One client lane's way to one lane of one server. Connects by itself, waits for a server that is
// not there yet, and connects again after a loss; it never sends a request twice.
class Channel {
 public:
  virtual ~Channel() = default;
  // Takes the message; the sink hears of the end. Without a connection the request waits for one.
  // When a connection is lost, every request that was given to it ends with Unavailable, also those
  // that had to wait for the socket: a caller hears of a death at once, whatever stands in its way.
  virtual void start(CallId id, Method method, Message message, Deadline deadline) = 0;
  // Forgets the call and tells the server, where that can be told.
  virtual void cancel(CallId id) = 0;
  // Why the channel is not connected, for the error of a call whose time has passed; OK when it is.
  virtual Status trouble() const = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  virtual Address address() const = 0;
  // Takes no new connections and tells the peers to send nothing more; what is in flight goes on.
  virtual void refuse_new() = 0;
  // Cuts every connection. After it returns no lane holds anything of the listener, but for a
  // driven one of another thread: that lets go when it is turned again.
  virtual void close() = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual StatusOr<std::unique_ptr<Listener>> listen(const Address& address,
                                                     std::shared_ptr<Intake> intake) = 0;
  // `sink` outlives the channel. Called on `lane`.
  virtual StatusOr<std::unique_ptr<Channel>> open(const Target& target, std::shared_ptr<Lane> lane,
                                                  ChannelSink& sink) = 0;
  // True when requests of one channel start in the order in which they were sent.
  virtual bool ordered() const = 0;
};

}  // namespace starling
