// Network carries calls between actors and loses, doubles, delays and reorders them as the seed
// says; an Actor is one process of the cluster.
//
// Uses: base, wire. Threads: one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/world.h"
#include "wire/message.h"
#include "wire/method.h"

namespace starling::sim {

class Network;

// Names a call until it is answered; of no use after the server's life.
struct Ticket {
  uint64_t call = 0;
  uint64_t server_life = 0;
  uint32_t server = 0;
};

struct Arrived {
  Method method{};
  Message message;
  uint32_t lane = 0;
  Deadline deadline;
  Ticket ticket;
};

class Actor {
 public:
  Actor(Network& network, std::string name);
  virtual ~Actor() = default;

  uint32_t index() const { return index_; }
  const std::string& name() const { return name_; }
  bool is_up() const { return up_; }
  uint64_t life() const { return life_; }

  // A new process; nothing of the former one is left but what a disk has.
  void start();
  // The process dies at once, with all that it had in memory.
  void crash();
  virtual void receive(Arrived request) = 0;
  using Heard = Function<void(Message)>;

 protected:
  virtual void on_start() = 0;
  virtual void on_crash() = 0;

  World& world();
  // Runs the action unless this life has ended by then.
  void after(Duration time, World::Action action);
  void answer(const Ticket& ticket, Message reply);

  // One attempt. Heard gets DeadlineExceeded when no answer came in time.
  void call(uint32_t to, uint32_t lane, Method method, Message message, Duration timeout,
            Heard heard);
  // Attempts until there is an answer other than DeadlineExceeded and Unavailable.
  void ask(uint32_t to, uint32_t lane, Method method, Message message, Heard heard);
  template <typename... Args>
  void trace(fmt::format_string<Args...> format, Args&&... args) {
    world().trace(name_, format, std::forward<Args>(args)...);
  }

  Network& network_;

 private:
  friend class Network;
  const std::string name_;
  const uint32_t index_;
  bool up_ = false;
  uint64_t life_ = 0;
};

struct Weather {
  double drop = 0;
  double twice = 0;
  double late = 0;  // a message that takes up to late_max
  Duration late_max = milliseconds(500);
};

class Network {
 public:
  explicit Network(World& world) : world_(world) {}

  World& world() { return world_; }
  void set_weather(const Weather& weather) { weather_ = weather; }

 private:
  friend class Actor;
  struct Pending {
    uint32_t from = 0;
    uint64_t life = 0;
    Actor::Heard heard;
  };
  // How often a message arrives, and when.
  void carry(Function<void()> arrive);
  void finish(uint64_t call, Message reply);

  World& world_;
  Weather weather_;
  std::vector<Actor*> actors_;
  std::map<uint64_t, Pending> pending_;
  uint64_t calls_ = 0;
};

}  // namespace starling::sim
