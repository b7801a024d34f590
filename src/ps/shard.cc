#include "ps/shard.h"

#include <algorithm>

namespace starling {
namespace {

constexpr size_t kFormerMax = 64;  // processes of one node that are known to be over

}  // namespace

Message refusal_reply(const Status& status, v1::Reason reason) {
  Message reply = status_reply(status);
  reply.meta.mutable_status()->set_reason(reason);
  return reply;
}

Shard::Shard(ShardOptions options, ShardHost& host) : options_(options), host_(host) {}
Shard::~Shard() = default;

void Shard::handle(Method method, Message request, Token token, Deadline deadline, TimePoint now) {
  Call call{std::move(request), token, deadline, now};
  dispatch<Service::kPs>(*this, method, call);
}

std::vector<Shard::Output> Shard::take_outputs() { return std::exchange(outputs_, {}); }

void Shard::tick(TimePoint now) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (!it->deadline.passed(now)) {
      ++it;
      continue;
    }
    try_lookup(it->request, it->token, /*last_try=*/true);
    it = waiting_.erase(it);
  }
}

TimePoint Shard::next_wake() const {
  TimePoint first = TimePoint::max();
  for (const Waiting& waiting : waiting_) first = std::min(first, waiting.deadline.at());
  return first;
}

void Shard::refuse(Token token, const Status& status, v1::Reason reason) {
  Message reply = refusal_reply(status, reason);
  if (reason == v1::REASON_STALE_MAP) *reply.meta.mutable_status()->mutable_map() = routes_.map();
  answer(token, std::move(reply));
}

void Shard::on_event(const v1::Event& event) {
  if (event.has_map()) {
    StatusOr<ShardRoutes> routes = ShardRoutes::make(event.map());
    if (routes.ok() && routes->version() > routes_.version()) {
      routes_ = *std::move(routes);
      index_ = routes_.index_of(options_.node, options_.lane);
      // Placement is fixed by Freeze.
      if (!frozen_) own_variables();
    }
  } else if (event.has_rank()) {
    const v1::RankEvent& rank = event.rank();
    const auto id = static_cast<Rank>(rank.rank());
    if (rank.leaves()) {
      // In lock step somebody finishes what it left half pushed; else the batch comes back to
      // another rank, and the tick to nobody.
      if (rank.has_half_pushed() && !clocks_.synchronous(rank.clock())) {
        clocks_.drop(id, rank.clock());
      } else {
        clocks_.leave(id, rank.clock());
      }
      drop_staged_of(id, rank.clock());
      if (!clocks_.active(id)) rank_batches_.erase(id);
    } else {
      clocks_.join(id, rank.clock());
    }
    apply_ready_steps();
    retry_waiting();
  } else if (event.has_staleness()) {
    take_staleness(event.staleness());
  } else if (event.has_node()) {
    const v1::Node& node = event.node();
    const auto id = static_cast<NodeId>(node.id());
    const bool dead = node.state() == v1::NODE_STATE_DEAD || node.state() == v1::NODE_STATE_LEFT;
    NodeLife& life = nodes_[id];
    const auto incarnation = static_cast<Incarnation>(node.incarnation());
    if (life.incarnation != Incarnation{0} && (dead || life.incarnation != incarnation)) {
      drop_batches_of(id, life.incarnation);
      fence_sessions_of(id, life.incarnation);
    }
    if (life.incarnation != incarnation) {
      if (life.incarnation != Incarnation{0}) life.former.insert(life.incarnation);
      if (life.former.size() > kFormerMax) life.former.erase(life.former.begin());
    }
    life.incarnation = incarnation;
    life.dead = dead;
  } else if (event.has_job() && event.job().generation() > options_.generation) {
    begin_generation(event.job().generation());
  }
}

void Shard::take_staleness(const v1::StalenessEvent& event) {
  if (event.has_withdrawn_clock()) clocks_.withdraw_staleness(event.withdrawn_clock());
  const std::optional<uint32_t> bound =
      event.has_staleness() ? std::optional(event.staleness()) : std::nullopt;
  // Too late here, so it is announced again for a later clock.
  const bool is_late = !event.settled() && event.clock() > 0 && clocks_.is_past(event.clock());
  if (!is_late) clocks_.set_staleness(bound, event.clock());
  apply_ready_steps();
  retry_waiting();
}

void Shard::own_variables() {
  for (const auto& [name, variable] : variables_) {
    variable->own([this](uint32_t bucket) { return owns_bucket(bucket); });
  }
}

void Shard::begin_generation(uint64_t generation) {
  options_.generation = generation;
  drop_requests(failed_precondition("the job has started generation {}", generation),
                v1::REASON_WRONG_GENERATION);
  clocks_.clear();
  frozen_ = false;
}

