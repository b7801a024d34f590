// Items, batches, shards and the scheduler's queue. What trainers ask is in dealer_read.cc.
#include "hub/dealer.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"

namespace starling {
namespace {

// How many windows ahead of its watermark an item's limit is asked for. One word with the scheduler
// then serves so many windows of batches.
constexpr uint64_t kWindowsAhead = 8;
// A row is dealt when the one before it is done, and what is done may be untold for another.
constexpr uint32_t kRowsAhead = 4;

DealerOptions with_room(DealerOptions options) {
  if (options.is_synchronous) options.window = std::max(options.window, kRowsAhead * options.ranks);
  return options;
}

}  // namespace

BatchId batch_id_of(const v1::BatchId& proto) {
  return {.epoch = proto.epoch(), .item = proto.item(), .number = proto.number()};
}

void to_proto(const BatchId& id, v1::BatchId* out) {
  out->set_epoch(id.epoch);
  out->set_item(id.item);
  out->set_number(id.number);
}

std::string text_of(const BatchId& id) {
  return fmt::format("{}/{}/{}", id.epoch, id.item, id.number);
}

void shift_tensors(v1::BatchLease& lease, uint32_t by) {
  if (lease.has_dense_tensor()) lease.set_dense_tensor(lease.dense_tensor() + by);
  if (lease.has_labels_tensor()) lease.set_labels_tensor(lease.labels_tensor() + by);
  if (lease.has_weights_tensor()) lease.set_weights_tensor(lease.weights_tensor() + by);
  if (lease.has_shows_tensor()) lease.set_shows_tensor(lease.shows_tensor() + by);
  if (lease.has_clicks_tensor()) lease.set_clicks_tensor(lease.clicks_tensor() + by);
  if (lease.has_groups_tensor()) lease.set_groups_tensor(lease.groups_tensor() + by);
  for (v1::TrainerField& field : *lease.mutable_fields()) {
    if (field.has_offsets_tensor()) field.set_offsets_tensor(field.offsets_tensor() + by);
    if (field.has_positions_tensor()) field.set_positions_tensor(field.positions_tensor() + by);
    for (uint32_t& tensor : *field.mutable_samples_tensors()) tensor += by;
  }
}

Dealer::Dealer(const DealerOptions& options)
    : options_(with_room(options)), seats_(options_.ranks, options_.window / kRowsAhead) {}

uint64_t Dealer::begun_below(const std::string& position) {
  uint64_t below = 0;
  std::from_chars(position.data(), position.data() + position.size(), below);
  return below;
}

uint64_t Dealer::Item::limit_wanted(uint32_t window) const {
  const uint64_t ahead = std::max(limit, done_below + kWindowsAhead * window);
  return std::max(start.begun_below, batches.has_value() ? std::min(ahead, *batches) : ahead);
}

v1::WorkProgress Dealer::Item::progress(const ItemName& name) const {
  v1::WorkProgress out;
  out.set_item(name.item);
  out.set_done_below(done_below);
  out.set_samples_trained(samples_trained);
  out.set_samples_skipped(samples_failed);
  return out;
}

void Dealer::add_item(const ItemName& name, const ItemStart& start) {
  lose_item(name);
  Item& item = items_[name];
  item.start = start;
  item.done_below = item.known_below = start.done_below;
  // Batches below it may lie prepared on shards, from a former hub: their marks are sent again.
  item.told_below = 0;
  item.limit = start.begun_below;
  item.samples_trained = start.samples_trained;
  item.samples_failed = start.samples_failed;
}

// Whoever takes a synchronous item over starts from what the scheduler knows, while ranks that have
// their batch of a row wait for one that has not, and report nothing: its batch must have room.
size_t Dealer::room() const {
  const uint64_t used = options_.is_synchronous ? open_ + untold_ : open_;
  return used >= options_.window ? 0 : options_.window - used;
}

uint64_t Dealer::first_of_row(uint64_t clock) const {
  return epoch_.linear + seats_.batches(epoch_.clock, clock);
}

uint64_t Dealer::first_untold() const {
  for (const auto& [name, item] : items_) {
    if (name.epoch != epoch_.epoch || !item.base.has_value()) continue;
    if (item.batches.has_value() && item.known_below >= *item.batches) continue;
    return *item.base + item.known_below;
  }
  return UINT64_MAX;
}

void Dealer::heard(Item& item, uint64_t done_below) {
  const uint64_t known = std::clamp(done_below, item.known_below, item.done_below);
  untold_ -= known - item.known_below;
  item.known_below = known;
}

void Dealer::add(HubBatch batch) {
  const BatchId id = batch.id;
  const auto it = items_.find({id.epoch, id.item});
  if (it == items_.end() || id.number < it->second.done_below) return;
  Item& item = it->second;
  STARLING_CHECK(item.open.empty() || item.open.rbegin()->first < id.number,
                 "batches of an item come in their order");
  Entry& entry = item.open[id.number];
  entry.batch = std::move(batch);
  entry.is_begun = id.number < item.start.begun_below;
  ++open_;
  feeds_.push_back(id);
}

void Dealer::end_item(const ItemName& name, uint64_t batches, const ItemCounts& counts) {
  const auto it = items_.find(name);
  if (it == items_.end()) return;
  Item& item = it->second;
  item.batches = batches;
  item.counts = counts;
  // What was trained before is told by whoever trained it.
  counts_.set_samples_read(counts_.samples_read() + counts.samples_read - counts.samples_before);
  counts_.set_samples_skipped(counts_.samples_skipped() + counts.samples_skipped);
  counts_.set_bytes_read(counts_.bytes_read() + counts.bytes_read);
  advance(name, item);
}

void Dealer::lose_item(const ItemName& name) {
  const auto it = items_.find(name);
  if (it == items_.end()) return;
  const Item& item = it->second;
  open_ -= item.open.size();
  untold_ -= item.done_below - item.known_below;
  // Whoever reads it again counts it from its watermark on.
  uint64_t done_again = 0, failed_again = 0;
  for (const auto& [number, entry] : item.open) {
    if (!entry.is_done) continue;
    (entry.has_failed ? failed_again : done_again) += entry.batch.lease.samples();
  }
  const ItemCounts& counts = item.counts;
  const uint64_t ended = item.samples_trained + item.samples_failed - item.start.samples();
  counts_.set_samples_read(counts_.samples_read() + ended -
                           (counts.samples_read - counts.samples_before));
  counts_.set_samples_done(counts_.samples_done() - done_again);
  counts_.set_samples_skipped(counts_.samples_skipped() - counts.samples_skipped - failed_again);
  counts_.set_bytes_read(counts_.bytes_read() - counts.bytes_read);
  items_.erase(it);
}

void Dealer::fail(Status why) {
  if (failure_.ok()) failure_ = std::move(why);
}

void Dealer::begin_epoch(const EpochStart& start) {
  epoch_ = start;
  epoch_end_.reset();
  next_clock_ = 0;
}

void Dealer::set_base(const ItemName& name, uint64_t linear) {
  if (const auto it = items_.find(name); it != items_.end()) it->second.base = linear;
}

Dealer::Entry* Dealer::entry_of(const BatchId& id) {
  const auto item = items_.find({id.epoch, id.item});
  if (item == items_.end()) return nullptr;
  const auto entry = item->second.open.find(id.number);
  return entry == item->second.open.end() ? nullptr : &entry->second;
}

const HubBatch* Dealer::find(const BatchId& id) const {
  const auto item = items_.find({id.epoch, id.item});
  if (item == items_.end()) return nullptr;
  const auto entry = item->second.open.find(id.number);
  return entry == item->second.open.end() ? nullptr : &entry->second.batch;
}

bool Dealer::replace(HubBatch batch) {
  Entry* entry = entry_of(batch.id);
  if (entry == nullptr || entry->is_begun) return false;
  entry->is_fed = false;
  entry->batch = std::move(batch);
  return true;
}

void Dealer::fed(const BatchId& id) {
  if (Entry* entry = entry_of(id); entry != nullptr) entry->is_fed = true;
}

std::vector<v1::Watermark> Dealer::marks() const {
  std::vector<v1::Watermark> out;
  for (const auto& [name, item] : items_) {
    const bool is_finished = item.is_finished();
    if (item.done_below == item.told_below && is_finished == item.is_told_finished) continue;
    v1::Watermark& mark = out.emplace_back();
    mark.set_epoch(name.epoch);
    mark.set_item(name.item);
    mark.set_done_below(item.done_below);
    mark.set_finished(is_finished);
  }
  return out;
}

void Dealer::marked(const std::vector<v1::Watermark>& marks) {
  for (const v1::Watermark& mark : marks) {
    const auto it = items_.find({mark.epoch(), mark.item()});
    if (it == items_.end()) continue;
    it->second.told_below = std::max(it->second.told_below, mark.done_below());
    it->second.is_told_finished |= mark.finished();
  }
  // An item of which everybody knows that it is done is over. Synchronous jobs keep its place in
  // the order until the epoch ends.
  std::erase_if(items_, [&](const auto& entry) {
    const Item& item = entry.second;
    if (options_.is_synchronous && entry.first.epoch >= epoch_.epoch) return false;
    return item.is_acked && item.is_told_finished;
  });
}

std::vector<std::pair<ItemName, v1::WorkProgress>> Dealer::progress() const {
  std::vector<std::pair<ItemName, v1::WorkProgress>> out;
  for (const auto& [name, item] : items_) {
    if (item.is_acked) continue;
    v1::WorkProgress& progress = out.emplace_back(name, item.progress(name)).second;
    progress.set_position(std::to_string(item.limit_wanted(options_.window)));
  }
  return out;
}

void Dealer::known(const ItemName& name, const v1::WorkProgress& progress) {
  const auto it = items_.find(name);
  if (it == items_.end()) return;
  heard(it->second, progress.done_below());
  it->second.limit = std::max(it->second.limit, begun_below(progress.position()));
}

bool Dealer::wants_renewal() const {
  if (options_.is_synchronous && untold_ * kRowsAhead >= options_.window) return true;
  return std::any_of(items_.begin(), items_.end(), [&](const auto& entry) {
    const Item& item = entry.second;
    const bool is_behind = is_draining_ && item.known_below != item.done_below;
    return !item.is_acked &&
           (is_behind ||
            item.limit + kWindowsAhead / 2 * options_.window < item.limit_wanted(options_.window) ||
            (item.limit < item.limit_wanted(options_.window) && !item.open.empty() &&
             item.open.rbegin()->first >= item.limit));
  });
}

std::vector<std::pair<ItemName, v1::WorkProgress>> Dealer::finished() const {
  std::vector<std::pair<ItemName, v1::WorkProgress>> out;
  for (const auto& [name, item] : items_) {
    if (!item.is_finished() || item.is_acked) continue;
    v1::WorkProgress& progress = out.emplace_back(name, item.progress(name)).second;
    progress.set_samples_skipped(item.samples_failed + item.counts.samples_skipped);
    progress.set_finished(true);
  }
  return out;
}

void Dealer::acked(const ItemName& name) {
  const auto it = items_.find(name);
  if (it == items_.end()) return;
  it->second.is_acked = true;
  heard(it->second, it->second.done_below);
}

void Dealer::on_node_gone(uint32_t node) {
  gone_nodes_.insert(node);
  for (auto& [name, item] : items_) {
    for (auto& [number, entry] : item.open) {
      if (entry.node == node && !entry.is_done) entry.until = TimePoint{};
    }
  }
}

void Dealer::on_rank(const v1::RankEvent& rank) {
  RankSeen& seen = ranks_[rank.rank()];
  seen.node = rank.node();
  if (!rank.leaves()) {
    seen.joined = rank.clock();
    seen.leaves.reset();
    gone_nodes_.erase(rank.node());
    return;
  }
  seen.leaves = rank.clock();
  // Without a synchronous order whoever comes takes what a dead one held.
  if (!options_.is_synchronous || !rank.has_half_pushed() || rank.clock() == 0) return;
  takeovers_.push_back(
      {.id = batch_id_of(rank.half_pushed()), .rank = rank.rank(), .clock = rank.clock() - 1});
}

void Dealer::drain(std::optional<uint64_t> clock) {
  is_draining_ = true;
  drain_clock_ = clock;
}

void Dealer::resume() {
  is_draining_ = false;
  drain_clock_.reset();
}

std::optional<uint64_t> Dealer::drained_at() const {
  if (!drain_clock_.has_value()) return std::nullopt;
  return std::max(*drain_clock_, clock_dealt_);
}

bool Dealer::is_drained() const {
  if (!is_draining_ || !takeovers_.empty()) return false;
  for (const auto& [name, item] : items_) {
    if (!is_drained(name, item)) return false;
    // The scheduler keeps its queues as part of the cut.
    if (item.is_finished() ? !item.is_acked : item.known_below != item.done_below) return false;
  }
  // Whoever has heard of the end asks no more; the shards see whether its clock is the cut's.
  if (!drain_clock_.has_value() || is_ended_) return true;
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const auto& entry) {
    const RankSeen& seen = entry.second;
    const uint64_t until = std::min(*drain_clock_, seen.leaves.value_or(*drain_clock_));
    return seen.asked >= until || seen.joined >= until ||
           (seen.leaves.has_value() && gone_nodes_.contains(seen.node));
  });
}

