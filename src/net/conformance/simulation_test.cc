// A network on manual lanes is a simulation: one seed, one sequence of events.

#include "net/conformance/suite.h"
#include "net/inproc/transport.h"
#include "net/manual_lane.h"

namespace starling::conformance {
namespace {

// Everything that happens, in its order, with the time of the manual clock.
using Trace = std::vector<std::string>;

class Tracer : public Handler {
 public:
  Tracer(ManualLanes& lanes, Trace& trace) : lanes_(lanes), trace_(trace) {}
  void handle(Request request, Reply reply) override {
    const uint64_t id = request.message.meta.header().request_id();
    note("run {} on lane {}", id, value(request.lane));
    if (id % 5 == 0) {
      held_.push_back({std::move(request.message), std::move(reply)});
      return;
    }
    for (auto& [message, held] : std::exchange(held_, {})) held.send(std::move(message));
    reply.send(std::move(request.message));
  }
  void on_peer(const Peer& peer, bool came) override {
    note("peer {} {}", peer.connection, came ? "came" : "went");
  }
  template <typename... Args>
  void note(fmt::format_string<Args...> format, Args&&... args) {
    trace_.push_back(fmt::format("{} {}", lanes_.clock().now().time_since_epoch().count(),
                                 fmt::format(format, std::forward<Args>(args)...)));
  }

 private:
  ManualLanes& lanes_;
  Trace& trace_;
  std::vector<std::pair<Message, Reply>> held_;
};

struct Simulation {
  explicit Simulation(uint64_t seed) : network(NetOptions(), Log(), metrics), tracer(lanes, trace) {
    network.add(Protocol::kInproc,
                std::make_unique<FaultyTransport>(std::make_unique<InprocTransport>(),
                                                  FaultOptions{.seed = seed,
                                                               .drop_request = 0.05,
                                                               .drop_reply = 0.05,
                                                               .repeat = 0.1,
                                                               .delay = 0.4,
                                                               .cut = 0.02}));
  }
  void start_server() {
    ServerOptions options;
    options.listen = {{.protocol = Protocol::kInproc, .host = "server"}};
    LaneHandlers handlers{};
    handlers[static_cast<size_t>(Service::kPeer)] = &tracer;
    for (int i = 0; i < 2; ++i) {
      options.handlers.push_back(handlers);
      options.lanes.push_back(lanes.make());
    }
    server = *Server::start(network, std::move(options));
  }
  void call(Client& client, uint64_t id) {
    const Target target{.address = {.protocol = Protocol::kInproc, .host = "server"},
                        .lane = static_cast<LaneId>(id % 2)};
    client.call(target, Method::kPeerCall, ask(kEcho, id),
                Deadline::in(lanes.clock(), milliseconds(200)), [this, id](const auto& answer) {
                  ++ended;
                  tracer.note("call {} ends {}", id, code_name(answer.status().code()));
                });
  }

  Metrics metrics;
  ManualLanes lanes;
  Network network;
  Trace trace;
  Tracer tracer;
  std::unique_ptr<Server> server;
  uint64_t ended = 0;
};

// Clients come first, then the server, which goes and comes back half way.
Trace simulate(uint64_t seed) {
  Simulation simulation(seed);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(simulation.network, simulation.lanes.make()));
  }
  constexpr uint64_t kCalls = 300;
  auto timer_lane = simulation.lanes.make();
  for (uint64_t id = 1; id <= kCalls; ++id) {
    timer_lane->call_at(simulation.lanes.clock().now() + milliseconds(id), [&, id] {
      simulation.call(*clients[id % clients.size()], id);
      if (id == 20) simulation.start_server();
      if (id == 150) simulation.server.reset();
      if (id == 180) simulation.start_server();
    });
  }
  EXPECT_TRUE(simulation.lanes.run_until([&] { return simulation.ended == kCalls; }));
  clients.clear();
  EXPECT_EQ(simulation.ended, kCalls);
  return simulation.trace;
}

TEST(SimulatedNetwork, OneSeedGivesOneSequenceOfEvents) {
  const Trace first = simulate(7);
  const Trace second = simulate(7);
  EXPECT_EQ(first, second);
  EXPECT_GT(first.size(), 400u);
  EXPECT_THAT(first, testing::Contains(testing::HasSubstr("ends OK")));
  EXPECT_THAT(first, testing::Contains(testing::HasSubstr("ends UNAVAILABLE")));
  EXPECT_THAT(first, testing::Contains(testing::HasSubstr("ends DEADLINE_EXCEEDED")));
}

TEST(SimulatedNetwork, AnotherSeedGivesAnotherSequence) { EXPECT_NE(simulate(7), simulate(8)); }

TEST(SimulatedNetwork, HandlersAreLeftAloneOnceTheServerHasGone) {
  Simulation simulation(1);
  simulation.start_server();
  Client client(simulation.network, simulation.lanes.make());
  for (uint64_t id = 1; id <= 20; ++id) simulation.call(client, id);
  for (int i = 0; i < 5; ++i) simulation.lanes.step();
  simulation.server.reset();
  const size_t seen = simulation.trace.size();
  EXPECT_TRUE(simulation.lanes.run_until([&] { return simulation.ended == 20; }));
  for (size_t i = seen; i < simulation.trace.size(); ++i) {
    EXPECT_THAT(simulation.trace[i], testing::HasSubstr("ends"));
  }
}

TEST(SimulatedNetwork, ABlockingCallStepsTheSimulation) {
  Metrics metrics;
  ManualLanes lanes;
  Network network(NetOptions(), Log(), metrics);
  network.add(Protocol::kInproc, std::make_unique<InprocTransport>());
  Parrot parrot;
  ServerOptions options;
  options.listen = {{.protocol = Protocol::kInproc, .host = "server"}};
  options.handlers = {serving(parrot)};
  options.lanes = {lanes.make()};
  auto server = *Server::start(network, std::move(options));
  Client client(network, lanes.make());
  const Target target{.address = server->addresses()[0]};
  EXPECT_TRUE(client.call_wait(target, Method::kPeerCall, ask(kEcho, 1), Deadline::never()).ok());
  const TimePoint before = lanes.clock().now();
  auto late = client.call_wait(target, Method::kPeerCall, ask(kHold, 2),
                               Deadline::in(lanes.clock(), seconds(3600)));
  EXPECT_TRUE(code_is(late.status(), StatusCode::kDeadlineExceeded));
  EXPECT_EQ(lanes.clock().now() - before, seconds(3600));
}

}  // namespace
}  // namespace starling::conformance
