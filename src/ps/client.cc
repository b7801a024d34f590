#include "ps/client.h"

#include <algorithm>
#include <future>
#include <set>
#include <utility>

#include "base/mutex.h"
#include "base/rng.h"
#include "net/backoff.h"
#include "ps/applied.h"
#include "ps/operation.h"

namespace starling {
namespace {

constexpr Duration kRetryMin = milliseconds(5);
constexpr Duration kRetryMax = seconds(1);
constexpr Duration kMapAttempt = seconds(5);

bool is_numbered(Method method) {
  return method == Method::kPsShrink || method == Method::kPsClear;
}

// A refusal by the shard itself that passes.
bool may_pass(const Status& refusal) {
  switch (reason_of(refusal)) {
    case v1::REASON_CUT_RUNNING:
    case v1::REASON_WINDOW_FULL:
    case v1::REASON_UNKNOWN_BATCH:
      return true;
    case v1::REASON_NONE:
      return refusal.code() == StatusCode::kUnavailable ||
             refusal.code() == StatusCode::kDeadlineExceeded;
    default:
      return false;
  }
}

// A failure on the way that passes. Too much in flight passes for what comes in numbers; for the
// rest it is an answer.
bool may_recover(const Status& status, Method method) {
  const bool is_data = method == Method::kPsFeedSample || method == Method::kPsEmbeddingLookup ||
                       method == Method::kPsPull || method == Method::kPsPush ||
                       method == Method::kPsPushGrad;
  return status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kDeadlineExceeded ||
         (is_data && status.code() == StatusCode::kResourceExhausted);
}

}  // namespace

// Lives on the lane but for the routes; tasks and callbacks hold it weakly.
class PsClient::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(Network& network, std::shared_ptr<Lane> lane, PsClientOptions options,
       SchedulerClient* scheduler)
      : network_(network),
        lane_(std::move(lane)),
        options_(options),
        client_(std::make_unique<Client>(network, lane_)),
        scheduler_(scheduler),
        session_(options.session != 0 ? options.session : mix64(options.incarnation + 1)),
        backoff_(kRetryMin, kRetryMax, session_) {}

  Lane& lane() { return *lane_; }

  template <typename F>
  void run(F task) {
    if (lane_->here()) return task(*this);
    lane_->post([self = shared_from_this(), task = std::move(task)]() mutable { task(*self); });
  }

  void close() {
    client_.reset();
    for (const auto& flight : std::exchange(flights_, {})) {
      fail(*flight->call, cancelled("the client has been closed"));
    }
  }

  Routes routes() const {
    MutexLock lock(mutex_);
    return routes_;
  }
  void set_map(const v1::ShardMap& map) {
    const Routes now = routes();
    if (now != nullptr && map.version() <= now->version()) return;
    StatusOr<ShardRoutes> made = ShardRoutes::make(map);
    if (!made.ok()) return;
    MutexLock lock(mutex_);
    routes_ = std::make_shared<const ShardRoutes>(*std::move(made));
  }
  void set_node(const v1::Node& node) {
    if (node.role() != v1::ROLE_PS) return;
    nodes_[node.id()] = node;
    if (node.state() != v1::NODE_STATE_DEAD && node.state() != v1::NODE_STATE_LEFT) return;
    const auto flights = flights_;
    for (const std::shared_ptr<Flight>& flight : flights) {
      if (flight->node != node.id()) continue;
      // First off the list: the end of a cancelled call is no answer.
      land(flight);
      if (client_ != nullptr && flight->is_out) client_->cancel(flight->call_id);
      fail(*flight->call, death_of(*flight, node));
    }
  }
  void joined(const v1::RegisterReply& reply) {
    if (options_.generation != reply.generation()) is_frozen_ = false;
    options_.node = reply.id();
    options_.generation = reply.generation();
    if (reply.has_map()) set_map(reply.map());
  }
  Status use_schema(const v1::CreateOption& option) { return schema_.add(option); }

