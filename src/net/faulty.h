// FaultyTransport wraps any transport and breaks it on purpose, by seed: drops, delays, repeats,
// cut connections.
//
// Uses: net. Threads: as Transport.
#pragma once

#include <atomic>
#include <memory>

#include "base/rng.h"
#include "net/transport.h"

namespace starling {

// Each rate is the probability per call, 0 .. 1.
struct FaultOptions {
  uint64_t seed = 1;
  double drop_request = 0;  // never sent
  double drop_reply = 0;    // run by the server, its answer lost
  double repeat = 0;        // sent twice; the first answer counts
  double delay = 0;         // requests and replies held back, up to delay_max
  Duration delay_max = milliseconds(20);
  double cut = 0;  // the connection ends, and with it every call in flight on it, by Unavailable
};

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, FaultOptions options);

  StatusOr<std::unique_ptr<Listener>> listen(const Address& address,
                                             std::shared_ptr<Intake> intake) override;
  StatusOr<std::unique_ptr<Channel>> open(const Target& target, std::shared_ptr<Lane> lane,
                                          ChannelSink& sink) override;
  // Delays and repeats change the order, whatever the inner transport promises.
  bool ordered() const override;

 private:
  const std::unique_ptr<Transport> inner_;
  const FaultOptions options_;
  std::atomic<uint64_t> channels_{0};
};

}  // namespace starling
