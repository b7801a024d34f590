// The scheduler behind its server: over inproc in manual time under faults, over grpc++ with a
// journal on disk.
#include "scheduler/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "net/faulty.h"
#include "net/makers.h"
#include "net/manual_lane.h"
#include "scheduler/client.h"
#include "scheduler/memory_ledger.h"

namespace starling {
namespace {

const Address kAddress{.protocol = Protocol::kInproc, .host = "scheduler"};

struct Recorder : SchedulerEvents {
  void on_event(const v1::Event& event) override {
    if (event.has_node()) states[event.node().name()] = event.node().state();
    if (event.has_key()) keys.push_back(event.key().key());
    revisions.push_back(event.revision());
  }
  void on_refused(const Status& status) override { refused = status; }
  std::map<std::string, v1::NodeState> states;
  std::vector<std::string> keys;
  std::vector<uint64_t> revisions;
  Status refused;
};

// One process of a simulation: scheduler and clients on manual lanes.
class Simulation {
 public:
  explicit Simulation(FaultOptions faults = {}) : network_(NetOptions(), Log(), metrics_) {
    network_.add(Protocol::kInproc, std::make_unique<FaultyTransport>(make_inproc(), faults));
    start();
  }
  ~Simulation() {
    clients_.clear();
    stop();
  }

