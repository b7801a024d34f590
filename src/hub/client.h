// HubClient is the one way to the hubs: it knows which there are, starts datasets on all of them,
// reads batches from one, and repeats a request with the same number until it is answered.
//
// Uses: base, wire, net, scheduler/client.h. Threads: any; callbacks come on the client's lane.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/client.h"
#include "scheduler/client.h"

namespace starling {

struct HubClientOptions {
  // Of the node, as Register answered; see joined().
  v1::Role role = v1::ROLE_TRAINER;
  uint32_t node = 0;
  uint64_t incarnation = 0;
  uint64_t generation = 0;
  uint64_t session = 0;              // 0: from the incarnation
  std::optional<Protocol> protocol;  // none: the first that a hub offers and this process has
  Duration attempt = seconds(10);    // one try; the call's own deadline may be longer
};

class HubClient {
 public:
  template <typename T>
  using DoneOr = Function<void(StatusOr<T>)>;

  // `network` outlives it. Destroyed on its lane or after that has stopped; calls that are open end
  // with Cancelled.
  HubClient(Network& network, std::shared_ptr<Lane> lane, HubClientOptions options);
  ~HubClient();

  // What the scheduler tells: which hubs there are, and which died. Calls to a dead one end at once
  // with Unavailable and its name; where another process has come in its place they go there.
  void on_event(const v1::Event& event);
  // The process was registered, or registered again.
  void joined(const v1::RegisterReply& reply);

  // The hubs that are alive, by node id, ascending.
  std::vector<uint32_t> hubs() const;
  // Waits until there are `hubs_min` of them. DeadlineExceeded: there are fewer.
  StatusOr<std::vector<uint32_t>> wait_for_hubs(size_t hubs_min, Deadline deadline);

  // Starts a dataset on every hub and waits until all that live have opened it. AlreadyExists: it
  // is there with other options. Unavailable: no hub lives. Else: why it cannot be read, as the
  // first hub says that fails.
  StatusOr<v1::StartSampleReply> start(const v1::StartSampleOption& option, Deadline deadline);
  // The same on one hub, as it stands now; DATASET_STATE_LOADING: ask again.
  void start(uint32_t hub, const v1::StartSampleOption& option, Deadline deadline,
             DoneOr<Message> done);

  // Hub.ReadSample: `request` has the option and, of its header, rank and clock. Numbered here; a
  // repeat carries the same number. NotFound: the hub does not know the dataset (it is new):
  // start() it. Unavailable: the hub died; ask another, its batches come back under the same ids.
  // Aborted: the dataset cannot go on (DATASET_STATE_FAILED), the message says why.
  void read(uint32_t hub, Message request, Deadline deadline, DoneOr<Message> done);
  StatusOr<Message> read(uint32_t hub, Message request, Deadline deadline);

  // Any RPC of a hub.
  void call(uint32_t hub, Method method, Message request, Deadline deadline, DoneOr<Message> done);

  Lane& lane();

 private:
  class Core;
  std::shared_ptr<Core> core_;
};

}  // namespace starling