  // Until freeze() the map may take the elements to other shards than they were pushed to.
  void keep_early(const std::vector<DenseValues>& values) {
    if (is_frozen_) return;
    const Routes now = routes();
    for (const DenseValues& one : values) {
      early_.insert_or_assign({one.variable, one.begin},
                              Early{one, now == nullptr ? 0 : now->version()});
    }
  }
  void keep_created(const v1::CreateOption& option, uint64_t version) {
    const std::string name = option.SerializeAsString();
    if (!is_frozen_) created_.insert_or_assign(name, std::pair(option, version));
  }
  std::vector<v1::CreateOption> created_before(uint64_t version) {
    std::vector<v1::CreateOption> out;
    for (const auto& [name, created] : created_) {
      if (created.second < version) out.push_back(created.first);
    }
    return out;
  }
  std::vector<DenseValues> early_before(uint64_t version) {
    std::vector<DenseValues> out;
    for (const auto& [name, early] : early_) {
      if (early.version < version) out.push_back(early.values);
    }
    return out;
  }
  void forget_early() {
    is_frozen_ = true;
    created_.clear();
    early_.clear();
  }
  const ClientSchema& schema() const { return schema_; }

  // Waits for a map first, where there is none.
  void start(std::shared_ptr<PsOperation> operation, Deadline deadline) {
    auto call = std::make_shared<OpenCall>();
    call->operation = std::move(operation);
    call->deadline = deadline;
    if (client_ == nullptr) return fail(*call, cancelled("the client has been closed"));
    if (call->operation->is_numbered()) {
      if (!numbers_.empty() && next_number_ - *numbers_.begin() >= kSessionWindow) {
        return fail(*call,
                    resource_exhausted("{} operations of this session are open", kSessionWindow));
      }
      take_number(*call);
    }
    begin(call);
  }

  void refresh_map() {
    if (scheduler_ == nullptr || std::exchange(is_refreshing_, true)) return;
    Message request;
    request.meta.mutable_get_map();
    scheduler_->call(Method::kSchedulerGetMap, std::move(request),
                     Deadline::in(lane_->clock(), kMapAttempt),
                     [self = weak_from_this(), lane = lane_](StatusOr<Message> reply) {
                       lane->post([self, reply = std::move(reply)] {
                         const auto core = self.lock();
                         if (core == nullptr) return;
                         core->is_refreshing_ = false;
                         if (!reply.ok() || !reply->meta.get_map_reply().has_map()) return;
                         core->set_map(reply->meta.get_map_reply().map());
                       });
                     });
  }

  void wait_for_map(Deadline deadline, DoneOr<Routes> done) {
    if (Routes now = routes(); now != nullptr) return done(std::move(now));
    if (client_ == nullptr) return done(cancelled("the client has been closed"));
    if (deadline.passed(lane_->clock().now())) return done(no_map());
    refresh_map();
    after(kRetryMin * 4, deadline, [deadline, done = std::move(done)](Core& core) mutable {
      core.wait_for_map(deadline, std::move(done));
    });
  }

 private:
  struct OpenCall {
    std::shared_ptr<PsOperation> operation;
    Deadline deadline;
    std::set<uint64_t> numbers;  // of the session, open until every answer is there
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> used;  // (node, lane) -> number sent there
    size_t open = 0;                                         // pieces without an answer
    bool is_over = false;
  };
  struct Early {  // pushed before freeze()
    DenseValues values;
    uint64_t version = 0;  // of the map by which it was cut
  };
  struct Flight {  // one piece on its way
    std::shared_ptr<OpenCall> call;
    Piece piece;
    Routes routes;  // by which it was cut
    uint32_t node = 0;
    uint32_t lane = 0;
    uint64_t number = 0;
    Message request;
    CallId call_id{};
    bool is_out = false;
    Status last;  // why the last try failed
  };

  template <typename F>
  void after(Duration time, Deadline deadline, F task) {
    const TimePoint now = lane_->clock().now();
    lane_->call_at(now + std::min(time, deadline.left(now)),
                   [self = weak_from_this(), task = std::move(task)]() mutable {
                     if (const auto core = self.lock()) task(*core);
                   });
  }