  void start() {
    SchedulerServerOptions options;
    options.listen = {kAddress};
    options.lane = lanes_.make();
    options.incarnation = ++starts_;
    auto server = SchedulerServer::start(network_, std::move(options),
                                         *MemoryLedger::open(journal_), nullptr);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // As a kill does it: nothing is said to anybody.
  void stop() { server_.reset(); }

  SchedulerClient& add(v1::Role role, const std::string& name, SchedulerEvents* events) {
    SchedulerClientOptions options;
    options.scheduler = kAddress;
    options.role = role;
    options.name = name;
    options.incarnation = 1000 + clients_.size();
    options.key_prefixes = {""};
    clients_.push_back(std::make_unique<SchedulerClient>(network_, lanes_.make(), options, events));
    return *clients_.back();
  }
  Deadline within(Duration time) const { return Deadline::in(lanes_.clock(), time); }
  bool run(const Function<bool() const>& done, Duration limit = seconds(120)) {
    return lanes_.run_until(done, limit);
  }
  void run_for(Duration time) {
    run([] { return false; }, time);
  }
  StatusOr<v1::RegisterReply> join(SchedulerClient& client) {
    std::optional<StatusOr<v1::RegisterReply>> out;
    client.join(within(seconds(60)),
                [&out](StatusOr<v1::RegisterReply> reply) { out = std::move(reply); });
    run([&out] { return out.has_value(); });
    return out.value_or(internal_error("unanswered"));
  }
  StatusOr<Message> call(SchedulerClient& client, Method method, Message request,
                         Duration time = seconds(60)) {
    std::optional<StatusOr<Message>> out;
    client.call(method, std::move(request), within(time),
                [&out](StatusOr<Message> reply) { out = std::move(reply); });
    run([&out] { return out.has_value(); });
    return out.value_or(internal_error("unanswered"));
  }
  Network& network() { return network_; }
  ManualLanes& lanes() { return lanes_; }

 private:
  mutable ManualLanes lanes_;
  Metrics metrics_;
  Network network_;
  MemoryJournal journal_;
  std::unique_ptr<SchedulerServer> server_;
  std::vector<std::unique_ptr<SchedulerClient>> clients_;
  uint64_t starts_ = 0;
};

Message putting(const std::string& key, const std::string& value) {
  Message request;
  request.meta.mutable_put()->set_key(key);
  request.meta.mutable_put()->set_value(value);
  return request;
}

TEST(SchedulerServerTest, NodesStayAliveAndHearOfEachOther) {
  Simulation world;
  Recorder a_heard;
  Recorder b_heard;
  SchedulerClient& a = world.add(v1::ROLE_PS, "ps-0", &a_heard);
  SchedulerClient& b = world.add(v1::ROLE_HUB, "hub-0", &b_heard);
  ASSERT_TRUE(world.join(a).ok());
  ASSERT_TRUE(world.join(b).ok());
  world.run_for(seconds(60));
  EXPECT_EQ(a_heard.states["hub-0"], v1::NODE_STATE_ALIVE);
  EXPECT_EQ(b_heard.states["ps-0"], v1::NODE_STATE_ALIVE);
  b.stop();
  EXPECT_TRUE(world.run([&] { return a_heard.states["hub-0"] == v1::NODE_STATE_DEAD; }));
  EXPECT_TRUE(b_heard.refused.ok());
}

TEST(SchedulerServerTest, AReplacedNodeIsToldThatItIsFenced) {
  Simulation world;
  Recorder old_heard;
  SchedulerClient& old = world.add(v1::ROLE_HUB, "hub-0", &old_heard);
  ASSERT_TRUE(world.join(old).ok());
  ASSERT_TRUE(world.join(world.add(v1::ROLE_HUB, "hub-0", nullptr)).ok());
  EXPECT_TRUE(world.run([&] { return !old_heard.refused.ok(); }));
  EXPECT_EQ(reason_of(old_heard.refused), v1::REASON_FENCED);
}

TEST(SchedulerServerTest, NodesGoOnOverARestartAndNobodyDies) {
  Simulation world;
  Recorder heard;
  SchedulerClient& a = world.add(v1::ROLE_PS, "ps-0", &heard);
  SchedulerClient& b = world.add(v1::ROLE_HUB, "hub-0", nullptr);
  ASSERT_TRUE(world.join(a).ok());
  ASSERT_TRUE(world.join(b).ok());
  for (int i = 0; i < 5; ++i) {
    world.stop();
    world.run_for(seconds(20));
    world.start();
    world.run_for(seconds(20));
    const std::string key = fmt::format("key-{}", i);
    ASSERT_TRUE(world.call(b, Method::kSchedulerPut, putting(key, "x")).ok());
    EXPECT_TRUE(world.run([&] { return !heard.keys.empty() && heard.keys.back() == key; }));
  }
  EXPECT_EQ(heard.states["hub-0"], v1::NODE_STATE_ALIVE);
  EXPECT_EQ(heard.states["ps-0"], v1::NODE_STATE_ALIVE);
  EXPECT_TRUE(heard.refused.ok());
}

TEST(SchedulerServerTest, ACallWaitsForASchedulerThatIsDown) {
  Simulation world;
  SchedulerClient& a = world.add(v1::ROLE_HUB, "hub-0", nullptr);
  ASSERT_TRUE(world.join(a).ok());
  world.stop();
  std::optional<StatusOr<Message>> out;
  a.call(Method::kSchedulerPut, putting("a", "b"), world.within(seconds(60)),
         [&out](StatusOr<Message> reply) { out = std::move(reply); });
  world.run_for(seconds(15));
  EXPECT_FALSE(out.has_value());
  world.start();
  EXPECT_TRUE(world.run([&out] { return out.has_value(); }));
  EXPECT_TRUE(out->ok()) << out->status();
}

TEST(SchedulerServerTest, ADeadlineNamesTheScheduler) {
  Simulation world;
  SchedulerClient& a = world.add(v1::ROLE_HUB, "hub-0", nullptr);
  world.stop();
  const Status status = world.join(a).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(message_of(status)), testing::HasSubstr("inproc://scheduler"));
}

TEST(SchedulerServerTest, ABarrierThatIsMissedSaysWhoIsMissing) {
  Simulation world;
  SchedulerClient& a = world.add(v1::ROLE_HUB, "hub-0", nullptr);
  ASSERT_TRUE(world.join(a).ok());
  Message request;
  request.meta.mutable_barrier()->set_name("b");
  request.meta.mutable_barrier()->add_members("hub-0");
  request.meta.mutable_barrier()->add_members("hub-1");
  const StatusOr<Message> late = world.call(a, Method::kSchedulerBarrier, request, seconds(25));
  EXPECT_EQ(late.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(message_of(late.status())), testing::HasSubstr("hub-1"));
}

// The same ledger for two schedulers, as etcd is.
class SharedLedger final : public Ledger {
 public:
  explicit SharedLedger(Ledger& shared) : shared_(shared) {}
  StatusOr<LedgerEntry> get(std::string_view key) const override { return shared_.get(key); }
  StatusOr<std::vector<LedgerEntry>> list(std::string_view prefix) const override {
    return shared_.list(prefix);
  }
  StatusOr<uint64_t> commit(std::span<const LedgerWrite> writes,
                            std::span<const LedgerCondition> conditions) override {
    return shared_.commit(writes, conditions);
  }
  Status sync() override { return failing ? unavailable("no disk") : shared_.sync(); }
  uint64_t watch(std::string prefix, Watch heard) override {
    return shared_.watch(std::move(prefix), std::move(heard));
  }
  void unwatch(uint64_t id) override { shared_.unwatch(id); }
  bool failing = false;

