#include "tests/sim/cluster.h"

namespace starling::sim {
namespace {

constexpr Duration kRunMax = seconds(300);  // simulated
constexpr uint64_t kEventsMax = 2'000'000;

std::set<BatchId> done_of(const Manifest& manifest, const Plan& plan) {
  std::set<BatchId> done;
  for (const v1::WorkQueueInfo& queue : manifest.queues) {
    for (const v1::WorkProgress& item : queue.progress()) {
      const uint64_t below = item.finished() ? plan.batches_per_item : item.done_below();
      for (uint64_t i = 0; i < below; ++i) done.insert({0, item.item(), i});
    }
  }
  return done;
}

// Made before all other actors: trainers find them by their number.
std::vector<std::unique_ptr<HubActor>> make_hubs(Network& network, const Plan& plan,
                                                 bool invents_ids) {
  std::vector<std::unique_ptr<HubActor>> hubs;
  for (uint32_t i = 0; i < plan.hubs; ++i) {
    hubs.push_back(std::make_unique<HubActor>(network, plan, i, invents_ids));
  }
  return hubs;
}

}  // namespace

Cluster::Cluster(const Plan& plan, const RunOptions& options)
    : plan_(plan),
      world_(plan.seed, options.trace),
      network_(world_),
      oracle_(world_, plan_),
      scheduler_(network_, plan_, [this](const Manifest& manifest) { committed(manifest); }),
      hubs_(make_hubs(network_, plan_, options.hub_invents_ids)),
      driver_(network_, plan_),
      tool_(network_) {
  const auto knows_alive = [this](const std::string& name, uint64_t incarnation) {
    return scheduler_.knows_alive(name, incarnation);
  };
  for (uint32_t i = 0; i < plan_.lanes.size(); ++i) {
    ps_.push_back(std::make_unique<PsActor>(network_, plan_, i, stage_));
    ps_.back()->on_ended = [this] { restart_job(); };
    ps_.back()->is_known_alive = knows_alive;
  }
  const auto comes_back = [&](Node& node) {
    node.is_known_alive = knows_alive;
    node.on_ended = [this, &node] {
      world_.after(milliseconds(200), [this, &node] {
        if (!restarting_) node.start();
      });
    };
  };
  for (auto& hub : hubs_) comes_back(*hub);
  comes_back(driver_);
  for (uint32_t i = 0; i < plan_.ranks; ++i) {
    trainers_.push_back(std::make_unique<TrainerActor>(network_, plan_, i));
    comes_back(*trainers_.back());
  }
  for (uint32_t i = 0; i < plan_.clients; ++i) {
    clients_.push_back(std::make_unique<ClientActor>(network_, plan_, i));
    comes_back(*clients_.back());
  }
  scheduler_.newest_of = [this](const std::string& name) { return incarnation_of(name); };
  driver_.on_training = [this] { began_training(); };
  driver_.base_cut = [this] { return vault_.newest; };
  driver_.on_failed = [this] { restart_job(); };
}

uint64_t Cluster::incarnation_of(const std::string& name) const {
  std::vector<const Node*> nodes = {&driver_};
  for (const auto& hub : hubs_) nodes.push_back(hub.get());
  for (const auto& ps : ps_) nodes.push_back(ps.get());
  for (const auto& trainer : trainers_) nodes.push_back(trainer.get());
  for (const auto& client : clients_) nodes.push_back(client.get());
  for (const Node* node : nodes) {
    if (node->name() == name) return node->incarnation();
  }
  return 0;
}

void Cluster::start_all() {
  restarting_ = false;
  for (auto& hub : hubs_) hub->start();
  for (auto& ps : ps_) ps->start();
  for (auto& trainer : trainers_) trainer->start();
  for (auto& client : clients_) client->start();
  driver_.start();
}

void Cluster::began_training() {
  if (planned_) return;
  planned_ = true;
  network_.set_weather(plan_.weather);
  world_.after(plan_.storm, [this] { network_.set_weather({}); });
  for (const Crash& crash : plan_.crashes) plan_crash(crash);
  for (size_t i = 0; i < plan_.cuts.size(); ++i) {
    world_.after(plan_.cuts[i], [this, upkeep = plan_.upkeeps[i]] { driver_.cut(upkeep); });
  }
  if (plan_.new_staleness) {
    world_.after(plan_.new_staleness->at, [this] { driver_.change_staleness(); });
  }
}

void Cluster::plan_crash(const Crash& crash) {
  ++crashes_left_;
  world_.after(crash.at, [this, crash] { kill(crash); });
}

Actor* Cluster::victim(const Crash& crash) {
  switch (crash.victim) {
    case Victim::kTrainer:
      return trainers_[crash.which % trainers_.size()].get();
    case Victim::kScheduler:
      return &scheduler_;
    case Victim::kHub:
      return hubs_[crash.which % hubs_.size()].get();
    case Victim::kClient:
      return clients_.empty() ? nullptr : clients_[crash.which % clients_.size()].get();
    case Victim::kPs:
      return ps_[crash.which % ps_.size()].get();
  }
  return nullptr;
}

void Cluster::kill(const Crash& crash) {
  Actor* actor = victim(crash);
  if (actor == nullptr || restarting_) {
    --crashes_left_;
    return;
  }
  if (crash.victim == Victim::kScheduler && crash.which % 2 == 0) {
    scheduler_.die_at_next_write();
  } else {
    actor->crash();
  }
  world_.after(crash.down, [this, actor, crash] {
    --crashes_left_;
    if (crash.victim == Victim::kPs) return restart_job();
    if (crash.victim == Victim::kScheduler) actor->crash();
    if (!restarting_ || crash.victim == Victim::kScheduler) actor->start();
  });
}

// A ps has died: the whole job, hubs included, goes back to its newest cut.
void Cluster::restart_job() {
  if (restarting_) return;
  restarting_ = true;
  ++result_.restores;
  world_.trace("cluster", "the job starts again from cut {}", vault_.newest);
  for (auto& hub : hubs_) hub->crash();
  for (auto& ps : ps_) ps->crash();
  for (auto& trainer : trainers_) trainer->crash();
  for (auto& client : clients_) client->crash();
  driver_.crash();
  driver_.manifest.reset();
  if (vault_.newest != 0) driver_.manifest = manifests_.at(vault_.newest);
  oracle_.restored(vault_.newest == 0 ? std::map<uint64_t, float>()
                                      : vault_.cuts.at(vault_.newest).client_rows);
  const uint64_t clock = driver_.manifest ? driver_.manifest->clock.value_or(0) : 0;
  tool_.renew_generation(driver_.known_generation(), clock, [this] { start_all(); });
}

void Cluster::committed(const Manifest& manifest) {
  if (manifests_.contains(manifest.cut_id)) return;
  const StatusOr<Cut> published = publish_cut(*vault_.files, manifest.draft);
  if (!published.ok()) {
    return world_.fail("cut {} cannot be published: {}", manifest.cut_id,
                       published.status().ToString());
  }
  manifests_[manifest.cut_id] = manifest;
  vault_.newest = std::max(vault_.newest, manifest.cut_id);
  ++result_.cuts;
  const std::string& complaint = vault_.cuts[manifest.cut_id].complaint;
  if (!complaint.empty()) world_.fail("{}", complaint);
  oracle_.check_rows(vault_.cuts[manifest.cut_id].image, done_of(manifest, plan_),
                     fmt::format("cut {}", manifest.cut_id));
}

bool Cluster::is_over() const {
  if (!driver_.is_training() || driver_.is_cutting() || restarting_ || crashes_left_ > 0) {
    return false;
  }
  for (const auto& hub : hubs_) {
    if (!hub->is_up() || !hub->is_finished()) return false;
  }
  for (const auto& trainer : trainers_) {
    if (!trainer->is_finished()) return false;
  }
  for (const auto& client : clients_) {
    if (!client->is_up() || !client->is_finished()) return false;
  }
  return true;
}

std::string Cluster::describe_waiting() const {
  std::string out = fmt::format("driver {}training, cutting {}",
                                driver_.is_training() ? "" : "not ", driver_.is_cutting());
  for (const auto& hub : hubs_) {
    out += fmt::format("; {} {}", hub->name(), hub->is_finished() ? "finished" : "at work");
  }
  for (const auto& trainer : trainers_) out += "; " + trainer->where();
  for (const auto& client : clients_) {
    if (!client->is_finished()) out += "; " + client->name() + " at work";
  }
  return out;
}

void Cluster::check_end() {
  for (auto& ps : ps_) {
    ps->check_nobody_waits();
    ps->collect(result_.image);
  }
  oracle_.check(result_.image);
}

RunResult Cluster::run() {
  world_.trace("cluster", "{}", plan_.describe());
  const TimePoint start = world_.now();
  scheduler_.start();
  tool_.start();
  start_all();
  std::optional<TimePoint> quiet;
  while (!world_.failed() && world_.step()) {
    if (quiet.has_value()) {
      if (world_.now() >= *quiet) break;
      continue;
    }
    if (is_over()) {
      network_.set_weather({});
      quiet = world_.now() + seconds(4);  // what is on its way arrives
    }
    if (world_.now() - start > kRunMax || world_.steps() > kEventsMax) {
      world_.fail("something waits for ever: {}", describe_waiting());
    }
  }
  if (!world_.failed()) check_end();
  result_.failure = world_.failure();
  result_.events = world_.steps();
  result_.simulated = world_.now() - start;
  return std::move(result_);
}

RunResult run_seed(uint64_t seed, const RunOptions& options) {
  const Plan plan = Plan::of(seed);
  RunResult result = Cluster(plan, options).run();
  if (!plan.is_synchronous() || !result.failure.empty()) return result;
  const RunResult calm = Cluster(plan.without_faults(), options).run();
  result.events += calm.events;
  if (!calm.failure.empty()) {
    result.failure = "without faults: " + calm.failure;
  } else if (calm.image.tables.at(kRowsTable) != result.image.tables.at(kRowsTable) ||
             calm.image.dense != result.image.dense) {
    result.failure = "a synchronous run has other bits than without faults";
  }
  return result;
}

}  // namespace starling::sim
