// Hubs, trainers and shards in one process under one seed: messages are lost, doubled and late,
// trainers and hubs die at any point; every sample is trained once per epoch all the same, as the
// shards count it, and so it is counted in what hubs tell the scheduler.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <tuple>

#include "base/rng.h"
#include "hub/dealer.h"
#include "hub/dealer_testing.h"

namespace starling {
namespace {

using hub_testing::batch_of;
using hub_testing::kSamples;

constexpr uint32_t kShards = 2;
constexpr uint32_t kWindow = 6;
constexpr uint32_t kSkipped = 2;  // lines of an item that a rule leaves out

struct Plan {
  uint64_t seed = 1;
  uint32_t hubs = 2;
  uint32_t trainers = 3;
  uint32_t epochs = 2;
  uint32_t items = 4;
  uint32_t batches = 7;  // of an item
  uint32_t group = 1;
  bool forgets = false;  // broken on purpose: shards apply a batch as often as it comes
};

// Time, chance and the way of messages.
class Weather {
 public:
  explicit Weather(uint64_t seed) : rng_(seed, 1, 0) {}
  TimePoint now() const { return now_; }
  bool chance(double p) { return rng_.uniform() < p; }
  uint64_t below(uint64_t n) { return rng_.below(n); }
  void after(Duration time, std::function<void()> action) {
    events_.push({now_ + time, ++number_, std::move(action)});
  }
  // Arrives late, twice or never.
  void send(const std::function<void()>& arrive) {
    const int copies = chance(0.1) ? 0 : chance(0.1) ? 2 : 1;
    for (int i = 0; i < copies; ++i) after(milliseconds(1 + below(60)), arrive);
  }
  bool turn() {
    if (events_.empty()) return false;
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    event.action();
    return true;
  }

 private:
  struct Event {
    TimePoint at;
    uint64_t number;
    std::function<void()> action;
    bool operator<(const Event& other) const {
      return std::tie(at, number) > std::tie(other.at, other.number);
    }
  };
  Rng rng_;
  TimePoint now_{seconds(1)};
  uint64_t number_ = 0;
  std::priority_queue<Event> events_;
};

// A shard by the rules of PROTOCOL 1: what is applied, and what a watermark covers.
struct ModelShard {
  std::map<BatchId, uint64_t> prepared;  // by whom
  std::set<BatchId> applied;
  std::map<ItemName, uint64_t> done_below;
  std::map<uint64_t, uint32_t> counts;  // of samples
  std::set<BatchId> merged;             // groups whose sum of variables is applied
  uint64_t dense = 0;                   // a variable: batches that its sums were made of
  uint64_t refused = 0;

  bool is_done(const BatchId& id) const {
    const auto it = done_below.find({id.epoch, id.item});
    return it != done_below.end() && id.number < it->second;
  }
  bool feed(const BatchId& id, uint64_t hub, const std::vector<v1::Watermark>& marks) {
    for (const v1::Watermark& mark : marks) {
      uint64_t& below = done_below[{mark.epoch(), mark.item()}];
      below = std::max(below, mark.done_below());
    }
    std::erase_if(prepared, [&](const auto& entry) { return is_done(entry.first); });
    if (is_done(id)) return true;
    if (const auto it = prepared.find(id); it != prepared.end()) {
      it->second = hub;
      return true;
    }
    const auto open = std::count_if(prepared.begin(), prepared.end(),
                                    [&](const auto& entry) { return entry.second == hub; });
    if (open >= kWindow) {
      ++refused;
      return false;
    }
    prepared.emplace(id, hub);
    return true;
  }
};

// The scheduler's queue of one epoch.
struct ModelItem {
  uint64_t owner = 0;
  v1::WorkProgress told;  // by its owners
  bool is_done = false;
};

class Cluster;

class HubActor {
 public:
  HubActor(Cluster& cluster, uint64_t incarnation);
  void tick();
  Message read(const Message& request);

  const uint64_t incarnation;
  Dealer dealer;
  bool is_dead = false;

 private:
  void take_items();
  void make_batches();
  void feed(const BatchId& id);

  Cluster& cluster_;
  std::map<ItemName, uint64_t> reading_;         // next batch
  std::map<ItemName, uint64_t> from_;            // first watermark
  std::map<BatchId, std::set<uint32_t>> unfed_;  // shards that have not answered
};

class TrainerActor {
 public:
  TrainerActor(Cluster& cluster, uint64_t session) : cluster_(cluster), session_(session) {}
  void ask();

