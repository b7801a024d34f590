// FastTransport is grpc++: our own frames over epoll sockets, one lane per connection end, nothing
// shared between lanes.
//
// Uses: net. Threads: as Transport.
#pragma once

#include <memory>

#include "net/network.h"
#include "net/transport.h"

namespace starling {

struct FastShared;

class FastTransport final : public Transport {
 public:
  // The network outlives the transport's listeners and channels.
  explicit FastTransport(Network& network);
  ~FastTransport() override;

  // A server without a token listens on loopback only: a wildcard address becomes loopback and the
  // log says so. FailedPrecondition: another address without a token, or lanes that are not
  // LoopLanes. AlreadyExists: port taken.
  StatusOr<std::unique_ptr<Listener>> listen(const Address& address,
                                             std::shared_ptr<Intake> intake) override;
  StatusOr<std::unique_ptr<Channel>> open(const Target& target, std::shared_ptr<Lane> lane,
                                          ChannelSink& sink) override;
  bool ordered() const override { return true; }

 private:
  std::shared_ptr<FastShared> shared_;
};

}  // namespace starling
