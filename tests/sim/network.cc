#include "tests/sim/network.h"

#include <utility>

namespace starling::sim {
namespace {

constexpr Duration kAskTimeout = milliseconds(400);

bool may_try_again(const Message& reply) {
  const StatusCode code = status_of(reply).code();
  return code == StatusCode::kDeadlineExceeded || code == StatusCode::kUnavailable;
}

}  // namespace

Actor::Actor(Network& network, std::string name)
    : network_(network),
      name_(std::move(name)),
      index_(static_cast<uint32_t>(network.actors_.size())) {
  network_.actors_.push_back(this);
}

World& Actor::world() { return network_.world_; }

void Actor::start() {
  if (up_) return;
  up_ = true;
  ++life_;
  trace("starts, life {}", life_);
  on_start();
}

void Actor::crash() {
  if (!up_) return;
  up_ = false;
  trace("dies");
  on_crash();
}

void Actor::after(Duration time, World::Action action) {
  world().after(time, [this, life = life_, action = std::move(action)]() mutable {
    if (up_ && life_ == life) action();
  });
}

void Actor::answer(const Ticket& ticket, Message reply) {
  if (!up_ || ticket.server_life != life_) return;
  auto shared = std::make_shared<Message>(std::move(reply));
  network_.carry([this, call = ticket.call, shared] { network_.finish(call, *shared); });
}

void Actor::call(uint32_t to, uint32_t lane, Method method, Message message, Duration timeout,
                 Heard heard) {
  const uint64_t id = ++network_.calls_;
  network_.pending_[id] = {index_, life_, std::move(heard)};
  const Deadline deadline(world().now() + timeout);
  world().at(deadline.at(), [&network = network_, id, method] {
    network.finish(id, status_reply(deadline_exceeded("{}: no answer", info_of(method).name)));
  });
  auto shared = std::make_shared<Message>(std::move(message));
  network_.carry([&network = network_, id, to, lane, method, shared, deadline] {
    Actor& server = *network.actors_[to];
    if (!server.up_) return;
    // A server answers a little before the caller stops listening.
    const Deadline answer_by(deadline.at() - milliseconds(60));
    server.receive({method, *shared, lane, answer_by, {id, server.life_, to}});
  });
}

void Actor::ask(uint32_t to, uint32_t lane, Method method, Message message, Heard heard) {
  Message copy = message;
  call(to, lane, method, std::move(copy), kAskTimeout,
       [this, to, lane, method, message = std::move(message),
        heard = std::move(heard)](Message reply) mutable {
         if (!may_try_again(reply)) return heard(std::move(reply));
         after(milliseconds(20), [this, to, lane, method, message = std::move(message),
                                  heard = std::move(heard)]() mutable {
           ask(to, lane, method, std::move(message), std::move(heard));
         });
       });
}

void Network::carry(Function<void()> arrive) {
  if (world_.chance(weather_.drop)) return;
  const int copies = world_.chance(weather_.twice) ? 2 : 1;
  auto shared = std::make_shared<Function<void()>>(std::move(arrive));
  for (int copy = 1; copy <= copies; ++copy) {
    Duration delay = world_.between(microseconds(100), milliseconds(2));
    if (world_.chance(weather_.late)) delay += world_.between(Duration(0), weather_.late_max);
    world_.after(delay, [shared] { (*shared)(); });
  }
}

void Network::finish(uint64_t call, Message reply) {
  auto it = pending_.find(call);
  if (it == pending_.end()) return;
  Pending pending = std::move(it->second);
  pending_.erase(it);
  const Actor& from = *actors_[pending.from];
  if (from.up_ && from.life_ == pending.life) pending.heard(std::move(reply));
}

}  // namespace starling::sim