  Status no_map() const {
    return deadline_exceeded("the scheduler has published no map of shards yet");
  }

  void take_number(OpenCall& call) {
    call.numbers.insert(next_number_);
    numbers_.insert(next_number_++);
  }

  void begin(const std::shared_ptr<OpenCall>& call) {
    const Routes now = routes();
    if (now == nullptr) {
      return wait_for_map(call->deadline, [self = weak_from_this(), call](StatusOr<Routes> map) {
        const auto core = self.lock();
        if (core == nullptr) return;
        if (!map.ok()) return core->fail(*call, map.status());
        core->begin(call);
      });
    }
    StatusOr<std::vector<Piece>> pieces = call->operation->cut(*now, nullptr);
    if (!pieces.ok()) return fail(*call, pieces.status());
    send(call, now, *std::move(pieces));
  }

  void send(const std::shared_ptr<OpenCall>& call, const Routes& routes,
            std::vector<Piece> pieces) {
    call->open += pieces.size();
    if (call->open == 0) return succeed(*call);
    for (Piece& piece : pieces) {
      auto flight = std::make_shared<Flight>();
      flight->call = call;
      flight->routes = routes;
      flight->node = routes->shard(piece.shard).node();
      flight->lane = routes->shard(piece.shard).lane();
      flight->request = call->operation->request(*routes, piece);
      flight->piece = std::move(piece);
      if (call->operation->is_numbered()) flight->number = number_for(*call, *flight);
      flights_.insert(flight);
      attempt(flight);
    }
  }

  // A shard that has had this operation's number with other content gets the rest under a new one.
  uint64_t number_for(OpenCall& call, const Flight& flight) {
    const auto [it, is_first] =
        call.used.try_emplace({flight.node, flight.lane}, *call.numbers.begin());
    if (!is_first) {
      take_number(call);
      it->second = *call.numbers.rbegin();
    }
    return it->second;
  }

  void fill_header(const Flight& flight, v1::Header* header) {
    header->set_role(options_.role);
    header->set_role_id(options_.node);
    header->set_incarnation(options_.incarnation);
    header->set_generation(options_.generation);
    header->set_request_id(++request_ids_);
    header->set_map_version(flight.routes->version());
    header->set_lane(flight.lane);
    if (flight.number == 0) return;
    header->set_session(session_);
    header->set_number(flight.number);
    header->set_acked_below(*numbers_.begin());
  }

  StatusOr<Address> address_of(const Flight& flight) const {
    const Routes now = routes();
    const uint32_t index =
        now->index_of(static_cast<NodeId>(flight.node), static_cast<LaneId>(flight.lane));
    // A shard that the newest map has no more answers where it was, if at all.
    const v1::Shard& shard =
        index < now->shards() ? now->shard(index) : flight.routes->shard(flight.piece.shard);
    std::string offered;
    for (const v1::Address& address : shard.addresses()) {
      const auto protocol =
          parse_protocol(address.protocol().empty() ? "grpc" : address.protocol());
      offered += (offered.empty() ? "" : ", ") + address.protocol();
      if (!protocol.ok() || !network_.transport(*protocol).ok()) continue;
      if (options_.protocol.has_value() && *options_.protocol != *protocol) continue;
      return Address{*protocol, address.host(), static_cast<uint16_t>(address.port())};
    }
    return failed_precondition("{} offers {}, none of which this process speaks",
                               name_of(flight.node), offered);
  }

