// What the unit tests of this room share: a transport whose ends of calls the test decides.
//
// Uses: net. Threads: one; for manual lanes.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/manual_lane.h"
#include "net/transport.h"

namespace starling::net_testing {

// What channels of the FakeTransport were told, in its order.
struct Told {
  struct Start {
    Target target;
    CallId id;
    Method method;
    Message message;
    Deadline deadline;
    ChannelSink* sink;
  };
  std::vector<Start> starts;
  std::vector<CallId> cancels;
  int open_channels = 0;
  int opened = 0;
  Status trouble;

  // Ends the call of `starts[i]`.
  void finish(size_t i, StatusOr<Message> result) {
    starts.at(i).sink->finished(starts[i].id, std::move(result));
  }
};

class FakeTransport final : public Transport {
 public:
  explicit FakeTransport(Told& told) : told_(told) {}
  StatusOr<std::unique_ptr<Listener>> listen(const Address& address,
                                             std::shared_ptr<Intake>) override {
    return unimplemented("{}: a fake does not listen", address.to_string());
  }
  StatusOr<std::unique_ptr<Channel>> open(const Target& target, std::shared_ptr<Lane>,
                                          ChannelSink& sink) override {
    return std::make_unique<FakeChannel>(told_, target, sink);
  }
  bool ordered() const override { return true; }

 private:
  class FakeChannel final : public Channel {
   public:
    FakeChannel(Told& told, const Target& target, ChannelSink& sink)
        : told_(told), target_(target), sink_(sink) {
      ++told_.open_channels;
      ++told_.opened;
    }
    ~FakeChannel() override { --told_.open_channels; }
    void start(CallId id, Method method, Message message, Deadline deadline) override {
      told_.starts.push_back({target_, id, method, std::move(message), deadline, &sink_});
    }
    void cancel(CallId id) override { told_.cancels.push_back(id); }
    Status trouble() const override { return told_.trouble; }

   private:
    Told& told_;
    const Target target_;
    ChannelSink& sink_;
  };

  Told& told_;
};

inline Message named(std::string name) {
  Message message;
  message.meta.set_name(std::move(name));
  return message;
}

}  // namespace starling::net_testing
