#include "hub/client.h"

#include <algorithm>
#include <future>
#include <map>
#include <set>
#include <utility>

#include "base/mutex.h"
#include "base/rng.h"
#include "net/backoff.h"

namespace starling {
namespace {

constexpr Duration kRetryMin = milliseconds(5);
constexpr Duration kRetryMax = seconds(1);
constexpr Duration kLookAgain = milliseconds(20);

bool may_recover(const Status& status) {
  return status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kDeadlineExceeded ||
         status.code() == StatusCode::kResourceExhausted;
}

bool is_gone(const v1::Node& node) {
  return node.state() == v1::NODE_STATE_DEAD || node.state() == v1::NODE_STATE_LEFT;
}

}  // namespace

// Lives on the lane but for what its mutex guards; tasks and callbacks hold it weakly.
class HubClient::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(Network& network, std::shared_ptr<Lane> lane, HubClientOptions options)
      : network_(network),
        lane_(std::move(lane)),
        options_(options),
        client_(std::make_unique<Client>(network, lane_)),
        session_(options.session != 0 ? options.session : mix64(options.incarnation + 2)),
        backoff_(kRetryMin, kRetryMax, session_) {}

  Lane& lane() { return *lane_; }

  template <typename F>
  void run(F task) {
    if (lane_->here()) return task(*this);
    lane_->post([self = shared_from_this(), task = std::move(task)]() mutable { task(*self); });
  }

  void close() {
    client_.reset();
    for (const auto& call : std::exchange(calls_, {})) {
      call->done(cancelled("the client has been closed"));
    }
  }

  void set_node(const v1::Node& node) {
    if (node.role() != v1::ROLE_HUB) return;
    bool is_anew = false;
    {
      MutexLock lock(mutex_);
      const auto before = nodes_.find(node.id());
      is_anew = before != nodes_.end() && before->second.incarnation() != node.incarnation();
      nodes_[node.id()] = node;
      changed_.notify_all();
    }
    if (!is_gone(node) && !is_anew) return;
    const auto calls = calls_;
    for (const std::shared_ptr<Open>& call : calls) {
      if (call->hub != node.id()) continue;
      if (is_gone(node)) {
        end(call, unavailable("{} died", node.name()));
      } else if (call->is_out) {
        send_anew(call);
      }
    }
  }
  void joined(const v1::RegisterReply& reply) {
    options_.node = reply.id();
    options_.generation = reply.generation();
  }

  std::vector<uint32_t> hubs() const {
    MutexLock lock(mutex_);
    return alive();
  }
  StatusOr<std::vector<uint32_t>> wait_for_hubs(size_t hubs_min, Deadline deadline) {
    MutexLock lock(mutex_);
    while (alive().size() < hubs_min) {
      if (!changed_.wait(mutex_, deadline) && alive().size() < hubs_min) {
        return deadline_exceeded("{} hubs are there, {} are needed", alive().size(), hubs_min);
      }
    }
    return alive();
  }

  void start(uint32_t hub, Method method, Message request, Deadline deadline,
             DoneOr<Message> done) {
    auto call = std::make_shared<Open>();
    call->hub = hub;
    call->method = method;
    call->request = std::move(request);
    call->deadline = deadline;
    call->done = std::move(done);
    call->number = next_number_++;
    numbers_.insert(call->number);
    calls_.insert(call);
    attempt(call);
  }

 private:
  struct Open {
    uint32_t hub = 0;
    Method method{};
    Message request;
    Deadline deadline;
    DoneOr<Message> done;
    uint64_t number = 0;
    CallId id{};
    bool is_out = false;
  };

