#include "scheduler/work.h"

#include <algorithm>
#include <vector>

namespace starling {
namespace {

constexpr uint32_t kTakenMax = 1024;  // in one TakeWork

std::string queue_key(const ledger::QueueRecord& record) {
  return fmt::format("queue/{}/{:010}", record.queue(), record.epoch());
}

std::string item_key(const ledger::ItemRecord& record) {
  return fmt::format("item/{}/{:010}/{:010}", record.queue(), record.epoch(), record.work().item());
}

Message refusal(const Status& status, v1::Reason reason = v1::REASON_NONE) {
  Message message = status_reply(status);
  message.meta.mutable_status()->set_reason(reason);
  return message;
}

bool is_begun(const ledger::ItemRecord& record) {
  return record.node() != 0 || record.done() || record.done_below() > 0;
}

// An older word than what the item has is a repeat and changes nothing.
bool is_ahead(const v1::WorkProgress& progress, const ledger::ItemRecord& record) {
  if (record.done()) return false;
  return progress.finished() || progress.done_below() > record.done_below() ||
         (!is_begun(record) && progress.position() != record.position());
}

// A taker that counts nothing tells less than a resume began with.
uint64_t since(uint64_t now, uint64_t before) { return now - std::min(now, before); }

uint32_t left_ms(TimePoint until, TimePoint now) {
  return static_cast<uint32_t>(std::max<int64_t>((until - now) / milliseconds(1), 0));
}

}  // namespace

void WorkQueues::Queue::count(const ledger::ItemRecord& record) {
  samples_trained += since(record.samples_trained(), record.trained_before());
  samples_skipped += since(record.samples_skipped(), record.skipped_before());
}

void WorkQueues::Queue::uncount(const ledger::ItemRecord& record) {
  samples_trained -= since(record.samples_trained(), record.trained_before());
  samples_skipped -= since(record.samples_skipped(), record.skipped_before());
}

Status WorkQueues::load_queue(const LedgerEntry& entry) {
  ledger::QueueRecord record;
  if (!record.ParseFromString(entry.value)) {
    return data_loss("ledger: key '{}' is not a work queue", entry.key);
  }
  Queue& queue = queues_[{record.queue(), record.epoch()}];
  queue.record = std::move(record);
  return absl::OkStatus();
}

Status WorkQueues::load_item(const LedgerEntry& entry, TimePoint now) {
  ledger::ItemRecord record;
  if (!record.ParseFromString(entry.value)) {
    return data_loss("ledger: key '{}' is not a work item", entry.key);
  }
  Queue& queue = queues_[{record.queue(), record.epoch()}];
  const uint32_t number = record.work().item();
  if (!record.done()) (record.node() == 0 ? queue.free : queue.taken).insert(number);
  queue.count(record);
  queue.items[number] = {std::move(record), now + options_.work_lease};
  ++items_;
  return absl::OkStatus();
}

WorkQueues::Queue* WorkQueues::find(const std::string& queue, uint32_t epoch) {
  const auto it = queues_.find({queue, epoch});
  return it == queues_.end() ? nullptr : &it->second;
}

void WorkQueues::save(Turn& turn, const Item& item) const {
  turn.put(item_key(item.record), item.record);
}

Status WorkQueues::check_add(const v1::AddWorkOption& option, const Queue* queue) const {
  const SchedulerLimits& limits = options_.limits;
  if (option.queue().empty() || option.queue().size() > limits.name_bytes_max) {
    return invalid_argument("Scheduler.AddWork: the queue's name has {} bytes, allowed are 1 to {}",
                            option.queue().size(), limits.name_bytes_max);
  }
  if (queue == nullptr && queues_.size() >= limits.queues_max) {
    return resource_exhausted("Scheduler.AddWork: {} queues are there, queues_max", queues_.size());
  }
  std::set<uint32_t> fresh;
  for (const v1::WorkItem& work : option.items()) {
    const bool is_known = queue != nullptr && queue->items.contains(work.item());
    if (is_known && queue->items.at(work.item()).record.work().SerializeAsString() !=
                        work.SerializeAsString()) {
      return already_exists("Scheduler.AddWork: item {} of {} epoch {} is there with other content",
                            work.item(), option.queue(), option.epoch());
    }
    if (work.detail().size() > limits.position_bytes_max) {
      return invalid_argument("Scheduler.AddWork: detail of item {} has {} bytes, at most {}",
                              work.item(), work.detail().size(), limits.position_bytes_max);
    }
    if (is_known) continue;
    if (!fresh.insert(work.item()).second) {
      return invalid_argument("Scheduler.AddWork: item {} comes twice", work.item());
    }
    if (queue != nullptr && queue->record.complete()) {
      return failed_precondition(
          "Scheduler.AddWork: {} epoch {} was said to be complete; item {} "
          "is new",
          option.queue(), option.epoch(), work.item());
    }
  }
  if (items_ + fresh.size() > limits.items_max) {
    return resource_exhausted(
        "Scheduler.AddWork: {} items are kept, {} more would be over "
        "items_max ({})",
        items_, fresh.size(), limits.items_max);
  }
  for (const v1::WorkProgress& progress : option.progress()) {
    if (progress.position().size() > limits.position_bytes_max) {
      return invalid_argument("Scheduler.AddWork: position of item {} has {} bytes, at most {}",
                              progress.item(), progress.position().size(),
                              limits.position_bytes_max);
    }
    if (fresh.contains(progress.item())) continue;
    if (queue == nullptr || !queue->items.contains(progress.item())) {
      return invalid_argument("Scheduler.AddWork: progress of item {}, which is not there",
                              progress.item());
    }
    const ledger::ItemRecord& record = queue->items.at(progress.item()).record;
    if (is_ahead(progress, record) && is_begun(record)) {
      return failed_precondition("Scheduler.AddWork: progress of item {}, which has been begun",
                                 progress.item());
    }
  }
  return absl::OkStatus();
}

Message WorkQueues::add(Turn& turn, const v1::AddWorkOption& option) {
  Queue* queue = find(option.queue(), option.epoch());
  if (const Status status = check_add(option, queue); !status.ok()) return refusal(status);
  if (queue == nullptr) {
    queue = &queues_[{option.queue(), option.epoch()}];
    queue->record.set_queue(option.queue());
    queue->record.set_epoch(option.epoch());
    turn.put(queue_key(queue->record), queue->record);
  }
  if (option.complete() && !queue->record.complete()) {
    queue->record.set_complete(true);
    turn.put(queue_key(queue->record), queue->record);
  }
  std::set<uint32_t> changed;
  for (const v1::WorkItem& work : option.items()) {
    const auto [it, is_new] = queue->items.try_emplace(work.item());
    if (!is_new) continue;
    it->second.record.set_queue(option.queue());
    it->second.record.set_epoch(option.epoch());
    *it->second.record.mutable_work() = work;
    queue->free.insert(work.item());
    ++items_;
    changed.insert(work.item());
  }
  for (const v1::WorkProgress& progress : option.progress()) {
    Item& item = queue->items.at(progress.item());
    if (!is_ahead(progress, item.record)) continue;
    take_progress(*queue, item, progress);
    // What a resume goes on from is in no sum.
    queue->uncount(item.record);
    item.record.set_trained_before(item.record.samples_trained());
    item.record.set_skipped_before(item.record.samples_skipped());
    item.record.set_done(progress.finished());
    if (progress.finished()) queue->free.erase(progress.item());
    changed.insert(progress.item());
  }
  for (const uint32_t number : changed) save(turn, queue->items.at(number));
  Message reply;
  *reply.meta.mutable_add_work_reply()->mutable_queue() = info_of_queue(*queue);
  return reply;
}

Message WorkQueues::take(Turn& turn, const v1::TakeWorkOption& option, uint32_t node) {
  if (option.has_hub() && (option.hubs() == 0 || option.hub() >= option.hubs())) {
    return refusal(
        invalid_argument("Scheduler.TakeWork: hub {} of {} hubs", option.hub(), option.hubs()));
  }
  Queue* queue = find(option.queue(), option.epoch());
  if (queue == nullptr) {
    return refusal(
        not_found("Scheduler.TakeWork: no queue {} of epoch {}", option.queue(), option.epoch()));
  }
  const auto is_mine = [&option](uint32_t number) {
    return !option.has_hub() || number % option.hubs() == option.hub();
  };
  Message message;
  v1::TakeWorkReply* reply = message.meta.mutable_take_work_reply();
  const uint32_t count = std::clamp(option.items_max(), 1U, kTakenMax);
  for (auto it = queue->free.begin();
       it != queue->free.end() && reply->leases_size() < static_cast<int>(count);) {
    if (!is_mine(*it)) {
      ++it;
      continue;
    }
    Item& item = queue->items.at(*it);
    item.record.set_node(node);
    item.until = turn.now() + options_.work_lease;
    save(turn, item);
    lease_to(item, turn.now(), reply->add_leases());
    queue->taken.insert(*it);
    it = queue->free.erase(it);
  }
  if (reply->leases().empty()) {
    // What others hold may come back, so only what is done is out of reach.
    const bool none_held = std::none_of(queue->taken.begin(), queue->taken.end(), is_mine);
    reply->set_finished(queue->record.complete() && none_held);
    if (!reply->finished()) {
      reply->set_retry_after_ms(static_cast<uint32_t>(options_.heartbeat / milliseconds(1)));
    }
  }
  return message;
}

Status WorkQueues::check_items(const Queue* queue, const std::string& name,
                               const Progress& items) const {
  if (queue == nullptr) return not_found("no work queue {} of this epoch", name);
  for (const v1::WorkProgress& progress : items) {
    if (!queue->items.contains(progress.item())) {
      return not_found("work queue {} has no item {}", name, progress.item());
    }
    if (progress.position().size() > options_.limits.position_bytes_max) {
      return invalid_argument("work queue {}: position of item {} has {} bytes, at most {}", name,
                              progress.item(), progress.position().size(),
                              options_.limits.position_bytes_max);
    }
  }
  return absl::OkStatus();
}

bool WorkQueues::take_progress(Queue& queue, Item& item, const v1::WorkProgress& progress) {
  ledger::ItemRecord& record = item.record;
  // A late repeat of an older word must not take progress back.
  if (progress.done_below() < record.done_below()) return false;
  const bool is_changed =
      progress.done_below() != record.done_below() ||
      progress.samples_trained() != record.samples_trained() ||
      progress.samples_skipped() != record.samples_skipped() ||
      (!progress.position().empty() && progress.position() != record.position());
  queue.uncount(record);
  record.set_done_below(progress.done_below());
  record.set_samples_trained(progress.samples_trained());
  record.set_samples_skipped(progress.samples_skipped());
  queue.count(record);
  if (!progress.position().empty()) record.set_position(progress.position());
  return is_changed;
}

Message WorkQueues::renew(Turn& turn, const v1::RenewWorkOption& option, uint32_t node) {
  Queue* queue = find(option.queue(), option.epoch());
  const Status status = check_items(queue, option.queue(), option.items());
  if (!status.ok()) return refusal(with_context(status, "Scheduler.RenewWork"));
  Message message;
  v1::RenewWorkReply* reply = message.meta.mutable_renew_work_reply();
  reply->set_lease_ms(left_ms(turn.now() + options_.work_lease, turn.now()));
  for (const v1::WorkProgress& progress : option.items()) {
    Item& item = queue->items.at(progress.item());
    if (item.record.node() != node || item.record.done()) {
      reply->add_lost(progress.item());
      continue;
    }
    item.until = turn.now() + options_.work_lease;
    if (take_progress(*queue, item, progress)) save(turn, item);
  }
  return message;
}

Message WorkQueues::ack(Turn& turn, const v1::AckWorkOption& option, uint32_t node) {
  Queue* queue = find(option.queue(), option.epoch());
  const Status status = check_items(queue, option.queue(), option.items());
  if (!status.ok()) return refusal(with_context(status, "Scheduler.AckWork"));
  for (const v1::WorkProgress& progress : option.items()) {
    const ledger::ItemRecord& record = queue->items.at(progress.item()).record;
    if (!record.done() && record.node() != 0 && record.node() != node) {
      return refusal(aborted("Scheduler.AckWork: item {} of {} is held by node {}", progress.item(),
                             option.queue(), record.node()),
                     v1::REASON_LEASE_LOST);
    }
  }
  for (const v1::WorkProgress& progress : option.items()) {
    Item& item = queue->items.at(progress.item());
    if (item.record.done()) continue;
    take_progress(*queue, item, progress);
    item.record.set_done(true);
    item.record.set_node(0);
    queue->free.erase(progress.item());
    queue->taken.erase(progress.item());
    save(turn, item);
  }
  return Message{};
}

void WorkQueues::set_free(Turn& turn, Queue& queue, uint32_t number) {
  Item& item = queue.items.at(number);
  item.record.set_node(0);
  queue.taken.erase(number);
  queue.free.insert(number);
  save(turn, item);
}

Message WorkQueues::give_back(Turn& turn, const v1::GiveBackWorkOption& option, uint32_t node) {
  Queue* queue = find(option.queue(), option.epoch());
  const Status status = check_items(queue, option.queue(), option.items());
  if (!status.ok()) return refusal(with_context(status, "Scheduler.GiveBackWork"));
  for (const v1::WorkProgress& progress : option.items()) {
    Item& item = queue->items.at(progress.item());
    if (item.record.node() != node || item.record.done()) continue;
    take_progress(*queue, item, progress);
    set_free(turn, *queue, progress.item());
  }
  return Message{};
}

void WorkQueues::drop_node(Turn& turn, uint32_t node) {
  for (auto& [name, queue] : queues_) {
    const std::vector<uint32_t> taken(queue.taken.begin(), queue.taken.end());
    for (const uint32_t number : taken) {
      if (queue.items.at(number).record.node() == node) set_free(turn, queue, number);
    }
  }
}

void WorkQueues::expire(Turn& turn) {
  for (auto& [name, queue] : queues_) {
    const std::vector<uint32_t> taken(queue.taken.begin(), queue.taken.end());
    for (const uint32_t number : taken) {
      if (queue.items.at(number).until <= turn.now()) set_free(turn, queue, number);
    }
  }
}

TimePoint WorkQueues::next() const {
  TimePoint first = TimePoint::max();
  for (const auto& [name, queue] : queues_) {
    for (const uint32_t number : queue.taken) {
      first = std::min(first, queue.items.at(number).until);
    }
  }
  return first;
}

void WorkQueues::clear(Turn& turn) {
  for (const auto& [name, queue] : queues_) {
    turn.erase(queue_key(queue.record));
    for (const auto& [number, item] : queue.items) turn.erase(item_key(item.record));
  }
  queues_.clear();
  items_ = 0;
}

void WorkQueues::lease_to(const Item& item, TimePoint now, v1::WorkLease* out) const {
  *out->mutable_work() = item.record.work();
  out->set_node(item.record.node());
  out->set_lease_ms(left_ms(item.until, now));
  out->set_position(item.record.position());
  out->set_done_below(item.record.done_below());
  out->set_samples_trained(item.record.samples_trained());
  out->set_samples_skipped(item.record.samples_skipped());
}

v1::WorkQueueInfo WorkQueues::info_of_queue(const Queue& queue) const {
  v1::WorkQueueInfo info;
  info.set_queue(queue.record.queue());
  info.set_epoch(queue.record.epoch());
  info.set_complete(queue.record.complete());
  info.set_items(static_cast<uint32_t>(queue.items.size()));
  info.set_taken(static_cast<uint32_t>(queue.taken.size()));
  info.set_done(static_cast<uint32_t>(queue.items.size() - queue.taken.size() - queue.free.size()));
  info.set_samples_trained(queue.samples_trained);
  info.set_samples_skipped(queue.samples_skipped);
  return info;
}

void WorkQueues::show(bool with_progress, TimePoint now, v1::GetJobReply* out) const {
  for (const auto& [name, queue] : queues_) {
    v1::WorkQueueInfo* info = out->add_queues();
    *info = info_of_queue(queue);
    for (const uint32_t number : queue.taken) {
      lease_to(queue.items.at(number), now, info->add_leases());
    }
    if (!with_progress) continue;
    for (const auto& [number, item] : queue.items) {
      if (!item.record.done() && item.record.done_below() == 0 && item.record.position().empty()) {
        continue;
      }
      v1::WorkProgress* progress = info->add_progress();
      progress->set_item(number);
      progress->set_done_below(item.record.done_below());
      progress->set_position(item.record.position());
      progress->set_finished(item.record.done());
      progress->set_samples_trained(item.record.samples_trained());
      progress->set_samples_skipped(item.record.samples_skipped());
    }
  }
}

}  // namespace starling
