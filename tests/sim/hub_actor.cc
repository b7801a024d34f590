#include "tests/sim/hub_actor.h"

#include <algorithm>

namespace starling::sim {
namespace {

constexpr const char* kQueue = "data";
constexpr Duration kRenewEvery = milliseconds(100);
constexpr uint64_t kLimitAhead = 4;

}  // namespace

void HubActor::on_start() {
  items_.clear();
  starves_ = has_taken_begun_ = has_base_ = taking_ = marks_changed_ = finished_ = draining_ =
      drained_ = false;
  clock_dealt_ = base_ = start_ = 0;
  answered_.clear();
  takeovers_.clear();
  ranks_.clear();
  gone_nodes_.clear();
  drain_clock_.reset();
  Node::on_start();
}

void HubActor::on_registered(const v1::RegisterReply&) {
  take_work();
  renew();
}

std::set<BatchId> HubActor::done() const {
  std::set<BatchId> out;
  for (const auto& [number, item] : items_) {
    for (uint64_t i = 0; i < item.done_below; ++i) out.insert({0, number, i});
    for (const auto& [i, batch] : item.batches) {
      if (batch.done) out.insert({0, number, i});
    }
  }
  return out;
}

void HubActor::take_work() {
  if (taking_ || finished_) return;
  uint64_t open = 0;
  for (const auto& [number, item] : items_) {
    for (const auto& [i, batch] : item.batches) open += batch.done ? 0 : 1;
  }
  if (has_taken_begun_ && open >= plan_.window && !std::exchange(starves_, false)) return;
  taking_ = true;
  Message message = request();
  message.meta.mutable_get_job()->set_with_work(true);
  ask_scheduler(Method::kSchedulerGetJob, std::move(message), [this](Message reply) {
    taking_ = false;
    if (is_over(reply)) return;
    // One that finds none is asked as well now and then: a late copy of it must not take an item
    // that nobody knows of.
    if (world().chance(0.3)) return take_item();
    for (const v1::WorkQueueInfo& queue : reply.meta.get_job_reply().queues()) {
      if (queue.taken() + queue.done() < queue.items()) return take_item();
      has_taken_begun_ = true;
      if (queue.done() == queue.items() && queue.complete() && !finished_) {
        trace("all items are done");
        finished_ = true;
      }
    }
  });
}

void HubActor::take_item() {
  taking_ = true;
  Message message = numbered();
  message.meta.mutable_take_work()->set_queue(kQueue);
  ask_scheduler(Method::kSchedulerTakeWork, std::move(message), [this](Message reply) {
    taking_ = false;
    if (is_over(reply)) return;
    if (status_of(reply).ok()) took(reply.meta.take_work_reply());
  });
}

void HubActor::took(const v1::TakeWorkReply& reply) {
  for (const v1::WorkLease& lease : reply.leases()) {
    Item& item = items_[lease.work().item()];
    item = {};
    item.done_below = item.known_below = lease.done_below();
    size_t end = 0;
    has_base_ = true;
    base_ = std::stoull(lease.work().detail(), &end);
    start_ = std::stoull(lease.work().detail().substr(end));
    const uint64_t begun = lease.position().empty() ? 0 : std::stoull(lease.position());
    if (begun == 0) has_taken_begun_ = true;
    for (uint64_t i = item.done_below; i < plan_.batches_per_item; ++i) {
      item.batches[i].dealt = i < begun;
    }
    item.limit_wanted = limit_from(item.done_below);
    trace("takes item {} from batch {}, begun below {}", lease.work().item(), item.done_below,
          begun);
  }
  send_renewal();
  take_work();
  feed_window();
  progress();
}

void HubActor::renew() {
  after(kRenewEvery, [this] {
    send_renewal();
    take_work();
    feed_window();
    send_watermarks();
    report_drained();
    renew();
  });
}

void HubActor::send_renewal() {
  Message message = request();
  v1::RenewWorkOption* option = message.meta.mutable_renew_work();
  option->set_queue(kQueue);
  std::map<uint32_t, std::pair<uint64_t, uint64_t>> told;
  for (auto& [number, item] : items_) {
    if (item.acked) continue;
    v1::WorkProgress* progress = option->add_items();
    progress->set_item(number);
    progress->set_done_below(item.done_below);
    progress->set_position(std::to_string(item.limit_wanted));
    told[number] = {item.done_below, item.limit_wanted};
  }
  if (told.empty()) return;
  call(kSchedulerIndex, 0, Method::kSchedulerRenewWork, std::move(message), milliseconds(400),
       [this, told](Message reply) {
         if (is_over(reply) || !status_of(reply).ok()) return;
         const auto& lost = reply.meta.renew_work_reply().lost();
         for (const auto& [number, what] : told) {
           auto it = items_.find(number);
           if (it == items_.end()) continue;
           const bool is_lost = std::find(lost.begin(), lost.end(), number) != lost.end();
           if (!is_lost) {
             it->second.known_below = std::max(it->second.known_below, what.first);
             it->second.limit = std::max(it->second.limit, what.second);
           } else if (!it->second.acked && !it->second.acking) {
             trace("loses item {}", number);
             // Kept until it is taken again, so that the window does not move on; where there is
             // another hub it may be that one's.
             has_taken_begun_ = false;
             if (plan_.hubs > 1) items_.erase(it);
           }
         }
       });
}

HubActor::Batch* HubActor::find(const BatchId& id) {
  auto item = items_.find(id.item);
  if (item == items_.end()) return nullptr;
  auto batch = item->second.batches.find(id.number);
  return batch == item->second.batches.end() ? nullptr : &batch->second;
}

uint64_t HubActor::lowest_open() const {
  for (const auto& [number, item] : items_) {
    for (const auto& [i, batch] : item.batches) {
      if (!batch.done) return plan_.linear_of({0, number, i});
    }
  }
  return plan_.batches();
}

uint64_t HubActor::window_end() const {
  uint64_t first = lowest_open();
  for (const auto& [number, item] : items_) {
    if (!plan_.is_synchronous() || item.acked || item.known_below == item.done_below) continue;
    first = std::min(first, plan_.linear_of({0, number, item.known_below}));
  }
  return first + plan_.window;
}

uint64_t HubActor::limit_from(uint64_t done_below) const {
  const uint64_t ahead = std::max<uint64_t>(kLimitAhead, plan_.is_synchronous() ? plan_.window : 0);
  return std::min<uint64_t>(done_below + ahead, plan_.batches_per_item);
}

void HubActor::feed_window() {
  const uint64_t end = window_end();
  for (auto& [number, item] : items_) {
    for (auto& [i, batch] : item.batches) {
      const BatchId id{0, number, i};
      if (plan_.linear_of(id) >= end) return;
      if (!batch.done && !batch.was_fed) feed(id);
    }
  }
}

void HubActor::feed(const BatchId& id) {
  Batch& batch = *find(id);
  batch.was_fed = true;
  for (const uint64_t key : plan_.keys_of(id)) batch.unfed.insert(owner_of_key(key));
  for (const uint32_t shard : batch.unfed) send_feed(id, shard);
}

Message HubActor::feed_message(const BatchId& id, uint32_t shard) const {
  Message message = request();
  *message.meta.mutable_header()->mutable_batch() = to_proto(id);
  v1::FeedSampleOption* option = message.meta.mutable_feed_sample();
  const BatchId real = real_id(id);
  const std::vector<uint64_t> all = plan_.keys_of(real);
  option->set_samples(static_cast<uint32_t>(all.size()));
  option->set_step(plan_.linear_of(real));
  option->set_window(plan_.window);
  add_watermarks(*option);
  std::vector<uint64_t> keys;
  std::vector<uint32_t> samples, positions;
  for (uint32_t i = 0; i < all.size(); ++i) {
    if (owner_of_key(all[i]) != shard) continue;
    positions.push_back(static_cast<uint32_t>(keys.size()));
    samples.push_back(i);
    keys.push_back(all[i]);
  }
  v1::FeedPart* part = option->add_parts();
  part->set_table(kRowsTable);
  part->set_row_keys(static_cast<uint32_t>(keys.size()));
  part->set_keys_tensor(0);
  const auto n = static_cast<int64_t>(keys.size());
  message.tensors.push_back(Tensor::of<uint64_t>({n}, std::span<const uint64_t>(keys)));
  v1::FieldLayout* field = part->add_fields();
  field->set_field("f");
  field->set_samples_tensor(1);
  message.tensors.push_back(Tensor::of<uint32_t>({n}, std::span<const uint32_t>(samples)));
  field->set_positions_tensor(2);
  message.tensors.push_back(Tensor::of<uint32_t>({n}, std::span<const uint32_t>(positions)));
  option->set_content_hash(plan_.linear_of(real) + 1);
  return message;
}

void HubActor::add_watermarks(v1::FeedSampleOption& option) const {
  for (const auto& [number, item] : items_) {
    v1::Watermark* mark = option.add_watermarks();
    mark->set_item(number);
    mark->set_done_below(item.done_below);
    mark->set_finished(item.done_below == plan_.batches_per_item);
  }
}

void HubActor::send_feed(const BatchId& id, uint32_t shard) {
  ask_shard(
      shard, Method::kPsFeedSample, feed_message(id, shard), [this, id, shard](Message reply) {
        if (is_over(reply)) return;
        const Status status = status_of(reply);
        // Batches of an item that the other hub has now are still known as this one's.
        if (reply.meta.status().reason() == v1::REASON_FEED_WINDOW_FULL && plan_.hubs > 1) {
          return after(milliseconds(50), [this, id, shard] {
            if (find(id) != nullptr) send_feed(id, shard);
          });
        }
        if (!status.ok()) {
          return world().fail("hub: the feed of {} was refused: {}", text(id), status.ToString());
        }
        if (Batch* batch = find(id)) batch->unfed.erase(shard);
      });
}

void HubActor::send_watermarks() {
  if (!std::exchange(marks_changed_, false)) return;
  for (uint32_t shard = 0; shard < shards(); ++shard) {
    Message message = request();
    add_watermarks(*message.meta.mutable_feed_sample());
    ask_shard(shard, Method::kPsFeedSample, std::move(message),
              [this](Message reply) { (void)is_over(reply); });
  }
}

void HubActor::count_done(const BatchId& id, uint64_t session) {
  std::erase_if(takeovers_, [&](const Takeover& t) { return t.id == id && t.session == session; });
  const BatchId real = real_id(id);
  Batch* batch = find(real);
  if (batch == nullptr || batch->done) return;
  trace("{} is done", text(id));
  batch->done = true;
  progress();
}

void HubActor::progress() {
  for (auto& [number, item] : items_) {
    while (item.batches.contains(item.done_below) && item.batches[item.done_below].done) {
      ++item.done_below;
      marks_changed_ = true;
    }
    item.limit_wanted = std::max(item.limit_wanted, limit_from(item.done_below));
    if (item.done_below == plan_.batches_per_item && !item.acking) ack(number);
  }
  feed_window();
  take_work();
}

void HubActor::ack(uint32_t number) {
  items_[number].acking = true;
  Message message = request();
  message.meta.mutable_ack_work()->set_queue(kQueue);
  v1::WorkProgress* progress = message.meta.mutable_ack_work()->add_items();
  progress->set_item(number);
  progress->set_done_below(plan_.batches_per_item);
  ask_scheduler(Method::kSchedulerAckWork, std::move(message), [this, number](Message reply) {
    if (is_over(reply)) return;
    if (reply.meta.status().reason() == v1::REASON_LEASE_LOST && plan_.hubs > 1) {
      items_.erase(number);
      return;
    }
    if (!status_of(reply).ok()) {
      return world().fail("hub: item {} may not be acknowledged: {}", number,
                          message_of(status_of(reply)));
    }
    items_[number].acked = true;
    take_work();
  });
}

}  // namespace starling::sim
