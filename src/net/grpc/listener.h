// GrpcListener is the server side of `grpc`: one gRPC server whose calls, of whatever method, go to
// the lanes of an Intake.
//
// Uses: net, gRPC. Threads: as Listener; polling threads of its own decode requests.
#pragma once

#include <memory>

#include "base/buffer.h"
#include "net/transport.h"

namespace starling {

class GrpcListener final : public Listener {
 public:
  // Codes as GrpcTransport::listen(). The pool outlives the listener.
  static StatusOr<std::unique_ptr<GrpcListener>> start(const Address& address,
                                                       std::shared_ptr<Intake> intake,
                                                       BufferPool& pool);
  ~GrpcListener() override;

  Address address() const override;
  // Calls that come from now on get Unavailable.
  void refuse_new() override;
  // Calls at hand get Unavailable; those whose clients do not take even that are cut.
  void close() override;

 private:
  class Core;
  class Call;
  class Sink;
  explicit GrpcListener(std::unique_ptr<Core> core);

  std::unique_ptr<Core> core_;
};

}  // namespace starling