  std::vector<uint32_t> alive() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<uint32_t> out;
    for (const auto& [id, node] : nodes_) {
      if (!is_gone(node)) out.push_back(id);
    }
    return out;
  }

  StatusOr<Address> address_of(uint32_t hub) const {
    MutexLock lock(mutex_);
    const auto it = nodes_.find(hub);
    if (it == nodes_.end()) return not_found("no hub has node id {}", hub);
    if (is_gone(it->second)) return unavailable("{} died", it->second.name());
    for (const v1::Address& address : it->second.addresses()) {
      const auto protocol =
          parse_protocol(address.protocol().empty() ? "grpc" : address.protocol());
      if (!protocol.ok() || !network_.transport(*protocol).ok()) continue;
      if (options_.protocol.has_value() && *options_.protocol != *protocol) continue;
      return Address{*protocol, address.host(), static_cast<uint16_t>(address.port())};
    }
    return failed_precondition("{} offers no protocol that this process speaks", it->second.name());
  }

  void attempt(const std::shared_ptr<Open>& call) {
    if (client_ == nullptr) return end(call, cancelled("the client has been closed"));
    const StatusOr<Address> address = address_of(call->hub);
    if (!address.ok()) return end(call, address.status());
    Message message = call->request;
    v1::Header* header = message.meta.mutable_header();
    header->set_role(options_.role);
    header->set_role_id(options_.node);
    header->set_incarnation(options_.incarnation);
    header->set_generation(options_.generation);
    header->set_session(session_);
    header->set_number(call->number);
    header->set_acked_below(*numbers_.begin());
    const Deadline deadline =
        std::min(call->deadline, Deadline::in(lane_->clock(), options_.attempt));
    call->is_out = true;
    call->id = client_->call({.address = *address}, call->method, std::move(message), deadline,
                             [self = weak_from_this(), call](StatusOr<Message> result) {
                               if (const auto core = self.lock()) {
                                 core->answered(call, std::move(result));
                               }
                             });
  }

  // Whoever it was sent to is no more, and the net would try that address until the attempt ends.
  void send_anew(const std::shared_ptr<Open>& call) {
    // Off the list meanwhile: the end of a cancelled attempt is no answer.
    calls_.erase(call);
    client_->cancel(call->id);
    calls_.insert(call);
    attempt(call);
  }

  void answered(const std::shared_ptr<Open>& call, StatusOr<Message> result) {
    call->is_out = false;
    if (!calls_.contains(call)) return;
    if (result.ok()) {
      const Status refusal = refusal_of(*result);
      if (refusal.ok()) {
        backoff_.reset();
        return end(call, std::move(result));
      }
      // A failed dataset answers with its failure, which does not pass.
      const bool has_failed =
          result->meta.read_sample_reply().state() == v1::DATASET_STATE_FAILED ||
          result->meta.start_sample_reply().state() == v1::DATASET_STATE_FAILED;
      if (has_failed && call->method == Method::kHubReadSample) {
        return end(call, aborted("the dataset has failed: {}: {}", code_name(refusal.code()),
                                 message_of(refusal)));
      }
      if (has_failed || !may_recover(refusal)) return end(call, refusal);
      result = refusal;
    } else if (!may_recover(result.status())) {
      return end(call, result.status());
    }
    const Duration pause = backoff_.next();
    const TimePoint now = lane_->clock().now();
    if (call->deadline.left(now) <= pause) {
      return end(call, with_context(result.status(), info_of(call->method).name));
    }
    lane_->call_at(now + pause, [self = weak_from_this(), call] {
      const auto core = self.lock();
      if (core != nullptr && core->calls_.contains(call)) core->attempt(call);
    });
  }

  void end(const std::shared_ptr<Open>& call, StatusOr<Message> result) {
    if (calls_.erase(call) == 0) return;
    numbers_.erase(call->number);
    if (call->is_out && client_ != nullptr) client_->cancel(call->id);
    call->done(std::move(result));
  }

  Network& network_;
  const std::shared_ptr<Lane> lane_;
  HubClientOptions options_;
  std::unique_ptr<Client> client_;
  const uint64_t session_;
  Backoff backoff_;
  std::set<std::shared_ptr<Open>> calls_;
  uint64_t next_number_ = 1;
  std::set<uint64_t> numbers_;  // open

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<uint32_t, v1::Node> nodes_ ABSL_GUARDED_BY(mutex_);  // the hubs, by id
};

HubClient::HubClient(Network& network, std::shared_ptr<Lane> lane, HubClientOptions options)
    : core_(std::make_shared<Core>(network, std::move(lane), options)) {}

HubClient::~HubClient() { core_->close(); }

void HubClient::on_event(const v1::Event& event) {
  if (!event.has_node()) return;
  core_->run([node = event.node()](Core& core) { core.set_node(node); });
}

void HubClient::joined(const v1::RegisterReply& reply) {
  core_->run([reply](Core& core) { core.joined(reply); });
}

std::vector<uint32_t> HubClient::hubs() const { return core_->hubs(); }

StatusOr<std::vector<uint32_t>> HubClient::wait_for_hubs(size_t hubs_min, Deadline deadline) {
  return core_->wait_for_hubs(hubs_min, deadline);
}

void HubClient::call(uint32_t hub, Method method, Message request, Deadline deadline,
                     DoneOr<Message> done) {
  core_->run([hub, method, request = std::move(request), deadline,
              done = std::move(done)](Core& core) mutable {
    core.start(hub, method, std::move(request), deadline, std::move(done));
  });
}

void HubClient::start(uint32_t hub, const v1::StartSampleOption& option, Deadline deadline,
                      DoneOr<Message> done) {
  Message request;
  *request.meta.mutable_start_sample() = option;
  call(hub, Method::kHubStartSample, std::move(request), deadline, std::move(done));
}

StatusOr<v1::StartSampleReply> HubClient::start(const v1::StartSampleOption& option,
                                                Deadline deadline) {
  Status gone = unavailable("there is no hub");
  std::optional<v1::StartSampleReply> last;
  for (const uint32_t hub : hubs()) {
    while (true) {
      std::promise<StatusOr<Message>> promise;
      start(hub, option, deadline,
            [&promise](StatusOr<Message> reply) { promise.set_value(std::move(reply)); });
      const StatusOr<Message> reply = promise.get_future().get();
      const std::vector<uint32_t> alive = hubs();
      const bool is_alive = std::binary_search(alive.begin(), alive.end(), hub);
      // One that died meanwhile leaves its work to the others.
      if (!reply.ok() && !is_alive) {
        gone = reply.status();
        break;
      }
      STARLING_RETURN_IF_ERROR(reply.status());
      last = reply->meta.start_sample_reply();
      if (last->state() != v1::DATASET_STATE_LOADING) break;
      if (deadline.passed(lane().clock().now())) {
        return deadline_exceeded("dataset {} is still being opened", option.dataset());
      }
      std::this_thread::sleep_for(kLookAgain);
    }
  }
  if (!last.has_value()) return gone;
  return *last;
}

void HubClient::read(uint32_t hub, Message request, Deadline deadline, DoneOr<Message> done) {
  call(hub, Method::kHubReadSample, std::move(request), deadline, std::move(done));
}

StatusOr<Message> HubClient::read(uint32_t hub, Message request, Deadline deadline) {
  std::promise<StatusOr<Message>> promise;
  read(hub, std::move(request), deadline,
       [&promise](StatusOr<Message> reply) { promise.set_value(std::move(reply)); });
  return promise.get_future().get();
}

Lane& HubClient::lane() { return core_->lane(); }

}  // namespace starling