  void attempt(const std::shared_ptr<Flight>& flight) {
    if (client_ == nullptr || flight->call->is_over) return end(flight);
    if (auto it = nodes_.find(flight->node);
        it != nodes_.end() &&
        (it->second.state() == v1::NODE_STATE_DEAD || it->second.state() == v1::NODE_STATE_LEFT)) {
      land(flight);
      return fail(*flight->call, death_of(*flight, it->second));
    }
    const StatusOr<Address> address = address_of(*flight);
    if (!address.ok()) {
      land(flight);
      return fail(*flight->call, address.status());
    }
    Message message = flight->request;
    fill_header(*flight, message.meta.mutable_header());
    // A restore takes as long as it takes to read; asked again it would be read again.
    const bool is_long = flight->call->operation->method() == Method::kPsRestore;
    const Deadline deadline =
        is_long ? flight->call->deadline
                : std::min(flight->call->deadline, Deadline::in(lane_->clock(), options_.attempt));
    flight->is_out = true;
    flight->call_id =
        client_->call({.address = *address, .lane = static_cast<LaneId>(flight->lane)},
                      flight->call->operation->method(), std::move(message), deadline,
                      [self = weak_from_this(), flight](StatusOr<Message> result) {
                        if (const auto core = self.lock())
                          core->answered(flight, std::move(result));
                      });
  }

  void answered(const std::shared_ptr<Flight>& flight, StatusOr<Message> result) {
    flight->is_out = false;
    if (!flights_.contains(flight)) return;
    OpenCall& call = *flight->call;
    if (call.is_over) return end(flight);
    if (!result.ok()) {
      if (!may_recover(result.status(), call.operation->method())) {
        return give_up(flight, result.status());
      }
      refresh_map();
      return retry(flight, result.status());
    }
    const Status refusal = refusal_of(*result);
    if (refusal.ok()) {
      backoff_.reset();
      const Status taken = call.operation->take(*flight->routes, flight->piece, *std::move(result));
      return taken.ok() ? end(flight) : give_up(flight, taken);
    }
    if (reason_of(refusal) == v1::REASON_STALE_MAP) {
      if (result->meta.status().has_map()) set_map(result->meta.status().map());
      return recut(flight, refusal);
    }
    if (!may_pass(refusal)) return give_up(flight, refusal);
    retry(flight, refusal);
  }

  void recut(const std::shared_ptr<Flight>& flight, const Status& refusal) {
    const Routes now = routes();
    if (now->version() <= flight->routes->version()) {
      // The ps is ahead of what it told us.
      refresh_map();
      return retry(flight, refusal);
    }
    const StatusOr<std::vector<Piece>> pieces = flight->call->operation->cut(*now, &flight->piece);
    if (!pieces.ok()) return give_up(flight, refusal);
    const std::shared_ptr<OpenCall> call = flight->call;
    flights_.erase(flight);
    --call->open;
    send(call, now, *pieces);
  }

  void retry(const std::shared_ptr<Flight>& flight, const Status& why) {
    // That time ran out tells less than what the shard said before.
    const bool is_silence =
        why.code() == StatusCode::kDeadlineExceeded && reason_of(why) == v1::REASON_NONE;
    if (flight->last.ok() || !is_silence) flight->last = why;
    const TimePoint now = lane_->clock().now();
    const Duration pause = backoff_.next();
    if (flight->call->deadline.left(now) <= pause) return give_up(flight, flight->last);
    after(pause, flight->call->deadline, [flight](Core& core) {
      if (!core.flights_.contains(flight)) return;
      const Routes newest = core.routes();
      const bool is_stale = reason_of(flight->last) == v1::REASON_STALE_MAP &&
                            newest->version() > flight->routes->version();
      if (is_stale) return core.recut(flight, flight->last);
      core.attempt(flight);
    });
  }

  void give_up(const std::shared_ptr<Flight>& flight, const Status& why) {
    land(flight);
    const StatusOr<Address> address = address_of(*flight);
    fail(*flight->call,
         with_context(why, fmt::format("{} on shard {} of {} at {}",
                                       info_of(flight->call->operation->method()).name,
                                       flight->lane, name_of(flight->node),
                                       address.ok() ? address->to_string() : "no address")));
  }

  std::string name_of(uint32_t node) const {
    auto it = nodes_.find(node);
    return it == nodes_.end() ? fmt::format("ps node {}", node) : it->second.name();
  }
  Status death_of(const Flight& flight, const v1::Node& node) const {
    return unavailable("{} on shard {}: {} died", info_of(flight.call->operation->method()).name,
                       flight.lane, node.name());
  }

