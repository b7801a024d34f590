#include "net/network.h"

namespace starling {

Network::Network(NetOptions options, Log log, Metrics& metrics)
    : options_(std::move(options)),
      log_(std::move(log)),
      metrics_(metrics),
      spin_budget_(std::make_shared<SpinBudget>()) {}

Network::~Network() {
  MutexLock lock(mutex_);
  if (background_ != nullptr) background_->stop();
}

void Network::add(Protocol protocol, std::unique_ptr<Transport> transport) {
  transports_[static_cast<size_t>(protocol)] = std::move(transport);
}

StatusOr<Transport*> Network::transport(Protocol protocol) const {
  Transport* transport = transports_[static_cast<size_t>(protocol)].get();
  if (transport == nullptr)
    return unimplemented("protocol {} is not part of this process", protocol_name(protocol));
  return transport;
}

LoopOptions Network::loop_options(std::string name) const {
  return {.name = std::move(name),
          .spin = options_.spin,
          .polling = options_.polling,
          .budget = spin_budget_};
}

std::shared_ptr<LoopLane> Network::make_lane(std::string name, uint32_t number) const {
  LoopOptions options = loop_options(std::move(name));
  if (options_.first_core >= 0) options.core = options_.first_core + static_cast<int>(number);
  return LoopLane::start(std::move(options));
}

std::shared_ptr<LoopLane> Network::make_driven_lane() const {
  return LoopLane::driven_by_caller(loop_options("driven"));
}

std::shared_ptr<LoopLane> Network::background_lane() {
  MutexLock lock(mutex_);
  if (background_ == nullptr) background_ = LoopLane::start(loop_options("net-background"));
  return background_;
}

}  // namespace starling
