#include "net/faulty.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "net/net_testing.h"

namespace starling {
namespace {

using net_testing::FakeTransport;
using net_testing::named;
using net_testing::Told;

class Sink : public ChannelSink {
 public:
  void finished(CallId id, StatusOr<Message> result) override {
    ends.emplace_back(id, result.status());
    if (then) then();
  }
  std::function<void()> then;
  std::vector<std::pair<CallId, Status>> ends;
};

class Faulty : public testing::Test {
 protected:
  void open(FaultOptions options) {
    transport_ = std::make_unique<FaultyTransport>(std::make_unique<FakeTransport>(told_), options);
    channel_ = *transport_->open({}, lane_, sink_);
  }
  void start(uint64_t id) {
    channel_->start(static_cast<CallId>(id), Method::kPeerCall, named("x"), Deadline::never());
  }
  void run(Duration time) {
    lanes_.run_until([] { return false; }, time);
  }

  ManualLanes lanes_;
  std::shared_ptr<Lane> lane_ = lanes_.make();
  Told told_;
  Sink sink_;
  std::unique_ptr<FaultyTransport> transport_;
  std::unique_ptr<Channel> channel_;
};

TEST_F(Faulty, WithoutFaultsChangesNothing) {
  open({});
  start(5);
  ASSERT_EQ(told_.starts.size(), 1u);
  told_.finish(0, Message());
  ASSERT_EQ(sink_.ends.size(), 1u);
  EXPECT_EQ(sink_.ends[0].first, CallId{5});
  EXPECT_TRUE(transport_->ordered());
}

TEST_F(Faulty, ADroppedRequestIsNeverSent) {
  open({.drop_request = 1});
  start(1);
  run(seconds(10));
  EXPECT_TRUE(told_.starts.empty());
  EXPECT_TRUE(sink_.ends.empty());
  channel_->cancel(CallId{1});
}

TEST_F(Faulty, ADroppedReplyIsNeverHeard) {
  open({.drop_reply = 1});
  start(1);
  ASSERT_EQ(told_.starts.size(), 1u);
  told_.finish(0, Message());
  run(seconds(10));
  EXPECT_TRUE(sink_.ends.empty());
}

TEST_F(Faulty, ARepeatIsSentTwiceAndEndsOnce) {
  open({.repeat = 1});
  start(1);
  ASSERT_EQ(told_.starts.size(), 2u);
  EXPECT_NE(told_.starts[0].id, told_.starts[1].id);
  told_.finish(1, Message());
  EXPECT_EQ(sink_.ends.size(), 1u);
  EXPECT_EQ(told_.cancels, std::vector<CallId>{told_.starts[0].id});
  told_.finish(0, Message());
  EXPECT_EQ(sink_.ends.size(), 1u);
  EXPECT_FALSE(transport_->ordered());
}

TEST_F(Faulty, ADelayIsAtMostItsMaximum) {
  open({.delay = 1, .delay_max = milliseconds(20)});
  for (uint64_t id = 1; id <= 50; ++id) start(id);
  EXPECT_TRUE(told_.starts.empty());
  run(milliseconds(21));
  ASSERT_EQ(told_.starts.size(), 50u);
  EXPECT_FALSE(transport_->ordered());
}

TEST_F(Faulty, ACutEndsEveryCallInFlight) {
  open({.cut = 1});
  start(1);
  start(2);
  run(seconds(1));
  ASSERT_EQ(sink_.ends.size(), 2u);
  for (const auto& [id, status] : sink_.ends) EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(told_.starts.empty());
  EXPECT_EQ(told_.opened, 3) << "a new connection after each cut";
  EXPECT_EQ(told_.open_channels, 1);
}

TEST_F(Faulty, TheEndOfADeadPeersCallIsNoReplyThatCouldBeDropped) {
  open({.drop_reply = 1});
  start(1);
  told_.finish(0, unavailable("gone"));
  ASSERT_EQ(sink_.ends.size(), 1u);
  EXPECT_EQ(sink_.ends[0].second.code(), StatusCode::kUnavailable);
}

TEST_F(Faulty, AChannelMayGoInTheEndOfACallThatWasCut) {
  open({.cut = 1});
  sink_.then = [&] { channel_.reset(); };
  for (uint64_t id = 1; id <= 10; ++id) start(id);
  run(seconds(1));
  EXPECT_EQ(sink_.ends.size(), 1u);
}

TEST_F(Faulty, ACancelledCallEndsNowhere) {
  open({.delay = 1});
  start(1);
  channel_->cancel(CallId{1});
  run(seconds(1));
  EXPECT_TRUE(told_.starts.empty()) << "sent after it was cancelled";
  EXPECT_TRUE(sink_.ends.empty());
}

TEST_F(Faulty, AChannelMayGoWithDelaysOpen) {
  open({.delay = 1});
  for (uint64_t id = 1; id <= 10; ++id) start(id);
  channel_.reset();
  run(seconds(1));
  EXPECT_TRUE(told_.starts.empty());
}

TEST_F(Faulty, FaultsFollowFromTheSeed) {
  std::set<std::vector<uint64_t>> outcomes;
  for (const uint64_t seed : {1, 1, 2}) {
    told_.starts.clear();
    open({.seed = seed, .drop_request = 0.5});
    std::vector<uint64_t> sent;
    for (uint64_t id = 1; id <= 64; ++id) {
      const size_t before = told_.starts.size();
      start(id);
      if (told_.starts.size() > before) sent.push_back(id);
    }
    outcomes.insert(sent);
  }
  EXPECT_EQ(outcomes.size(), 2u);
}

}  // namespace
}  // namespace starling