  // The piece is over, one way or the other.
  void land(const std::shared_ptr<Flight>& flight) {
    if (flights_.erase(flight) == 0) return;
    OpenCall& call = *flight->call;
    if (--call.open == 0 && call.is_over) release(call);
  }
  void end(const std::shared_ptr<Flight>& flight) {
    const std::shared_ptr<OpenCall> call = flight->call;
    land(flight);
    if (call->open == 0 && !call->is_over) succeed(*call);
  }
  void succeed(OpenCall& call) {
    call.is_over = true;
    release(call);
    call.operation->finish(absl::OkStatus());
  }
  // At once: what else is on its way ends by itself, and its number stays open until then.
  void fail(OpenCall& call, const Status& why) {
    if (std::exchange(call.is_over, true)) return;
    if (call.open == 0) release(call);
    call.operation->finish(why);
  }
  void release(OpenCall& call) {
    for (const uint64_t number : std::exchange(call.numbers, {})) numbers_.erase(number);
  }

  Network& network_;
  const std::shared_ptr<Lane> lane_;
  PsClientOptions options_;
  std::unique_ptr<Client> client_;
  SchedulerClient* const scheduler_;
  const uint64_t session_;
  Backoff backoff_;
  ClientSchema schema_;
  std::map<uint32_t, v1::Node> nodes_;  // the ps, by id
  std::set<std::shared_ptr<Flight>> flights_;
  uint64_t next_number_ = 1;
  std::set<uint64_t> numbers_;  // open
  uint64_t request_ids_ = 0;
  bool is_refreshing_ = false;
  bool is_frozen_ = false;
  // What freeze() does again when the map has changed: each with the version of its map.
  std::map<std::string, std::pair<v1::CreateOption, uint64_t>> created_;
  std::map<std::pair<std::string, uint64_t>, Early> early_;  // by variable and first element

  mutable Mutex mutex_;
  Routes routes_ ABSL_GUARDED_BY(mutex_);
};

namespace {

// Waits for what `start` hands its callback: by turning a driven lane, else by a future.
template <typename T, typename Start>
T wait_for(Lane& lane, Start start) {
  if (lane.here()) {
    STARLING_CHECK(lane.driven(), "a blocking call on a lane's own thread would wait for itself");
    auto out = std::make_shared<std::optional<T>>();
    start([out](T result) { *out = std::move(result); });
    lane.run_until([out] { return out->has_value(); }, Deadline::never());
    return **std::move(out);
  }
  auto promise = std::make_shared<std::promise<T>>();
  std::future<T> future = promise->get_future();
  start([promise](T result) { promise->set_value(std::move(result)); });
  return future.get();
}

}  // namespace

PsClient::PsClient(Network& network, std::shared_ptr<Lane> lane, PsClientOptions options,
                   SchedulerClient* scheduler)
    : core_(std::make_shared<Core>(network, std::move(lane), options, scheduler)) {}

PsClient::~PsClient() { core_->close(); }

void PsClient::stop() {
  core_->run([](Core& core) { core.close(); });
}

Lane& PsClient::lane() { return core_->lane(); }

void PsClient::on_event(const v1::Event& event) {
  if (event.has_map()) {
    core_->run([map = event.map()](Core& core) { core.set_map(map); });
  } else if (event.has_node()) {
    core_->run([node = event.node()](Core& core) { core.set_node(node); });
  }
}

void PsClient::joined(const v1::RegisterReply& reply) {
  core_->run([reply](Core& core) { core.joined(reply); });
}

Status PsClient::use_schema(const v1::CreateOption& option) {
  return wait_for<Status>(lane(), [&](DoneStatus done) {
    core_->run(
        [option, done = std::move(done)](Core& core) mutable { done(core.use_schema(option)); });
  });
}

PsClient::Routes PsClient::routes() const { return core_->routes(); }

StatusOr<PsClient::Routes> PsClient::wait_for_map(Deadline deadline) {
  return wait_for<StatusOr<Routes>>(lane(), [&](DoneOr<Routes> done) {
    core_->run([deadline, done = std::move(done)](Core& core) mutable {
      core.wait_for_map(deadline, std::move(done));
    });
  });
}

