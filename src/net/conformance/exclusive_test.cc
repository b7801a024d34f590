// The cases that need the machine for themselves: very large, very many, and a busy core.

#include <sched.h>

#include "net/conformance/suite.h"

namespace starling::conformance {
namespace {

class Large : public Conformance {};

TEST_P(Large, AQuarterOfAGigabyteArrivesWhole) {
  constexpr size_t kBytes = kSanitized ? 32 << 20 : 256 << 20;
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  Client client(world.network());
  auto answer = client.call_wait(world.target(*server), Method::kPeerCall,
                                 ask_with(kEcho, 1, kBytes), patience());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(is_tensor_of(answer->tensors.at(0), 1, kBytes));
}

STARLING_OVER_ALL_MAKERS(Large);

class ManyConnections : public Conformance {};

TEST_P(ManyConnections, OneLaneServesThemAll) {
  constexpr uint64_t kConnections = kSanitized ? 50 : 4000;
  ASSERT_TRUE(allow_files(3 * kConnections + 1000));
  World world(GetParam());
  Parrot parrot;
  auto server = world.serve(parrot);
  const std::shared_ptr<LoopLane> lanes[] = {world.network().make_lane("many-0", 0),
                                             world.network().make_lane("many-1", 1)};
  std::vector<std::unique_ptr<Client>> clients;
  Ends ends;
  for (uint64_t id = 0; id < kConnections; ++id) {
    clients.push_back(std::make_unique<Client>(world.network(), lanes[id % 2]));
    clients.back()->call(world.target(*server), Method::kPeerCall, ask_with(kEcho, id, 100),
                         patience(), ends.take(id));
  }
  ASSERT_TRUE(ends.wait(kConnections));
  EXPECT_EQ(ends.count_of(StatusCode::kOk), kConnections);
  // All at once, now that they stand.
  for (uint64_t id = 0; id < kConnections; ++id) {
    clients[id]->call(world.target(*server), Method::kPeerCall, ask_with(kEcho, id, 200),
                      patience(), ends.take(kConnections + id));
  }
  ASSERT_TRUE(ends.wait(2 * kConnections));
  EXPECT_EQ(ends.count_of(StatusCode::kOk), 2 * kConnections);
  for (uint64_t id = 0; id < kConnections; ++id) {
    ASSERT_TRUE(is_tensor_of(ends.at(kConnections + id)->tensors.at(0), id, 200));
  }
}

// Every protocol, also the one that reaches no other process.
std::vector<Maker> distinct_makers() {
  std::vector<Maker> makers = distinct_remote_makers();
  makers.push_back({.name = "inproc", .protocol = Protocol::kInproc});
  return makers;
}

INSTANTIATE_TEST_SUITE_P(All, ManyConnections, testing::ValuesIn(and_wrapped(distinct_makers())),
                         maker_name);

// One core, and somebody else on it who never sleeps.
class BusyCore : public Conformance {
 protected:
  BusyCore() {
    CPU_ZERO(&before_);
    sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    int core = 0;
    while (!CPU_ISSET(core, &before_)) ++core;
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one);
    busy_ = Thread({.name = "busy"}, [this] {
      while (!enough_.load(std::memory_order_relaxed)) {
      }
    });
  }
  ~BusyCore() override {
    enough_ = true;
    busy_.join();
    sched_setaffinity(0, sizeof(before_), &before_);
  }

 private:
  cpu_set_t before_;
  std::atomic<bool> enough_{false};
  Thread busy_;
};

TEST_P(BusyCore, StartingInTheWrongOrderWorks) {
  constexpr uint64_t kTimes = kSanitized ? 20 : 1000;
  NetOptions options = options_for(GetParam());
  options.backoff_max = milliseconds(50);
  World world(GetParam(), options);
  Parrot parrot;
  for (uint64_t id = 1; id <= kTimes; ++id) {
    const Address address = world.somewhere_known();
    auto lane = world.network().make_driven_lane();
    Client client(world.network(), lane);
    StatusOr<Message> answer = unavailable("not ended");
    bool ended = false;
    client.call({.address = address}, Method::kPeerCall, ask_with(kEcho, id, 5000), patience(),
                [&](StatusOr<Message> result) {
                  answer = std::move(result);
                  ended = true;
                });
    lane->run_until([&] { return ended; }, Deadline::in(RealClock(), microseconds(id % 3 * 500)));
    ASSERT_FALSE(ended);
    auto server = world.serve(parrot, 1, address);
    ASSERT_TRUE(lane->run_until([&] { return ended; }, patience())) << "start " << id;
    ASSERT_TRUE(answer.ok()) << "start " << id << ": " << answer.status();
    ASSERT_EQ(parrot.times(id), 1);
  }
}

STARLING_OVER_ALL_MAKERS(BusyCore);

}  // namespace
}  // namespace starling::conformance
