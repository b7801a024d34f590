#include "net/fast/transport.h"

#include "net/fast/channel.h"
#include "net/fast/listener.h"
#include "net/fast/shared.h"

namespace starling {

FastTransport::FastTransport(Network& network) : shared_(std::make_shared<FastShared>(network)) {}
FastTransport::~FastTransport() = default;

StatusOr<std::unique_ptr<Listener>> FastTransport::listen(const Address& address,
                                                          std::shared_ptr<Intake> intake) {
  return FastListener::start(address, shared_, std::move(intake));
}

StatusOr<std::unique_ptr<Channel>> FastTransport::open(const Target& target,
                                                       std::shared_ptr<Lane> lane,
                                                       ChannelSink& sink) {
  auto* loop = dynamic_cast<LoopLane*>(lane.get());
  if (loop == nullptr)
    return failed_precondition("grpc++ runs on lanes with sockets, not on manual ones");
  return std::make_unique<FastChannel>(target, std::move(lane), *loop, sink, shared_);
}

}  // namespace starling