 private:
  Ledger& shared_;
};

TEST(SchedulerServerTest, ASecondOwnerOfTheLedgerEndsTheFirst) {
  Simulation world;
  MemoryJournal journal;
  auto shared = *MemoryLedger::open(journal);
  SchedulerServerOptions options;
  options.listen = {{.protocol = Protocol::kInproc, .host = "first"}};
  options.lane = world.lanes().make();
  auto first = *SchedulerServer::start(world.network(), options,
                                       std::make_unique<SharedLedger>(*shared), nullptr);
  world.run_for(seconds(1));
  ASSERT_TRUE(first->failure().ok());
  options.listen[0].host = "second";
  options.lane = world.lanes().make();
  options.incarnation = 2;
  auto second = *SchedulerServer::start(world.network(), options,
                                        std::make_unique<SharedLedger>(*shared), nullptr);
  SchedulerClientOptions client;
  client.scheduler = {.protocol = Protocol::kInproc, .host = "first"};
  client.role = v1::ROLE_HUB;
  client.name = "hub-0";
  client.incarnation = 5;
  SchedulerClient late(world.network(), world.lanes().make(), client, nullptr);
  EXPECT_FALSE(world.join(late).ok());
  EXPECT_EQ(first->failure().code(), StatusCode::kAborted);
  EXPECT_TRUE(second->failure().ok());
}

TEST(SchedulerServerTest, AnAnswerDoesNotLeaveWhenTheLedgerCannotSync) {
  Simulation world;
  MemoryJournal journal;
  auto shared = *MemoryLedger::open(journal);
  auto ledger = std::make_unique<SharedLedger>(*shared);
  SharedLedger& disk = *ledger;
  SchedulerServerOptions options;
  options.listen = {{.protocol = Protocol::kInproc, .host = "other"}};
  options.lane = world.lanes().make();
  auto server = *SchedulerServer::start(world.network(), options, std::move(ledger), nullptr);
  world.run_for(seconds(1));
  disk.failing = true;
  SchedulerClientOptions client;
  client.scheduler = {.protocol = Protocol::kInproc, .host = "other"};
  client.role = v1::ROLE_HUB;
  client.name = "hub-0";
  client.incarnation = 5;
  SchedulerClient late(world.network(), world.lanes().make(), client, nullptr);
  EXPECT_FALSE(world.join(late).ok());
  EXPECT_EQ(server->failure().code(), StatusCode::kUnavailable);
}

// Drops, repeats, delays and cuts: every call ends, keys have the value of the last put, watchers
// see revisions that only grow, and nobody dies.
TEST(SchedulerServerTest, ExactlyOnceUnderFaults) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Simulation world({.seed = seed,
                      .drop_request = 0.05,
                      .drop_reply = 0.05,
                      .repeat = 0.1,
                      .delay = 0.3,
                      .delay_max = milliseconds(50),
                      .cut = 0.01});
    Recorder heard;
    SchedulerClient& a = world.add(v1::ROLE_PS, "ps-0", &heard);
    SchedulerClient& b = world.add(v1::ROLE_HUB, "hub-0", nullptr);
    const Status joined_a = world.join(a).status();
    ASSERT_TRUE(joined_a.ok()) << joined_a;
    const Status joined_b = world.join(b).status();
    ASSERT_TRUE(joined_b.ok()) << joined_b;
    uint64_t revision = 0;
    for (int i = 0; i < 20; ++i) {
      if (i % 8 == 7) {
        world.stop();
        world.start();
      }
      // Compare-and-put: a put that was applied twice would find its own revision.
      Message request = putting("counter", std::to_string(i));
      request.meta.mutable_put()->set_if_revision(revision);
      const StatusOr<Message> reply =
          world.call(b, Method::kSchedulerPut, std::move(request), seconds(300));
      ASSERT_TRUE(reply.ok()) << reply.status();
      revision = reply->meta.put_reply().now().revision();
    }
    EXPECT_TRUE(world.run([&] { return !heard.keys.empty(); }));
    EXPECT_TRUE(std::is_sorted(heard.revisions.begin(), heard.revisions.end()));
    EXPECT_TRUE(heard.refused.ok()) << heard.refused;
  }
}

}  // namespace
}  // namespace starling
