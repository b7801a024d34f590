// Several transports in one process, leading to the same lanes.

#include "net/conformance/child.h"
#include "net/conformance/suite.h"
#include "net/makers.h"

namespace starling::conformance {
namespace {

// With the transports that make_network() brings, or each of them wrapped.
class Mixed : public testing::TestWithParam<bool> {
 protected:
  Mixed() : network_(make_network(options_for(Maker()), Log(), metrics_)) {
    if (!GetParam()) return;
    network_ = std::make_unique<Network>(options_for(Maker()), Log(), metrics_);
    for (const Protocol protocol : all_protocols()) {
      network_->add(protocol, make_transport({.protocol = protocol, .faulty = true}, *network_));
    }
  }

  Metrics metrics_;
  std::unique_ptr<Network> network_;
  Parrot parrot_;
};

TEST_P(Mixed, AServerListensOnSeveralTransportsWithTheSameLanes) {
  ServerOptions options;
  for (const Protocol protocol : all_protocols()) {
    options.listen.push_back({.protocol = protocol, .host = "127.0.0.1"});
  }
  options.handlers = {serving(parrot_), serving(parrot_)};
  auto server = Server::start(*network_, std::move(options));
  ASSERT_TRUE(server.ok()) << server.status();
  Client client(*network_);
  Ends ends;
  uint64_t id = 0;
  for (int round = 0; round < 50; ++round) {
    for (const Protocol protocol : all_protocols()) {
      for (const uint32_t lane : {0u, 1u}) {
        ++id;
        client.call({.address = *(*server)->address(protocol), .lane = static_cast<LaneId>(lane)},
                    Method::kPeerCall, ask_with(kEcho, id, id * 100), patience(), ends.take(id));
      }
    }
  }
  ASSERT_TRUE(ends.wait(id));
  EXPECT_EQ(ends.count_of(StatusCode::kOk), id);
  EXPECT_TRUE((*server)->stop(patience()).ok());
}

TEST_P(Mixed, AProcessTalksInprocToItselfAndGrpcPlusPlusToOthers) {
  Child child({"serve", "fast", "0"});
  const Address remote{.protocol = Protocol::kFast,
                       .host = "127.0.0.1",
                       .port = static_cast<uint16_t>(std::atoi(child.line().c_str()))};
  ServerOptions options;
  options.listen = {{.protocol = Protocol::kInproc, .host = "self"}};
  options.handlers = {serving(parrot_)};
  auto server = Server::start(*network_, std::move(options));
  ASSERT_TRUE(server.ok()) << server.status();
  auto lane = network_->make_driven_lane();
  Client client(*network_, lane);
  for (uint64_t id = 1; id <= 50; ++id) {
    for (const Address& address : {(*server)->addresses()[0], remote}) {
      auto answer = client.call_wait({.address = address}, Method::kPeerCall,
                                     ask_with(kEcho, id, 70'000), patience());
      ASSERT_TRUE(answer.ok()) << answer.status();
      EXPECT_TRUE(is_tensor_of(answer->tensors.at(0), id, 70'000));
    }
    EXPECT_EQ(parrot_.times(id), 1);
  }
  child.kill();
  auto gone = client.call_wait({.address = remote}, Method::kPeerCall, ask(kEcho, 99),
                               Deadline::in(RealClock(), milliseconds(200)));
  EXPECT_FALSE(gone.ok());
  EXPECT_TRUE(client
                  .call_wait({.address = (*server)->addresses()[0]}, Method::kPeerCall,
                             ask(kEcho, 100), patience())
                  .ok())
      << "one transport's trouble is not the other's";
}

TEST_P(Mixed, AServerThatCannotListenEverywhereDoesNotListenAnywhere) {
  ServerOptions options;
  options.listen = {{.protocol = Protocol::kInproc, .host = "twice"},
                    {.protocol = Protocol::kInproc, .host = "twice"}};
  options.handlers = {serving(parrot_)};
  EXPECT_EQ(Server::start(*network_, options).status().code(), StatusCode::kAlreadyExists);
  options.listen.pop_back();
  EXPECT_TRUE(Server::start(*network_, options).ok()) << "the first name was not given back";
}

TEST_P(Mixed, AProtocolThatIsNotThereIsUnimplemented) {
  Network bare(NetOptions(), Log(), metrics_);
  Client client(bare);
  auto answer = client.call_wait({.address = {.protocol = Protocol::kInproc, .host = "x"}},
                                 Method::kPeerCall, ask(kEcho, 1), patience());
  EXPECT_TRUE(code_is(answer.status(), StatusCode::kUnimplemented));
}

INSTANTIATE_TEST_SUITE_P(All, Mixed, testing::Bool(),
                         [](const auto& info) { return info.param ? "wrapped" : "bare"; });

}  // namespace
}  // namespace starling::conformance
