#include "scheduler/nodes.h"

#include <algorithm>

namespace starling {
namespace {

constexpr std::string_view kPrefix = "node/";

std::string key_of(const NodeEntry& entry) { return std::string(kPrefix) + entry.node().name(); }

bool is_fenced(const ledger::NodeRecord& record, uint64_t incarnation) {
  const auto& fenced = record.fenced();
  return std::find(fenced.begin(), fenced.end(), incarnation) != fenced.end();
}

}  // namespace

Status Nodes::load(const LedgerEntry& entry, TimePoint now) {
  NodeEntry loaded;
  if (!loaded.record.ParseFromString(entry.value)) {
    return data_loss("ledger: key '{}' is not a node", entry.key);
  }
  loaded.pulse.last_seen = now;
  NodeEntry& kept = by_name_[loaded.node().name()];
  kept = std::move(loaded);
  by_id_[kept.id()] = &kept;
  return absl::OkStatus();
}

Status Nodes::check_register(const v1::Header& header, const v1::RegisterOption& option) const {
  const std::string& name = option.name();
  if (name.empty() || name.size() > options_.limits.name_bytes_max) {
    return invalid_argument("Scheduler.Register: the name has {} bytes, allowed are 1 to {}",
                            name.size(), options_.limits.name_bytes_max);
  }
  if (header.incarnation() == 0) {
    return invalid_argument("Scheduler.Register of {}: header.incarnation is missing", name);
  }
  if (header.role() < v1::ROLE_PS || header.role() > v1::ROLE_CLIENT) {
    return invalid_argument(
        "Scheduler.Register of {}: role {} is not one of ps, hub, trainer, "
        "client",
        name, static_cast<int>(header.role()));
  }
  uint64_t lanes = std::max(1U, option.lanes());
  for (const auto& [other, entry] : by_name_) {
    if (entry.node().role() == v1::ROLE_PS && entry.is_alive() && other != name) {
      lanes += entry.node().lanes();
    }
  }
  if (header.role() == v1::ROLE_PS && lanes > options_.limits.lanes_max) {
    return invalid_argument(
        "Scheduler.Register of {}: with its {} lanes there are {} shards, at "
        "most {} may be",
        name, option.lanes(), lanes, options_.limits.lanes_max);
  }
  return absl::OkStatus();
}

Status Nodes::make_room(Turn& turn) {
  if (by_name_.size() < options_.limits.nodes_max) return absl::OkStatus();
  const auto it = std::find_if(by_name_.begin(), by_name_.end(), [](const auto& entry) {
    return !entry.second.is_alive() && entry.second.node().role() != v1::ROLE_PS;
  });
  if (it == by_name_.end()) {
    return resource_exhausted("Scheduler.Register: {} nodes are in the job, nodes_max",
                              by_name_.size());
  }
  turn.erase(key_of(it->second));
  by_id_.erase(it->second.id());
  by_name_.erase(it);
  return absl::OkStatus();
}

StatusOr<Nodes::Arrival> Nodes::admit(Turn& turn, const v1::Header& header,
                                      const v1::RegisterOption& option, uint32_t next_id,
                                      uint64_t generation) {
  STARLING_RETURN_IF_ERROR(check_register(header, option));
  const std::string& name = option.name();
  NodeEntry* entry = find(name);
  Arrival arrival;
  if (entry == nullptr) {
    STARLING_RETURN_IF_ERROR(make_room(turn));
    entry = &by_name_[name];
    entry->record.mutable_node()->set_id(next_id);
    entry->record.mutable_node()->set_name(name);
    entry->record.mutable_node()->set_role(header.role());
    by_id_[next_id] = entry;
    arrival.is_new = true;
  } else if (entry->node().role() != header.role()) {
    return invalid_argument("Scheduler.Register of {}: the name belongs to a {}, not a {}", name,
                            v1::Role_Name(entry->node().role()), v1::Role_Name(header.role()));
  } else if (is_fenced(entry->record, header.incarnation())) {
    return failed_precondition("Scheduler.Register of {}: incarnation {:x} has been fenced", name,
                               header.incarnation());
  } else if (entry->node().incarnation() == header.incarnation()) {
    if (!entry->is_alive()) {
      return failed_precondition("Scheduler.Register of {}: incarnation {:x} has ended ({})", name,
                                 header.incarnation(), v1::NodeState_Name(entry->node().state()));
    }
    arrival.is_repeat = entry->record.generation() == generation;
  } else if (entry->is_alive() && option.replaces() != entry->node().incarnation()) {
    // Whoever takes its place has a lease's time to come again and say so.
    entry->pulse.last_seen = turn.now();
    return aborted("Scheduler.Register of {}: incarnation {:x} lives under this name", name,
                   entry->node().incarnation());
  } else {
    arrival.is_new = !entry->is_alive();
    arrival.has_replaced = entry->is_alive();
    entry->record.add_fenced(entry->node().incarnation());
    if (entry->record.fenced_size() > static_cast<int>(options_.limits.fenced_max)) {
      entry->record.mutable_fenced()->erase(entry->record.fenced().begin());
    }
  }
  arrival.entry = entry;
  entry->pulse.last_seen = turn.now();
  if (arrival.is_repeat) return arrival;
  entry->pulse = Pulse{.last_seen = turn.now()};
  v1::Node* node = entry->record.mutable_node();
  node->set_incarnation(header.incarnation());
  node->set_state(v1::NODE_STATE_ALIVE);
  *node->mutable_addresses() = option.addresses();
  node->set_lanes(std::max(1U, option.lanes()));
  node->set_generation(generation);
  entry->record.set_generation(generation);
  turn.put(key_of(*entry), entry->record);
  return arrival;
}

StatusOr<NodeEntry*> Nodes::living(const v1::Header& header) {
  NodeEntry* entry = find(header.role_id());
  if (entry == nullptr) return not_found("no node {} is registered", header.role_id());
  if (entry->node().incarnation() != header.incarnation() || !entry->is_alive()) {
    return failed_precondition("{} (node {}): incarnation {:x} has been declared dead",
                               entry->node().name(), entry->id(), header.incarnation());
  }
  return entry;
}

void Nodes::beat(NodeEntry& entry, const v1::SchedulerHeartbeatOption& option, TimePoint now) {
  Pulse& pulse = entry.pulse;
  pulse.last_seen = now;
  if (!option.rates().empty()) pulse.rates = {option.rates().begin(), option.rates().end()};
  pulse.clock = std::max(pulse.clock, option.clock());
  pulse.seen_revision = std::max(pulse.seen_revision, option.seen_revision());
  if (!option.clocks().empty()) {
    pulse.clocks.clear();
    for (const v1::RankClock& clock : option.clocks()) {
      const auto [it, is_first] = pulse.clocks.try_emplace(
          clock.rank(), Pulse::Span{.lowest = clock.clock(), .highest = clock.clock()});
      it->second.lowest = std::min(it->second.lowest, clock.clock());
      it->second.highest = std::max(it->second.highest, clock.clock());
    }
  }
  for (const v1::RankBatch& batch : option.batches()) pulse.batches[batch.rank()] = batch;
}

void Nodes::touch_all(TimePoint now) {
  for (auto& [name, entry] : by_name_) entry.pulse.last_seen = now;
}

void Nodes::set_state(Turn& turn, NodeEntry& entry, v1::NodeState state) {
  entry.record.mutable_node()->set_state(state);
  turn.put(key_of(entry), entry.record);
}

void Nodes::set_ranks(Turn& turn, NodeEntry& entry, const std::vector<uint32_t>& ranks) {
  entry.record.mutable_node()->mutable_ranks()->Assign(ranks.begin(), ranks.end());
  turn.put(key_of(entry), entry.record);
}

uint64_t Nodes::tell(Turn& turn, const NodeEntry& entry) const {
  v1::Event event;
  *event.mutable_node() = entry.node();
  return turn.tell(std::move(event));
}

NodeEntry* Nodes::find(uint32_t id) {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

const NodeEntry* Nodes::find(uint32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

NodeEntry* Nodes::find(std::string_view name) {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &it->second;
}

std::vector<NodeEntry*> Nodes::alive(v1::Role role) {
  std::vector<NodeEntry*> found;
  for (const auto& [id, entry] : by_id_) {
    if (entry->is_alive() && (role == v1::ROLE_UNKNOWN || entry->node().role() == role)) {
      found.push_back(entry);
    }
  }
  return found;
}

std::vector<const NodeEntry*> Nodes::alive(v1::Role role) const {
  std::vector<const NodeEntry*> found;
  for (const auto& [id, entry] : by_id_) {
    if (entry->is_alive() && (role == v1::ROLE_UNKNOWN || entry->node().role() == role)) {
      found.push_back(entry);
    }
  }
  return found;
}

std::vector<NodeEntry*> Nodes::expired(TimePoint now) {
  std::vector<NodeEntry*> found = alive(v1::ROLE_UNKNOWN);
  std::erase_if(
      found, [&](const NodeEntry* entry) { return now - entry->pulse.last_seen < options_.lease; });
  return found;
}

TimePoint Nodes::next() const {
  TimePoint first = TimePoint::max();
  for (const NodeEntry* entry : alive(v1::ROLE_UNKNOWN)) {
    first = std::min(first, entry->pulse.last_seen + options_.lease);
  }
  return first;
}

// By each rate that the node tells: below half of the median of the living nodes of its role.
bool Nodes::is_slow(const NodeEntry& entry) const {
  const std::vector<const NodeEntry*> peers = alive(entry.node().role());
  if (peers.size() < 2 || !entry.is_alive()) return false;
  for (const v1::NamedValue& rate : entry.pulse.rates) {
    if (!rate.name().ends_with("_per_s")) continue;
    std::vector<double> values;
    for (const NodeEntry* peer : peers) {
      for (const v1::NamedValue& other : peer->pulse.rates) {
        if (other.name() == rate.name()) values.push_back(other.value());
      }
    }
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() >= 2 && rate.value() < *middle / 2) return true;
  }
  return false;
}

v1::Node Nodes::shown(const NodeEntry& entry, TimePoint now) const {
  v1::Node node = entry.node();
  const Duration silent = std::max(now - entry.pulse.last_seen, Duration::zero());
  node.set_last_seen_ms(static_cast<uint64_t>(silent / milliseconds(1)));
  node.mutable_rates()->Assign(entry.pulse.rates.begin(), entry.pulse.rates.end());
  node.set_slow(is_slow(entry));
  return node;
}

}  // namespace starling