void Shard::drop_requests(const Status& why, v1::Reason reason) {
  for (const Waiting& waiting : waiting_) refuse(waiting.token, why, reason);
  waiting_.clear();
  for (const auto& [clock, ranks] : staged_) {
    for (const auto& [rank, staged] : ranks) {
      for (const Token token : staged.tokens) refuse(token, why, reason);
    }
  }
  staged_.clear();
  staged_bytes_ = 0;
  announced_.clear();
  prepared_.clear();
  prepared_bytes_ = 0;
  kept_replies_.clear();
  rank_batches_.clear();
}

void Shard::note_session(const v1::Header& header) {
  if (header.incarnation() == 0) return;
  session_owners_[header.session()] = {static_cast<NodeId>(header.role_id()),
                                       static_cast<Incarnation>(header.incarnation())};
}

void Shard::fence_sessions_of(NodeId node, Incarnation incarnation) {
  for (auto it = session_owners_.begin(); it != session_owners_.end();) {
    if (it->second != std::pair(node, incarnation)) {
      ++it;
      continue;
    }
    numbers_.fence(it->first);
    it = session_owners_.erase(it);
  }
}

Shard::Refusal Shard::check_header(const v1::Header& header, bool reads) const {
  const bool no_generation = header.generation() == 0;
  if (header.generation() > options_.generation) {
    return {unavailable("generation {} of the job has not arrived here yet, this is {}; try again",
                        header.generation(), options_.generation)};
  }
  if (header.generation() != options_.generation && !(reads && no_generation)) {
    return {failed_precondition("the request is of generation {} of the job, this is {}",
                                header.generation(), options_.generation),
            v1::REASON_WRONG_GENERATION};
  }
  if (auto it = nodes_.find(static_cast<NodeId>(header.role_id()));
      it != nodes_.end() && header.incarnation() != 0) {
    const NodeLife& life = it->second;
    const auto incarnation = static_cast<Incarnation>(header.incarnation());
    if ((life.dead && life.incarnation == incarnation) || life.former.contains(incarnation)) {
      return {failed_precondition("node {} incarnation {:016x} has been declared dead",
                                  header.role_id(), header.incarnation()),
              v1::REASON_FENCED};
    }
    // It may be the process that took the node over: the scheduler has answered it before its word
    // came here.
    if (life.incarnation != incarnation) {
      return {unavailable("node {} incarnation {:016x} is not known here yet; try again",
                          header.role_id(), header.incarnation())};
    }
  }
  if (!reads && header.role() == v1::ROLE_UNKNOWN) {
    return {permission_denied("a caller without a role may only read"), v1::REASON_NONE};
  }
  return {};
}

// Who creates and freezes must mean the same shards as we do.
Shard::Refusal Shard::check_map(const v1::Header& header) const {
  const uint64_t asked = header.map_version();
  if (asked == 0 || asked == routes_.version()) return {};
  if (asked > routes_.version()) {
    return {unavailable("map {} has not arrived here yet, this is {}", asked, routes_.version())};
  }
  return {failed_precondition("the request is by map {}, this is {}", asked, routes_.version()),
          v1::REASON_STALE_MAP};
}

Shard::Refusal Shard::check_trainable(const v1::Header& header, bool reads) const {
  if (!frozen_) {
    return {failed_precondition("tables are still being created; Freeze comes before training"),
            v1::REASON_NOT_FROZEN};
  }
  return check_header(header, reads);
}

AppliedNumbers::Operation Shard::operation_of(const Message& request) const {
  const v1::Header& header = request.meta.header();
  return {.session = header.session(),
          .number = header.number(),
          .acked_below = header.acked_below(),
          .content_hash = content_hash(request)};
}

v1::Reason Shard::reason_of(const Status& status, const AppliedNumbers::Operation& operation) {
  switch (status.code()) {
    case StatusCode::kResourceExhausted:
      return v1::REASON_WINDOW_FULL;
    case StatusCode::kFailedPrecondition:
      return v1::REASON_FENCED;
    case StatusCode::kInvalidArgument:
      return operation.session != 0 && operation.number != 0 ? v1::REASON_NUMBER_REUSED
                                                             : v1::REASON_NONE;
    default:
      return v1::REASON_NONE;
  }
}

Shard::Refusal Shard::memory_full() const {
  return {resource_exhausted("{} bytes are in use, the limit is {}; new rows are refused",
                             memory_bytes(), options_.memory_bytes_max),
          v1::REASON_MEMORY_FULL};
}

bool Shard::begin_numbered(Call& call, AppliedNumbers::Operation& operation) {
  operation = operation_of(call.request);
  const StatusOr<Seen> seen = numbers_.check(operation);
  if (!seen.ok()) {
    refuse(call.token, seen.status(), reason_of(seen.status(), operation));
    return false;
  }
  if (*seen == Seen::kRepeat) {
    ++counts_.repeats;
    answer_ok(call.token);
    return false;
  }
  note_session(call.request.meta.header());
  return true;
}