void PsClient::call(Method method, std::vector<ShardMessage> messages, Deadline deadline,
                    DoneOr<std::vector<Message>> done) {
  bool numbered = is_numbered(method);
  for (const ShardMessage& one : messages) {
    numbered |= method == Method::kPsStep && one.message.meta.step().has_set();
  }
  core_->run([operation = std::shared_ptr<PsOperation>(
                  make_raw(method, numbered, std::move(messages), std::move(done))),
              deadline](Core& core) { core.start(operation, deadline); });
}

StatusOr<std::vector<Message>> PsClient::call(Method method, std::vector<ShardMessage> messages,
                                              Deadline deadline) {
  return wait_for<StatusOr<std::vector<Message>>>(lane(), [&](DoneOr<std::vector<Message>> done) {
    call(method, std::move(messages), deadline, std::move(done));
  });
}

StatusOr<std::vector<Message>> PsClient::call_all(Method method, const Message& message,
                                                  Deadline deadline) {
  while (true) {
    STARLING_ASSIGN_OR_RETURN(const Routes map, wait_for_map(deadline));
    std::vector<ShardMessage> messages;
    for (uint32_t shard = 0; shard < map->shards(); ++shard) messages.push_back({shard, message});
    StatusOr<std::vector<Message>> replies = call(method, std::move(messages), deadline);
    // By the new map there are other shards.
    const bool again =
        reason_of(replies.status()) == v1::REASON_STALE_MAP && routes()->version() > map->version();
    if (!again) return replies;
  }
}

StatusOr<std::vector<Message>> PsClient::call_nodes(Method method, const Message& message,
                                                    Deadline deadline) {
  STARLING_ASSIGN_OR_RETURN(const Routes map, wait_for_map(deadline));
  std::vector<ShardMessage> messages;
  for (uint32_t shard = 0; shard < map->shards(); ++shard) {
    if (map->shard(shard).lane() == 0) messages.push_back({shard, message});
  }
  return call(method, std::move(messages), deadline);
}

// Starts the operation that `make` gives, or ends with why it cannot be made.
#define STARLING_PS_START(make, ...)                                               \
  core_->run([__VA_ARGS__, deadline, done = std::move(done)](Core& core) mutable { \
    StatusOr<std::unique_ptr<PsOperation>> operation = make;                       \
    if (!operation.ok()) return done(operation.status());                          \
    core.start(*std::move(operation), deadline);                                   \
  })

void PsClient::pull(std::vector<KeyPull> parts, Deadline deadline,
                    DoneOr<std::vector<PulledKeys>> done) {
  STARLING_PS_START(make_pull(core.schema(), std::move(parts), done), parts = std::move(parts));
}

void PsClient::push_grad(std::vector<KeyGrad> keys, std::vector<DenseValues> dense,
                         Deadline deadline, DoneStatus done) {
  STARLING_PS_START(make_push_grad(core.schema(), std::move(keys), std::move(dense), done),
                    keys = std::move(keys), dense = std::move(dense));
}

void PsClient::push(std::vector<KeyValues> keys, std::vector<DenseValues> dense, Deadline deadline,
                    DoneStatus done) {
  core_->run([dense](Core& core) { core.keep_early(dense); });
  STARLING_PS_START(make_push(core.schema(), std::move(keys), std::move(dense), done),
                    keys = std::move(keys), dense = std::move(dense));
}

void PsClient::pull_dense(std::vector<DenseCopy> known, Deadline deadline,
                          DoneOr<std::vector<DenseCopy>> done) {
  STARLING_PS_START(make_pull_dense(core.schema(), std::move(known), done),
                    known = std::move(known));
}
#undef STARLING_PS_START

StatusOr<std::vector<PulledKeys>> PsClient::pull(std::vector<KeyPull> parts, Deadline deadline) {
  return wait_for<StatusOr<std::vector<PulledKeys>>>(
      lane(), [&](auto done) { pull(std::move(parts), deadline, std::move(done)); });
}

