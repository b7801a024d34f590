#include "tests/cluster/world.h"

#include <fmt/format.h>

#include <thread>

#include "store/file_systems.h"

namespace starling::cluster {

Node::Node(Network& network, const Address& scheduler_at, v1::Role role, const std::string& name,
           uint64_t number)
    : incarnation(number), lane(network.make_lane(name, 0)) {
  SchedulerClientOptions options;
  options.scheduler = scheduler_at;
  options.role = role;
  options.name = name;
  options.incarnation = incarnation;
  options.workers = role == v1::ROLE_TRAINER ? 1 : 0;
  scheduler = std::make_unique<SchedulerClient>(network, lane, options, this);
  PsClientOptions mine;
  mine.role = role;
  mine.incarnation = incarnation;
  ps = std::make_unique<PsClient>(network, lane, mine, scheduler.get());
}

Node::~Node() {
  lane->stop();
  ps.reset();
  scheduler.reset();
}

Status Node::join() {
  STARLING_ASSIGN_OR_RETURN(const v1::RegisterReply reply, scheduler->join_wait(soon()));
  ranks.assign(reply.ranks().begin(), reply.ranks().end());
  ps->joined(reply);
  return ps->wait_for_map(soon()).status();
}

void Node::on_event(const v1::Event& event) { ps->on_event(event); }

World::World(const WorldOptions& options) : options_(options) {
  network_ = make_network(NetOptions(), Log(), metrics_);
  const RealClock clock;
  files_ = FileSystems::standard({.incarnation = Incarnation{1}}, clock);
  SchedulerServerOptions scheduler;
  scheduler.scheduler.ps_expected = options.map_grows ? 1 : options.ps;
  scheduler.scheduler.trainers_expected = options.trainers;
  scheduler.scheduler.staleness = options.staleness;
  scheduler.scheduler.lease = seconds(5);
  scheduler.scheduler.heartbeat = milliseconds(50);
  scheduler.listen = {listen("scheduler")};
  auto started = SchedulerServer::start(*network_, std::move(scheduler),
                                        *MemoryLedger::open(journal_), nullptr);
  EXPECT_TRUE(started.ok()) << started.status();
  scheduler_ = *std::move(started);
  for (uint32_t i = 0; i < options.ps; ++i) start_ps();
  for (const auto& ps : ps_) {
    const Status joined = ps->wait_joined(soon());
    EXPECT_TRUE(joined.ok()) << joined;
  }
}

void World::start_ps() {
  PsServerOptions one;
  one.name = fmt::format("ps-{}", ps_.size());
  one.scheduler = scheduler_->addresses().front();
  one.listen = {listen(one.name)};
  one.incarnation = 100 + ps_.size();
  one.shards = options_.shards;
  one.memory_bytes_max = options_.memory_bytes_max;
  one.files = files_.get();
  one.trace_path = options_.trace_path;
  auto ps = PsServer::start(*network_, std::move(one));
  ASSERT_TRUE(ps.ok()) << ps.status();
  ps_.push_back(*std::move(ps));
}

void World::add_ps() {
  ASSERT_NO_FATAL_FAILURE(start_ps());
  const Status joined = ps_.back()->wait_joined(soon());
  ASSERT_TRUE(joined.ok()) << joined;
}

World::~World() {
  nodes_.clear();
  for (const auto& ps : ps_) {
    if (ps != nullptr) ps->stop(Deadline::in(RealClock(), seconds(5))).IgnoreError();
  }
  ps_.clear();
  scheduler_.reset();
}

Address World::listen(const std::string& name) const {
  if (options_.protocol == Protocol::kInproc) return {.protocol = Protocol::kInproc, .host = name};
  return {.protocol = options_.protocol, .host = "127.0.0.1"};
}

Node& World::add(v1::Role role, const std::string& name) {
  nodes_.push_back(
      std::make_unique<Node>(*network_, scheduler(), role, name, 1000 + nodes_.size()));
  return *nodes_.back();
}

Node& World::client() {
  Node& node = add(v1::ROLE_CLIENT, fmt::format("client-{}", nodes_.size()));
  const Status joined = node.join();
  EXPECT_TRUE(joined.ok()) << joined;
  const Deadline deadline = soon();
  while (node.ps->routes()->shards() < options_.ps * options_.shards) {
    if (deadline.passed(RealClock().now())) break;
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(node.ps->routes()->shards(), options_.ps * options_.shards);
  return node;
}

void World::make_tables(Node& node, const v1::CreateOption& option) {
  const Status created = node.ps->create(option, soon());
  ASSERT_TRUE(created.ok()) << created;
  v1::FreezeOption freeze;
  if (options_.staleness.has_value()) freeze.set_staleness(*options_.staleness);
  freeze.set_ranks(std::max(1U, options_.trainers));
  freeze.set_push_bytes_max(1 << 20);
  const StatusOr<uint64_t> hash = node.ps->freeze(freeze, soon());
  ASSERT_TRUE(hash.ok()) << hash.status();
  schema_hash = *hash;
}

void World::start_training(Node& node, uint64_t hash) {
  for (const v1::JobState state : {v1::JOB_STATE_FROZEN, v1::JOB_STATE_TRAINING}) {
    v1::SetJobOption option;
    option.set_state(state);
    option.set_schema_hash(hash);
    const auto set = node.scheduler->set_job(option, soon());
    ASSERT_TRUE(set.ok()) << set.status();
  }
}

v1::Rule rule(const std::string& name, const std::map<std::string, double>& values) {
  v1::Rule out;
  out.set_name(name);
  for (const auto& [key, number] : values) {
    v1::NamedValue* value = out.add_values();
    value->set_name(key);
    value->set_value(number);
  }
  return out;
}

v1::TableOptions table(const std::string& name, uint32_t dim, v1::Rule optimizer) {
  v1::TableOptions out;
  out.set_name(name);
  out.set_dim(dim);
  *out.mutable_optimizer() = std::move(optimizer);
  return out;
}

v1::DenseOptions variable(const std::string& name, int64_t elements, v1::Rule optimizer,
                          uint64_t split) {
  v1::DenseOptions out;
  out.set_name(name);
  out.add_shape(elements);
  out.set_split_elements(split);
  *out.mutable_optimizer() = std::move(optimizer);
  return out;
}

Tensor keys_of(const std::vector<uint64_t>& keys) {
  return Tensor::of<uint64_t>({static_cast<int64_t>(keys.size())}, keys);
}

Tensor rows_of(size_t rows, size_t columns, const std::vector<float>& values) {
  return Tensor::of<float>({static_cast<int64_t>(rows), static_cast<int64_t>(columns)}, values);
}

Tensor floats_of(const std::vector<float>& values) {
  return Tensor::of<float>({static_cast<int64_t>(values.size())}, values);
}

std::vector<float> floats(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

std::vector<Protocol> all_protocols() {
  return {Protocol::kInproc, Protocol::kGrpc, Protocol::kFast};
}

std::string protocol_title(const testing::TestParamInfo<Protocol>& info) {
  return info.param == Protocol::kFast ? "fast" : std::string(protocol_name(info.param));
}

}  // namespace starling::cluster
