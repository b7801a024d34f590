#include "net/grpc/transport.h"

#include "net/grpc/channel.h"
#include "net/grpc/listener.h"

namespace starling {

GrpcTransport::GrpcTransport(Network& network) : network_(network) {}
GrpcTransport::~GrpcTransport() = default;

StatusOr<std::unique_ptr<Listener>> GrpcTransport::listen(const Address& address,
                                                          std::shared_ptr<Intake> intake) {
  return GrpcListener::start(address, std::move(intake), network_.pool());
}

StatusOr<std::unique_ptr<Channel>> GrpcTransport::open(const Target& target,
                                                       std::shared_ptr<Lane> lane,
                                                       ChannelSink& sink) {
  STARLING_ASSIGN_OR_RETURN(auto clients, this->clients());
  return std::make_unique<GrpcChannel>(target, std::move(lane), sink, std::move(clients));
}

StatusOr<std::shared_ptr<GrpcClients>> GrpcTransport::clients() {
  MutexLock lock(mutex_);
  if (clients_ == nullptr) {
    STARLING_ASSIGN_OR_RETURN(clients_, GrpcClients::start(network_.options(), network_.pool()));
  }
  return clients_;
}

}  // namespace starling