Status PsClient::push_grad(std::vector<KeyGrad> keys, std::vector<DenseValues> dense,
                           Deadline deadline) {
  return wait_for<Status>(lane(), [&](auto done) {
    push_grad(std::move(keys), std::move(dense), deadline, std::move(done));
  });
}

Status PsClient::push(std::vector<KeyValues> keys, std::vector<DenseValues> dense,
                      Deadline deadline) {
  return wait_for<Status>(lane(), [&](auto done) {
    push(std::move(keys), std::move(dense), deadline, std::move(done));
  });
}

StatusOr<std::vector<DenseCopy>> PsClient::pull_dense(std::vector<DenseCopy> known,
                                                      Deadline deadline) {
  return wait_for<StatusOr<std::vector<DenseCopy>>>(
      lane(), [&](auto done) { pull_dense(std::move(known), deadline, std::move(done)); });
}

Status PsClient::feed(std::vector<ShardMessage> messages, Deadline deadline) {
  return call(Method::kPsFeedSample, std::move(messages), deadline).status();
}

StatusOr<std::vector<Message>> PsClient::lookup(std::vector<ShardMessage> messages,
                                                Deadline deadline) {
  return call(Method::kPsEmbeddingLookup, std::move(messages), deadline);
}

Status PsClient::push_batch(std::vector<ShardMessage> messages, Deadline deadline) {
  return call(Method::kPsPushGrad, std::move(messages), deadline).status();
}

Status PsClient::create(const v1::CreateOption& option, Deadline deadline) {
  Message message;
  *message.meta.mutable_create() = option;
  STARLING_ASSIGN_OR_RETURN(const Routes map, wait_for_map(deadline));
  STARLING_RETURN_IF_ERROR(call_all(Method::kPsCreate, message, deadline).status());
  core_->run(
      [option, version = map->version()](Core& core) { core.keep_created(option, version); });
  return use_schema(option);
}

// By one map: shards that came with it get the tables, and the elements that it moved their values.
StatusOr<std::vector<Message>> PsClient::freeze_by(uint64_t version, const v1::FreezeOption& option,
                                                   Deadline deadline) {
  using Kept = std::pair<std::vector<v1::CreateOption>, std::vector<DenseValues>>;
  Kept kept = wait_for<Kept>(lane(), [&](auto done) {
    core_->run([version, done = std::move(done)](Core& core) mutable {
      done({core.created_before(version), core.early_before(version)});
    });
  });
  for (const v1::CreateOption& one : kept.first) {
    STARLING_RETURN_IF_ERROR(create(one, deadline));
  }
  if (!kept.second.empty()) {
    STARLING_RETURN_IF_ERROR(push({}, std::move(kept.second), deadline));
  }
  Message message;
  *message.meta.mutable_freeze() = option;
  return call_all(Method::kPsFreeze, message, deadline);
}

StatusOr<uint64_t> PsClient::freeze(const v1::FreezeOption& option, Deadline deadline) {
  STARLING_ASSIGN_OR_RETURN(Routes map, wait_for_map(deadline));
  STARLING_ASSIGN_OR_RETURN(std::vector<Message> replies,
                            freeze_by(map->version(), option, deadline));
  while (routes()->version() != map->version()) {
    map = routes();
    STARLING_ASSIGN_OR_RETURN(replies, freeze_by(map->version(), option, deadline));
  }
  core_->run([](Core& core) { core.forget_early(); });
  const uint64_t hash = replies.front().meta.freeze_reply().schema_hash();
  for (const Message& reply : replies) {
    if (reply.meta.freeze_reply().schema_hash() == hash) continue;
    return internal_error("two shards are frozen with the schemas {:016x} and {:016x}", hash,
                          reply.meta.freeze_reply().schema_hash());
  }
  return hash;
}