  bool is_dead = false;

 private:
  void heard(uint64_t number, const Message& reply);
  void push(const BatchId& id, uint32_t shard);
  void pushed(const BatchId& id, uint32_t shard);
  void next() {
    ++number_;
    ask();
  }

  Cluster& cluster_;
  const uint64_t session_;
  uint64_t number_ = 1;
  size_t hub_ = 0;
  std::set<std::pair<BatchId, uint32_t>> unpushed_;
  std::vector<BatchId> trained_;
  std::vector<BatchId> done_;
};

class Cluster {
 public:
  explicit Cluster(const Plan& plan) : plan(plan), weather(plan.seed) {
    for (uint32_t i = 0; i < plan.hubs; ++i) add_hub(i);
    for (uint32_t i = 0; i < plan.trainers; ++i) add_trainer(i);
    weather.after(milliseconds(100), [this] { strike(); });
  }

  // True when all epochs were done in time.
  bool run() {
    while (epoch < plan.epochs && weather.now() < TimePoint(seconds(600))) {
      if (!weather.turn()) return false;
    }
    return epoch == plan.epochs;
  }

  void add_hub(uint32_t slot) {
    hubs.resize(std::max<size_t>(hubs.size(), slot + 1));
    hubs[slot] = hubs_ever_.emplace_back(std::make_shared<HubActor>(*this, ++incarnations));
    hubs[slot]->tick();
  }
  void add_trainer(uint32_t slot) {
    trainers.resize(std::max<size_t>(trainers.size(), slot + 1));
    trainers[slot] =
        trainers_ever_.emplace_back(std::make_shared<TrainerActor>(*this, ++incarnations));
    trainers[slot]->ask();
  }
  // Somebody dies and comes back as another.
  void strike() {
    weather.after(milliseconds(200 + weather.below(600)), [this] { strike(); });
    if (weather.chance(0.5)) {
      const auto slot = static_cast<uint32_t>(weather.below(plan.trainers));
      if (std::exchange(trainers[slot]->is_dead, true)) return;
      weather.after(milliseconds(weather.below(300)), [this, slot] { add_trainer(slot); });
    } else {
      const auto slot = static_cast<uint32_t>(weather.below(plan.hubs));
      const uint64_t dead = hubs[slot]->incarnation;
      if (std::exchange(hubs[slot]->is_dead, true)) return;
      weather.after(milliseconds(weather.below(300)), [this, slot, dead] {
        for (auto& [name, item] : queue) {
          if (item.owner == dead) item.owner = 0;
        }
        for (ModelShard& shard : shards) {
          std::erase_if(shard.prepared, [&](const auto& entry) { return entry.second == dead; });
        }
        add_hub(slot);
      });
    }
  }

  // The batch's samples of a shard are counted once more.
  void apply(uint32_t number, const BatchId& id) {
    ModelShard& shard = shards[number];
    if (shard.is_done(id)) return;
    if (!shard.applied.insert(id).second && !plan.forgets) return;
    for (uint32_t i = 0; i < kSamples; ++i) {
      const uint64_t sample = (uint64_t{id.item} * plan.batches + id.number) * kSamples + i;
      if (sample % kShards == number) ++shard.counts[sample];
    }
  }
  ModelItem& item(const ItemName& name) { return queue[name]; }
  void review_epoch() {
    for (uint32_t i = 0; i < plan.items; ++i) {
      if (!queue[{epoch, i}].is_done) return;
    }
    ++epoch;
  }
  // The last batch of a group carries what all of them have merged.
  void apply_merged(uint32_t number, const std::vector<BatchId>& group) {
    ModelShard& shard = shards[number];
    if (shard.is_done(group.front())) return;
    if (!shard.merged.insert(group.front()).second && !plan.forgets) return;
    shard.dense += group.size();
  }
  // Wrong counts of samples, and of batches in the variable.
  size_t wrong() const {
    size_t out = 0;
    for (const ModelShard& shard : shards) {
      out += shard.dense != uint64_t{plan.epochs} * plan.items * plan.batches ? 1 : 0;
    }
    for (uint64_t sample = 0; sample < uint64_t{plan.items} * plan.batches * kSamples; ++sample) {
      const auto& counts = shards[sample % kShards].counts;
      const auto it = counts.find(sample);
      out += it == counts.end() || it->second != plan.epochs ? 1 : 0;
    }
    return out;
  }

