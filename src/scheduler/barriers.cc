#include "scheduler/barriers.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/answer_by.h"

namespace starling {
namespace {

constexpr size_t kRepeatsMax = 8;  // calls of one arrival that are kept; the oldest go first

std::string key_of(const std::string& name) { return "barrier/" + name; }

v1::Role role_of(v1::Group group) {
  switch (group) {
    case v1::GROUP_TRAINERS:
      return v1::ROLE_TRAINER;
    case v1::GROUP_PS:
      return v1::ROLE_PS;
    case v1::GROUP_HUBS:
      return v1::ROLE_HUB;
    default:
      return v1::ROLE_UNKNOWN;
  }
}

std::string_view word_of(v1::Role role) {
  switch (role) {
    case v1::ROLE_TRAINER:
      return "trainer";
    case v1::ROLE_PS:
      return "ps";
    default:
      return "hub";
  }
}

// True when the request is the one that made this arrival.
bool is_same(const ledger::Arrival& arrival, const v1::Header& header) {
  return arrival.incarnation() == header.incarnation() && arrival.session() == header.session() &&
         arrival.number() == header.number();
}

Message passed_reply(uint64_t generation) {
  Message message;
  message.meta.mutable_barrier_reply()->set_barrier_generation(generation);
  return message;
}

}  // namespace

Status Barriers::load(const LedgerEntry& entry) {
  Barrier barrier;
  if (!barrier.passed.ParseFromString(entry.value)) {
    return data_loss("ledger: key '{}' is not a barrier", entry.key);
  }
  const std::string name = barrier.passed.name();
  barriers_[name] = std::move(barrier);
  return absl::OkStatus();
}

Status Barriers::check(const v1::BarrierOption& option) const {
  if (option.name().empty() || option.name().size() > options_.limits.name_bytes_max) {
    return invalid_argument("Scheduler.Barrier: the name has {} bytes, allowed are 1 to {}",
                            option.name().size(), options_.limits.name_bytes_max);
  }
  const bool has_group = option.group() != v1::GROUP_NONE;
  if (has_group == !option.members().empty()) {
    return invalid_argument("Scheduler.Barrier {}: give a group or members, one of them",
                            option.name());
  }
  if (!v1::Group_IsValid(option.group())) {
    return invalid_argument("Scheduler.Barrier {}: no group {}", option.name(),
                            static_cast<int>(option.group()));
  }
  if (option.members_size() > static_cast<int>(options_.limits.nodes_max)) {
    return invalid_argument("Scheduler.Barrier {}: {} members, at most {}", option.name(),
                            option.members_size(), options_.limits.nodes_max);
  }
  return absl::OkStatus();
}

Status Barriers::make_room(Turn& turn, const std::string& name) {
  if (barriers_.contains(name) || barriers_.size() < options_.limits.barriers_max) {
    return absl::OkStatus();
  }
  auto oldest = barriers_.end();
  for (auto it = barriers_.begin(); it != barriers_.end(); ++it) {
    if (it->second.open.has_value()) continue;
    if (oldest == barriers_.end() || it->second.used < oldest->second.used) oldest = it;
  }
  if (oldest == barriers_.end()) {
    return resource_exhausted("Scheduler.Barrier {}: {} barriers are open, barriers_max", name,
                              barriers_.size());
  }
  turn.erase(key_of(oldest->first));
  barriers_.erase(oldest);
  return absl::OkStatus();
}

std::vector<std::string> Barriers::members_of(const Open& open) const {
  if (open.group == v1::GROUP_NONE) return open.members;
  std::vector<std::string> names;
  for (const NodeEntry* entry : nodes_.alive(role_of(open.group))) {
    names.push_back(entry->node().name());
  }
  for (const v1::Role role : {v1::ROLE_PS, v1::ROLE_HUB, v1::ROLE_TRAINER}) {
    if (open.group != v1::GROUP_ALL && role_of(open.group) != role) continue;
    const size_t there = nodes_.alive(role).size();
    if (const uint32_t wanted = expected_(role); wanted > there) {
      names.push_back(fmt::format("{} more {}", wanted - there, word_of(role)));
    }
  }
  return names;
}

std::vector<std::string> Barriers::missing_of(const Open& open) const {
  std::vector<std::string> missing = members_of(open);
  std::erase_if(missing, [&open](const auto& name) { return open.arrived.contains(name); });
  return missing;
}

std::string Barriers::dead_member(const Open& open) const {
  for (const std::string& name : open.members) {
    const auto it = nodes_.all().find(name);
    if (it != nodes_.all().end() && !it->second.is_alive()) return name;
  }
  return "";
}

void Barriers::arrive(Turn& turn, Token token, const NodeEntry& node, const Message& request,
                      Deadline deadline) {
  const v1::BarrierOption& option = request.meta.barrier();
  const v1::Header& header = request.meta.header();
  if (const Status status = check(option); !status.ok()) return turn.refuse(token, status);
  if (const Status status = make_room(turn, option.name()); !status.ok()) {
    return turn.refuse(token, status);
  }
  Barrier& barrier = barriers_[option.name()];
  barrier.used = ++uses_;
  const std::string& name = node.node().name();
  const uint64_t open_generation = barrier.passed.generation() + 1;
  for (const ledger::Arrival& arrival : barrier.passed.arrivals()) {
    if (header.number() != 0 && arrival.node() == name && is_same(arrival, header)) {
      return turn.answer(token, passed_reply(barrier.passed.generation()));
    }
  }
  if (option.barrier_generation() != 0 && option.barrier_generation() < open_generation) {
    return turn.answer(token, passed_reply(option.barrier_generation()));
  }
  if (option.barrier_generation() > open_generation) {
    return turn.refuse(
        token, failed_precondition("Scheduler.Barrier {}: generation {} is asked for, {} is open",
                                   option.name(), option.barrier_generation(), open_generation));
  }
  Open wanted{.group = option.group(),
              .members = {option.members().begin(), option.members().end()}};
  std::sort(wanted.members.begin(), wanted.members.end());
  if (!barrier.open.has_value()) {
    barrier.passed.set_name(option.name());
    barrier.open = wanted;
  } else if (barrier.open->group != wanted.group || barrier.open->members != wanted.members) {
    return turn.refuse(
        token, invalid_argument("Scheduler.Barrier {}: {} gives other members than "
                                "those before it, which are {}",
                                option.name(), name, fmt::join(members_of(*barrier.open), ", ")));
  }
  Open& open = *barrier.open;
  const std::vector<std::string> members = members_of(open);
  if (std::find(members.begin(), members.end(), name) == members.end()) {
    turn.refuse(token, invalid_argument("Scheduler.Barrier {}: {} is not a member, those are {}",
                                        option.name(), name, fmt::join(members, ", ")));
    if (open.arrived.empty()) barrier.open.reset();
    return;
  }
  Arrived& arrived = open.arrived[name];
  arrived.arrival.set_node(name);
  arrived.arrival.set_incarnation(header.incarnation());
  arrived.arrival.set_session(header.session());
  arrived.arrival.set_number(header.number());
  arrived.tokens.push_back(token);
  if (arrived.tokens.size() > kRepeatsMax) {
    turn.refuse(arrived.tokens.front(), aborted("Scheduler.Barrier {}: {} called {} times again",
                                                option.name(), name, kRepeatsMax));
    arrived.tokens.erase(arrived.tokens.begin());
  }
  arrived.until = answer_by(deadline, turn.now());
  if (const std::string dead = dead_member(open); !dead.empty()) {
    return fail(turn, barrier,
                aborted("Scheduler.Barrier {}: member {} is dead", option.name(), dead), dead);
  }
  try_pass(turn, barrier);
}

void Barriers::answer_all(Turn& turn, const Arrived& arrived, const Message& message) const {
  for (const Token token : arrived.tokens) turn.answer(token, message);
}

bool Barriers::try_pass(Turn& turn, Barrier& barrier) {
  if (!barrier.open.has_value() || barrier.open->arrived.empty()) return false;
  if (!missing_of(*barrier.open).empty()) return false;
  const Open open = *std::exchange(barrier.open, std::nullopt);
  barrier.passed.set_generation(barrier.passed.generation() + 1);
  barrier.passed.clear_arrivals();
  for (const auto& [name, arrived] : open.arrived) {
    *barrier.passed.add_arrivals() = arrived.arrival;
    answer_all(turn, arrived, passed_reply(barrier.passed.generation()));
  }
  turn.put(key_of(barrier.passed.name()), barrier.passed);
  return true;
}

void Barriers::fail(Turn& turn, Barrier& barrier, const Status& status, const std::string& node) {
  const Open open = *std::exchange(barrier.open, std::nullopt);
  Message message = status_reply(status);
  message.meta.mutable_status()->set_reason(v1::REASON_MEMBER_DIED);
  message.meta.mutable_status()->set_node(node);
  v1::BarrierReply* reply = message.meta.mutable_barrier_reply();
  reply->set_barrier_generation(barrier.passed.generation() + 1);
  for (const auto& [name, arrived] : open.arrived) reply->add_arrived(name);
  for (const std::string& name : missing_of(open)) reply->add_missing(name);
  for (const auto& [name, arrived] : open.arrived) answer_all(turn, arrived, message);
}

void Barriers::fail_for(Turn& turn, const std::string& node, bool had_arrived_only) {
  const auto it = nodes_.all().find(node);
  const v1::Role role = it == nodes_.all().end() ? v1::ROLE_UNKNOWN : it->second.node().role();
  for (auto& [name, barrier] : barriers_) {
    if (!barrier.open.has_value()) continue;
    const Open& open = *barrier.open;
    const bool is_of_group = open.group == v1::GROUP_ALL ||
                             (open.group != v1::GROUP_NONE && role_of(open.group) == role);
    const bool is_member = is_of_group || std::find(open.members.begin(), open.members.end(),
                                                    node) != open.members.end();
    if (had_arrived_only ? open.arrived.contains(node) : is_member) {
      fail(turn, barrier, aborted("Scheduler.Barrier {}: member {} died", name, node), node);
    }
  }
}

void Barriers::review(Turn& turn) {
  for (auto& [name, barrier] : barriers_) try_pass(turn, barrier);
}

void Barriers::expire(Turn& turn) {
  for (auto& [name, barrier] : barriers_) {
    if (!barrier.open.has_value()) continue;
    Open& open = *barrier.open;
    std::vector<std::string> late;
    for (const auto& [node, arrived] : open.arrived) {
      if (arrived.until <= turn.now()) late.push_back(node);
    }
    if (late.empty()) continue;
    const std::vector<std::string> missing = missing_of(open);
    Message message = status_reply(deadline_exceeded(
        "Scheduler.Barrier {}: {} of {} members arrived, missing: {}", name, open.arrived.size(),
        open.arrived.size() + missing.size(), fmt::join(missing, ", ")));
    v1::BarrierReply* reply = message.meta.mutable_barrier_reply();
    reply->set_barrier_generation(barrier.passed.generation() + 1);
    for (const auto& [node, arrived] : open.arrived) reply->add_arrived(node);
    for (const std::string& node : missing) reply->add_missing(node);
    for (const std::string& node : late) {
      answer_all(turn, open.arrived.at(node), message);
      open.arrived.erase(node);
    }
    if (open.arrived.empty()) barrier.open.reset();
  }
}

void Barriers::drop(Token token) {
  for (auto& [name, barrier] : barriers_) {
    if (!barrier.open.has_value()) continue;
    // The arrival stays until its time has passed: the caller may come back for the answer.
    for (auto& [node, arrived] : barrier.open->arrived) std::erase(arrived.tokens, token);
  }
}

TimePoint Barriers::next() const {
  TimePoint first = TimePoint::max();
  for (const auto& [name, barrier] : barriers_) {
    if (!barrier.open.has_value()) continue;
    for (const auto& [node, arrived] : barrier.open->arrived) {
      first = std::min(first, arrived.until);
    }
  }
  return first;
}

void Barriers::clear(Turn& turn) {
  for (auto& [name, barrier] : barriers_) {
    if (barrier.open.has_value()) {
      fail(turn, barrier, aborted("Scheduler.Barrier {}: the job starts a new generation", name),
           "");
    }
    turn.erase(key_of(name));
  }
  barriers_.clear();
}

}  // namespace starling