StatusOr<v1::RestoreReply> PsClient::restore(const v1::RestoreOption& option, Deadline deadline) {
  Message message;
  *message.meta.mutable_restore() = option;
  STARLING_ASSIGN_OR_RETURN(const std::vector<Message> replies,
                            call_all(Method::kPsRestore, message, deadline));
  v1::RestoreReply out = replies.front().meta.restore_reply();
  for (size_t i = 1; i < replies.size(); ++i) {
    const v1::RestoreReply& one = replies[i].meta.restore_reply();
    if (one.cut_id() != out.cut_id()) {
      return aborted("one shard has read cut {}, another cut {}; name the cut", out.cut_id(),
                     one.cut_id());
    }
    out.set_rows(out.rows() + one.rows());
    out.set_bytes(out.bytes() + one.bytes());
  }
  return out;
}

StatusOr<std::vector<v1::StatReply>> PsClient::stat(const v1::StatOption& option,
                                                    Deadline deadline) {
  Message message;
  *message.meta.mutable_stat() = option;
  STARLING_ASSIGN_OR_RETURN(const std::vector<Message> replies,
                            call_all(Method::kPsStat, message, deadline));
  std::vector<v1::StatReply> out;
  for (const Message& reply : replies) out.push_back(reply.meta.stat_reply());
  return out;
}

StatusOr<std::vector<v1::PsHeartbeatReply>> PsClient::heartbeat(Deadline deadline) {
  Message message;
  message.meta.mutable_ps_heartbeat();
  STARLING_ASSIGN_OR_RETURN(const std::vector<Message> replies,
                            call_all(Method::kPsHeartbeat, message, deadline));
  std::vector<v1::PsHeartbeatReply> out;
  for (const Message& reply : replies) out.push_back(reply.meta.ps_heartbeat_reply());
  return out;
}

StatusOr<std::vector<v1::TableCount>> PsClient::shrink(const v1::ShrinkOption& option,
                                                       Deadline deadline) {
  Message message;
  *message.meta.mutable_shrink() = option;
  STARLING_ASSIGN_OR_RETURN(const std::vector<Message> replies,
                            call_all(Method::kPsShrink, message, deadline));
  std::map<std::pair<std::string, std::string>, uint64_t> rows;
  for (const Message& reply : replies) {
    for (const v1::TableCount& count : reply.meta.shrink_reply().evicted()) {
      rows[{count.table(), count.reason()}] += count.rows();
    }
  }
  std::vector<v1::TableCount> out;
  for (const auto& [name, count] : rows) {
    v1::TableCount& one = out.emplace_back();
    one.set_table(name.first);
    one.set_reason(name.second);
    one.set_rows(count);
  }
  return out;
}

Status PsClient::clear(const v1::ClearOption& option, Deadline deadline) {
  Message message;
  *message.meta.mutable_clear() = option;
  return call_all(Method::kPsClear, message, deadline).status();
}

StatusOr<uint64_t> PsClient::step(Deadline deadline) {
  Message message;
  message.meta.mutable_step();
  STARLING_ASSIGN_OR_RETURN(const std::vector<Message> replies,
                            call_all(Method::kPsStep, message, deadline));
  uint64_t highest = 0;
  for (const Message& reply : replies) highest = std::max(highest, reply.meta.step_reply().step());
  return highest;
}

Status PsClient::set_step(uint64_t step, Deadline deadline) {
  Message message;
  message.meta.mutable_step()->set_set(step);
  return call_all(Method::kPsStep, message, deadline).status();
}

Status PsClient::stop(const v1::StopOption& option, Deadline deadline) {
  Message message;
  *message.meta.mutable_stop() = option;
  return call_nodes(Method::kPsStop, message, deadline).status();
}

StatusOr<std::vector<v1::ProfileReply>> PsClient::profile(const v1::ProfileOption& option,
                                                          Deadline deadline) {
  Message message;
  *message.meta.mutable_profile() = option;
  STARLING_ASSIGN_OR_RETURN(const std::vector<Message> replies,
                            call_nodes(Method::kPsProfile, message, deadline));
  std::vector<v1::ProfileReply> out;
  for (const Message& reply : replies) out.push_back(reply.meta.profile_reply());
  return out;
}

}  // namespace starling