  // Samples trained and skipped, as the scheduler has it of all items.
  std::pair<uint64_t, uint64_t> told() const {
    std::pair<uint64_t, uint64_t> out;
    for (const auto& [name, item] : queue) {
      out.first += item.told.samples_trained();
      out.second += item.told.samples_skipped();
    }
    return out;
  }

  const Plan plan;
  Weather weather;
  std::array<ModelShard, kShards> shards;
  std::map<ItemName, ModelItem> queue;
  uint32_t epoch = 0;
  uint64_t incarnations = 0;
  std::vector<std::shared_ptr<HubActor>> hubs;
  std::vector<std::shared_ptr<TrainerActor>> trainers;
  Status failure;

 private:
  // Messages to the dead are still on their way.
  std::vector<std::shared_ptr<HubActor>> hubs_ever_;
  std::vector<std::shared_ptr<TrainerActor>> trainers_ever_;
};

HubActor::HubActor(Cluster& cluster, uint64_t incarnation)
    : incarnation(incarnation),
      dealer({.window = kWindow, .lease = milliseconds(400), .group_batches = cluster.plan.group}),
      cluster_(cluster) {}

void HubActor::tick() {
  if (is_dead) return;
  cluster_.failure.Update(dealer.failure());
  take_items();
  make_batches();
  for (const BatchId& id : dealer.take_feeds()) feed(id);
  for (const auto& [name, progress] : dealer.progress()) {
    if (cluster_.weather.chance(0.3)) continue;  // the scheduler is slow
    ModelItem& item = cluster_.item(name);
    if (item.owner != incarnation) continue;
    item.told = progress;
    dealer.known(name, progress);
  }
  for (const auto& [name, progress] : dealer.finished()) {
    cluster_.item(name).told = progress;
    cluster_.item(name).is_done = true;
    cluster_.review_epoch();
    dealer.acked(name);
  }
  cluster_.weather.after(milliseconds(20), [this] { tick(); });
}

void HubActor::take_items() {
  if (reading_.size() > 1) return;
  for (uint32_t i = 0; i < cluster_.plan.items; ++i) {
    const ItemName name{cluster_.epoch, i};
    if (cluster_.epoch >= cluster_.plan.epochs) return;
    ModelItem& item = cluster_.item(name);
    if (item.owner != 0 || item.is_done) continue;
    item.owner = incarnation;
    dealer.add_item(name, {.done_below = item.told.done_below(),
                           .begun_below = Dealer::begun_below(item.told.position()),
                           .samples_trained = item.told.samples_trained(),
                           .samples_failed = item.told.samples_skipped()});
    reading_[name] = from_[name] = item.told.done_below();
    return;
  }
}

void HubActor::make_batches() {
  for (auto it = reading_.begin(); it != reading_.end();) {
    auto& [name, next] = *it;
    while (next < cluster_.plan.batches && dealer.room() > 0) {
      dealer.add(batch_of({name.epoch, name.item, next++}));
    }
    if (next < cluster_.plan.batches) return;
    dealer.end_item(name, cluster_.plan.batches,
                    {.samples_read = uint64_t{cluster_.plan.batches} * kSamples + kSkipped,
                     .samples_skipped = kSkipped,
                     .samples_before = from_[name] * kSamples});
    it = reading_.erase(it);
  }
}

// Repeated until every shard has answered.
void HubActor::feed(const BatchId& id) {
  if (is_dead || dealer.find(id) == nullptr) return;
  auto [it, is_new] = unfed_.try_emplace(id);
  if (is_new) it->second = {0, 1};
  const std::vector<v1::Watermark> marks = dealer.marks();
  for (const uint32_t shard : it->second) {
    cluster_.weather.send([this, id, shard, marks] {
      const bool is_fed = cluster_.shards[shard].feed(id, incarnation, marks);
      if (!is_fed) return;
      cluster_.weather.send([this, id, shard] {
        const auto open = unfed_.find(id);
        if (is_dead || open == unfed_.end()) return;
        open->second.erase(shard);
        if (!open->second.empty()) return;
        unfed_.erase(open);
        dealer.fed(id);
      });
    });
  }
  cluster_.weather.after(milliseconds(150), [this, id] {
    if (unfed_.contains(id)) feed(id);
  });
}

Message HubActor::read(const Message& request) {
  Message reply = dealer.read(request, cluster_.weather.now());
  for (const BatchId& id : dealer.take_feeds()) feed(id);
  return reply;
}

void TrainerActor::ask() {
  if (is_dead) return;
  hub_ = (session_ + number_) % cluster_.plan.hubs;
  Message request;
  request.meta.mutable_header()->set_session(session_);
  request.meta.mutable_header()->set_number(number_);
  request.meta.mutable_read_sample()->set_batches_max(cluster_.plan.group);
  // Whoever has an item now hears of it: what is done on all shards is done.
  hub_testing::report_done(request, done_);
  const auto hub = cluster_.hubs[hub_];
  cluster_.weather.send([this, hub, request, number = number_] {
    if (hub->is_dead) return;
    cluster_.weather.send([this, number, reply = hub->read(request)] { heard(number, reply); });
  });
  cluster_.weather.after(milliseconds(300), [this, number = number_] {
    // Nothing heard: the same number again.
    if (number == number_ && unpushed_.empty()) ask();
  });
}

void TrainerActor::heard(uint64_t number, const Message& reply) {
  if (is_dead || number != number_ || !unpushed_.empty()) return;
  trained_ = hub_testing::ids_in(reply);
  if (trained_.empty()) {
    number_ += 1;
    cluster_.weather.after(milliseconds(10), [this] { ask(); });
    return;
  }
  for (const BatchId& id : trained_) {
    for (uint32_t shard = 0; shard < kShards; ++shard) unpushed_.emplace(id, shard);
  }
  const auto open = unpushed_;
  for (const auto& [id, shard] : open) push(id, shard);
}

// Until the shard acknowledges; one that does not know the batch is fed again.
void TrainerActor::push(const BatchId& id, uint32_t shard) {
  if (is_dead || !unpushed_.contains({id, shard})) return;
  cluster_.weather.send([this, id, shard, group = trained_] {
    ModelShard& target = cluster_.shards[shard];
    const bool is_known =
        target.is_done(id) || target.applied.contains(id) || target.prepared.contains(id);
    if (is_known && id == group.back()) cluster_.apply_merged(shard, group);
    if (is_known) cluster_.apply(shard, id);
    cluster_.weather.send([this, id, shard, is_known] {
      if (is_known) return pushed(id, shard);
      // Given up: the lease ends by itself.
      if (is_dead || unpushed_.empty()) return;
      unpushed_.clear();
      trained_.clear();
      next();
    });
  });
  cluster_.weather.after(milliseconds(200), [this, id, shard] { push(id, shard); });
}

void TrainerActor::pushed(const BatchId& id, uint32_t shard) {
  if (is_dead || unpushed_.erase({id, shard}) == 0 || !unpushed_.empty()) return;
  done_.insert(done_.end(), trained_.begin(), trained_.end());
  next();
}

class DealerSim : public testing::TestWithParam<uint32_t> {};

TEST_P(DealerSim, EverySampleIsTrainedOncePerEpochWhoeverDies) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    Rng sizes(seed, 2, 0);
    Cluster cluster({.seed = seed,
                     .hubs = 1 + static_cast<uint32_t>(sizes.below(3)),
                     .trainers = 1 + static_cast<uint32_t>(sizes.below(4)),
                     .epochs = 1 + static_cast<uint32_t>(sizes.below(3)),
                     .items = 1 + static_cast<uint32_t>(sizes.below(5)),
                     .batches = 1 + static_cast<uint32_t>(sizes.below(12)),
                     .group = GetParam()});
    ASSERT_TRUE(cluster.run()) << "seed " << seed << ": not done after "
                               << cluster.weather.now().time_since_epoch().count() / 1'000'000
                               << " ms";
    EXPECT_TRUE(cluster.failure.ok()) << "seed " << seed << ": " << cluster.failure;
    ASSERT_EQ(cluster.wrong(), 0U) << "seed " << seed;
    const uint64_t items = uint64_t{cluster.plan.epochs} * cluster.plan.items;
    const std::pair counted{items * cluster.plan.batches * kSamples, items * kSkipped};
    ASSERT_EQ(cluster.told(), counted) << "seed " << seed;
  }
}

TEST_P(DealerSim, NoticesShardsThatApplyABatchTwice) {
  size_t wrong = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Cluster cluster({.seed = seed, .group = GetParam(), .forgets = true});
    (void)cluster.run();
    wrong += cluster.wrong();
  }
  EXPECT_GT(wrong, 0U);
}

INSTANTIATE_TEST_SUITE_P(Groups, DealerSim, testing::Values(1U, 3U));

}  // namespace
}  // namespace starling
