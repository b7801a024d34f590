#include "net/makers.h"

#include "net/fast/transport.h"
#include "net/grpc/transport.h"
#include "net/inproc/transport.h"

namespace starling {

std::unique_ptr<Network> make_network(NetOptions options, Log log, Metrics& metrics) {
  auto network = std::make_unique<Network>(std::move(options), std::move(log), metrics);
  network->add(Protocol::kInproc, make_inproc());
  network->add(Protocol::kGrpc, std::make_unique<GrpcTransport>(*network));
  network->add(Protocol::kFast, std::make_unique<FastTransport>(*network));
  return network;
}

std::unique_ptr<Transport> make_inproc() { return std::make_unique<InprocTransport>(); }

}  // namespace starling
