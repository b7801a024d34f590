// GrpcTransport carries messages as unary gRPC calls, byte for byte as generated code would: any
// stock client or server of the .proto files can be the other end.
//
// A server tells its handlers of a peer at the peer's first call to the lane, since a call and not
// the connection names the lane; that it has gone is told when the connection ends. A client that
// is not ours names itself by the header of that first call. A server that is not ours must permit
// keep-alive pings (grpc.http2.max_ping_strikes = 0) for calls that take longer than a few pings.
//
// Uses: net, gRPC. Threads: as Transport.
#pragma once

#include <memory>

#include "base/mutex.h"
#include "net/network.h"
#include "net/transport.h"

namespace starling {

class GrpcClients;

class GrpcTransport final : public Transport {
 public:
  // The network outlives the transport's listeners and channels.
  explicit GrpcTransport(Network& network);
  ~GrpcTransport() override;

  // Without a token and without mutual TLS a server listens on loopback only: a wildcard address
  // becomes loopback and the log says so. FailedPrecondition: another address then. AlreadyExists:
  // the port is taken. Unavailable: not an address of this machine. NotFound: a TLS file that
  // cannot be read. InvalidArgument: a token or certificates that gRPC cannot use.
  StatusOr<std::unique_ptr<Listener>> listen(const Address& address,
                                             std::shared_ptr<Intake> intake) override;
  // NotFound and InvalidArgument as for listen().
  StatusOr<std::unique_ptr<Channel>> open(const Target& target, std::shared_ptr<Lane> lane,
                                          ChannelSink& sink) override;
  // Calls on one connection may overtake each other.
  bool ordered() const override { return false; }

 private:
  StatusOr<std::shared_ptr<GrpcClients>> clients();

  Network& network_;
  Mutex mutex_;
  std::shared_ptr<GrpcClients> clients_ ABSL_GUARDED_BY(mutex_);  // started at first use
};

}  // namespace starling
