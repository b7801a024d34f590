#include "net/server.h"

#include <atomic>

#include "net/intake.h"
#include "net/network.h"
#include "net/transport.h"

namespace starling {

Reply& Reply::operator=(Reply&& other) noexcept {
  if (this != &other) {
    drop();
    sink_ = std::move(other.sink_);
  }
  return *this;
}

void Reply::send(Message message) {
  if (auto sink = std::exchange(sink_, nullptr)) sink->finish(absl::OkStatus(), std::move(message));
}

void Reply::fail(const Status& status) {
  if (auto sink = std::exchange(sink_, nullptr)) sink->finish(status, Message());
}

void Reply::drop() {
  if (sink_ != nullptr) fail(internal_error("the handler let go of the request without an answer"));
}

StatusOr<std::unique_ptr<Server>> Server::start(Network& network, ServerOptions options) {
  STARLING_RETURN_IF_ERROR(validate(network.options()));
  if (options.handlers.empty()) return invalid_argument("a server needs at least one lane");
  if (options.listen.empty()) return invalid_argument("a server needs at least one address");
  std::unique_ptr<Server> server(new Server());
  if (options.lanes.empty()) {
    for (uint32_t i = 0; i < options.handlers.size(); ++i) {
      server->own_lanes_.push_back(network.make_lane(fmt::format("lane-{}", i), i));
      options.lanes.push_back(server->own_lanes_.back());
    }
  }
  if (options.lanes.size() != options.handlers.size()) {
    return invalid_argument("{} lanes for {} sets of handlers", options.lanes.size(),
                            options.handlers.size());
  }
  const std::vector<Address> listen = options.listen;
  server->intake_ = std::make_shared<Intake>(network.options(), std::move(options), network.log(),
                                             network.metrics());
  for (const Address& address : listen) {
    STARLING_ASSIGN_OR_RETURN(Transport * transport, network.transport(address.protocol));
    STARLING_ASSIGN_OR_RETURN(auto listener, transport->listen(address, server->intake_));
    server->addresses_.push_back(listener->address());
    server->listeners_.push_back(std::move(listener));
  }
  return server;
}

Server::~Server() { (void)stop(Deadline(TimePoint::min())); }

StatusOr<Address> Server::address(Protocol protocol) const {
  for (const Address& address : addresses_) {
    if (address.protocol == protocol) return address;
  }
  return invalid_argument("the server does not listen on {}", protocol_name(protocol));
}

Lane& Server::lane(LaneId id) { return *intake_->lane(id); }

Status Server::stop(Deadline deadline) {
  // Two threads may stop it at once.
  if (std::atomic_ref(stopped_).exchange(true)) return absl::OkStatus();
  if (intake_ == nullptr) return absl::OkStatus();
  intake_->refuse_new();
  for (const auto& listener : listeners_) listener->refuse_new();
  const bool finished = intake_->wait_idle(deadline);
  const uint64_t cut = intake_->in_flight();
  intake_->cut();
  for (const auto& listener : listeners_) listener->close();
  listeners_.clear();
  intake_->stop_pool();
  for (const auto& lane : own_lanes_) lane->stop();
  if (own_lanes_.empty()) intake_->leave_lanes();
  if (finished) return absl::OkStatus();
  return deadline_exceeded("{} requests were cut when the server stopped", cut);
}

}  // namespace starling
