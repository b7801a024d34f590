// InprocTransport carries messages between lanes of one process. On ManualLanes it is the base of
// simulations.
//
// Uses: net. Threads: as Transport.
#pragma once

#include <memory>

#include "net/transport.h"

namespace starling {

struct InprocRegistry;

class InprocTransport final : public Transport {
 public:
  InprocTransport();
  ~InprocTransport() override;

  // AlreadyExists when a server of that name is listening.
  StatusOr<std::unique_ptr<Listener>> listen(const Address& address,
                                             std::shared_ptr<Intake> intake) override;
  StatusOr<std::unique_ptr<Channel>> open(const Target& target, std::shared_ptr<Lane> lane,
                                          ChannelSink& sink) override;
  bool ordered() const override { return true; }

 private:
  std::shared_ptr<InprocRegistry> registry_;
};

}  // namespace starling