bool Dealer::is_drained(const ItemName& name, const Item& item) const {
  if (item.is_finished()) return true;
  if (options_.is_synchronous && name.epoch > epoch_.epoch) return true;
  if (options_.is_synchronous && drain_clock_.has_value()) {
    // Everything before the row of the cut's clock is dealt, by this hub or a former one.
    const uint64_t end = first_of_row(*drain_clock_);
    return item.base.has_value() ? *item.base + item.done_below >= end
                                 : item.start.begun_below == 0;
  }
  // Below it a former hub may have dealt batches that have not been read again yet.
  if (item.done_below < item.start.begun_below) return false;
  return std::none_of(item.open.begin(), item.open.end(), [](const auto& entry) {
    return entry.second.is_begun && !entry.second.is_done;
  });
}

void Dealer::count_done(const BatchId& id, bool has_failed) {
  const ItemName name{id.epoch, id.item};
  const auto it = items_.find(name);
  if (it == items_.end()) return;
  Item& item = it->second;
  const auto found = item.open.find(id.number);
  if (found == item.open.end() || found->second.is_done) return;
  found->second.is_reported = true;
  found->second.has_failed |= has_failed;
  const Unit unit = unit_of(item, id.number);
  // No member is done before the group is, and the group is known when all of it is made.
  for (const auto& [number, entry] : unit) {
    if (!entry->is_reported) return;
  }
  for (const auto& [number, entry] : unit) {
    if (std::exchange(entry->is_done, true)) continue;
    const uint32_t samples = entry->batch.lease.samples();
    if (entry->has_failed) {
      counts_.set_samples_skipped(counts_.samples_skipped() + samples);
    } else {
      counts_.set_samples_done(counts_.samples_done() + samples);
      counts_.set_batches_done(counts_.batches_done() + 1);
    }
  }
  advance(name, item);
}

void Dealer::advance(const ItemName& name, Item& item) {
  while (!item.open.empty() && item.open.begin()->first == item.done_below &&
         item.open.begin()->second.is_done) {
    const Entry& entry = item.open.begin()->second;
    (entry.has_failed ? item.samples_failed : item.samples_trained) += entry.batch.lease.samples();
    item.open.erase(item.open.begin());
    ++item.done_below;
    ++untold_;
    --open_;
  }
  if (item.is_finished()) check_counts(name, item);
}

void Dealer::check_counts(const ItemName& name, const Item& item) {
  const ItemCounts& counts = item.counts;
  if (counts.samples_before != item.start.samples()) {
    fail(internal_error(
        "item {} of epoch {}: {} samples are in the batches below {}, but {} were told to be done",
        name.item, name.epoch, counts.samples_before, item.start.done_below, item.start.samples()));
  }
  const uint64_t ended = item.samples_trained + item.samples_failed;
  if (counts.samples_read == ended + counts.samples_skipped) return;
  fail(internal_error("item {} of epoch {}: {} samples were read, but {} are done and {} skipped",
                      name.item, name.epoch, counts.samples_read, ended, counts.samples_skipped));
}

}  // namespace starling