Table* Shard::table(const std::string& name) {
  auto it = tables_.find(name);
  return it == tables_.end() ? nullptr : it->second.get();
}

DenseVariable* Shard::variable(const std::string& name) {
  auto it = variables_.find(name);
  return it == variables_.end() ? nullptr : it->second.get();
}

bool Shard::prepare() {
  return std::any_of(tables_.begin(), tables_.end(),
                     [](const auto& entry) { return entry.second->prepare(); });
}

size_t Shard::memory_bytes() const {
  size_t bytes = prepared_bytes_ + staged_bytes_;
  for (const auto& [name, table] : tables_) bytes += table->memory_bytes();
  for (const auto& [name, variable] : variables_) bytes += variable->memory_bytes();
  return bytes;
}

void Shard::on(MethodTag<Method::kPsCreate>, Call& call) {
  if (Refusal refusal = check_header(call.request.meta.header(), false); !refusal.status.ok()) {
    return refuse(call.token, refusal);
  }
  if (Refusal refusal = check_map(call.request.meta.header()); !refusal.status.ok()) {
    return refuse(call.token, refusal);
  }
  ShardSchema next = schema_;
  if (const Status status = next.add(call.request.meta.create()); !status.ok()) {
    const bool differs = status.code() == StatusCode::kAlreadyExists;
    return refuse(call.token, status, differs ? v1::REASON_SCHEMA_DIFFERS : v1::REASON_NONE);
  }
  if (frozen_) {
    if (next.hash() == schema_.hash()) return answer_ok(call.token);
    return refuse(call.token, failed_precondition("the set of tables is frozen"),
                  v1::REASON_FROZEN);
  }
  // All are made before any is kept: a message is taken whole or not at all.
  std::map<std::string, std::unique_ptr<Table>> tables;
  for (const auto& [name, proto] : next.tables()) {
    if (tables_.contains(name)) continue;
    StatusOr<TableOptions> options = table_options(proto, next.seed());
    if (!options.ok()) return refuse(call.token, options.status());
    StatusOr<std::unique_ptr<Table>> made = Table::make(*options);
    if (!made.ok()) return refuse(call.token, made.status());
    tables.emplace(name, *std::move(made));
  }
  std::map<std::string, std::unique_ptr<DenseVariable>> variables;
  for (const auto& [name, proto] : next.variables()) {
    if (variables_.contains(name)) continue;
    auto made = DenseVariable::make(proto, next.seed(),
                                    [this](uint32_t bucket) { return owns_bucket(bucket); });
    if (!made.ok()) return refuse(call.token, made.status());
    variables.emplace(name, *std::move(made));
  }
  tables_.merge(tables);
  variables_.merge(variables);
  schema_ = std::move(next);
  answer_ok(call.token);
}

void Shard::on(MethodTag<Method::kPsFreeze>, Call& call) {
  if (Refusal refusal = check_header(call.request.meta.header(), false); !refusal.status.ok()) {
    return refuse(call.token, refusal);
  }
  if (Refusal refusal = check_map(call.request.meta.header()); !refusal.status.ok()) {
    return refuse(call.token, refusal);
  }
  const v1::FreezeOption& option = call.request.meta.freeze();
  const uint64_t hash = schema_.hash();
  if (option.schema_hash() != 0 && option.schema_hash() != hash) {
    return refuse(call.token,
                  already_exists("the schema's hash is {:016x} here, {:016x} elsewhere", hash,
                                 option.schema_hash()),
                  v1::REASON_SCHEMA_DIFFERS);
  }
  const bool synchronous = option.has_staleness() && option.staleness() == 0;
  if (synchronous && (option.ranks() == 0 || option.push_bytes_max() == 0)) {
    return refuse(call.token, invalid_argument("staleness 0 needs ranks and push_bytes_max"));
  }
  if (uint64_t needed = 0;
      __builtin_mul_overflow(uint64_t{option.ranks()}, option.push_bytes_max(), &needed) ||
      needed > options_.staging_bytes_max) {
    return refuse(call.token,
                  resource_exhausted(
                      "{} ranks with pushes of {} bytes need more than the staging budget of {}",
                      option.ranks(), option.push_bytes_max(), options_.staging_bytes_max));
  }
  // Another shard may have refused the first Freeze for its map; this one is by a newer.
  own_variables();
  if (!frozen_) {
    clocks_.set_staleness(option.has_staleness() ? std::optional(option.staleness())
                                                 : std::nullopt);
    frozen_ = true;
  }
  Message reply;
  reply.meta.mutable_freeze_reply()->set_schema_hash(hash);
  answer(call.token, std::move(reply));
}

}  // namespace starling
