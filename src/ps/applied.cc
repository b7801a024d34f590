#include "ps/applied.h"

#include "ps/mutants.h"

namespace starling {
namespace {

constexpr size_t kFencesMax = 65536;

}  // namespace

StatusOr<Seen> AppliedNumbers::check(const Operation& operation) const {
  if (operation.session == 0 || operation.number == 0) {
    return invalid_argument("an operation that changes state needs a session and a number");
  }
  if (fenced_.contains(operation.session)) {
    return failed_precondition("session {:016x} has been fenced", operation.session);
  }
  if (STARLING_PS_MUTANT(kNoDedup)) return Seen::kNew;
  auto it = sessions_.find(operation.session);
  if (it == sessions_.end()) {
    if (sessions_.size() >= kSessionsMax) {
      return resource_exhausted("{} sessions are open, the limit", kSessionsMax);
    }
    if (operation.number >= operation.acked_below + kSessionWindow) {
      return resource_exhausted("number {} lies beyond the window of {} above {}", operation.number,
                                kSessionWindow, operation.acked_below);
    }
    return operation.number < operation.acked_below ? Seen::kRepeat : Seen::kNew;
  }
  const Session& session = it->second;
  const uint64_t acked = std::max(session.acked_below, operation.acked_below);
  if (operation.number < acked) return Seen::kRepeat;
  if (auto record = session.applied.find(operation.number); record != session.applied.end()) {
    if (record->second.content_hash != operation.content_hash) {
      return invalid_argument("number {} of session {:016x} came before with other content",
                              operation.number, operation.session);
    }
    STARLING_RETURN_IF_ERROR(record->second.outcome);
    return Seen::kRepeat;
  }
  if (operation.number >= acked + kSessionWindow) {
    return resource_exhausted("number {} lies beyond the window of {} above {}", operation.number,
                              kSessionWindow, acked);
  }
  return Seen::kNew;
}

void AppliedNumbers::record(const Operation& operation, const Status& outcome) {
  Session& session = sessions_[operation.session];
  session.acked_below = std::max(session.acked_below, operation.acked_below);
  session.applied.erase(session.applied.begin(), session.applied.lower_bound(session.acked_below));
  if (operation.number >= session.acked_below) {
    session.applied.insert_or_assign(operation.number, Record{operation.content_hash, outcome});
  }
}

void AppliedNumbers::fence(uint64_t session) {
  sessions_.erase(session);
  if (!fenced_.insert(session).second) return;
  fences_.push_back(session);
  if (fences_.size() > kFencesMax) {
    fenced_.erase(fences_.front());
    fences_.erase(fences_.begin());
  }
}

size_t AppliedNumbers::open_numbers() const {
  size_t count = 0;
  for (const auto& [id, session] : sessions_) count += session.applied.size();
  return count;
}

const AppliedBatches::Item* AppliedBatches::find(const BatchId& batch) const {
  auto it = items_.find({batch.epoch, batch.item});
  return it == items_.end() ? nullptr : &it->second;
}

bool AppliedBatches::is_done(const BatchId& batch) const {
  const Item* item = find(batch);
  return item != nullptr && (item->finished || batch.number < item->done_below);
}

bool AppliedBatches::is_applied(const BatchId& batch, const std::string& part) const {
  if (is_done(batch)) return true;
  if (STARLING_PS_MUTANT(kNoDedup)) return false;
  const Item* item = find(batch);
  if (item == nullptr) return false;
  auto it = item->parts.find(batch.number);
  return it != item->parts.end() && it->second.contains(part);
}

Status AppliedBatches::outcome(const BatchId& batch, const std::string& part) const {
  const Item* item = find(batch);
  if (item == nullptr) return absl::OkStatus();
  auto it = item->parts.find(batch.number);
  if (it == item->parts.end()) return absl::OkStatus();
  auto found = it->second.find(part);
  return found == it->second.end() ? absl::OkStatus() : found->second;
}

void AppliedBatches::record(const BatchId& batch, const std::string& part, const Status& outcome) {
  if (is_done(batch)) return;
  items_[{batch.epoch, batch.item}].parts[batch.number].insert_or_assign(part, outcome);
}

Status AppliedBatches::raise(uint32_t epoch, uint32_t item_number, uint64_t done_below,
                             bool finished) {
  if (!items_.contains({epoch, item_number}) && items_.size() >= kItemsMax) {
    // Items of an epoch that is over by two cannot be dealt again: their watermark has served.
    std::erase_if(items_, [epoch](const auto& entry) {
      return entry.second.finished && entry.first.first + 1 < epoch;
    });
    if (items_.size() >= kItemsMax)
      return resource_exhausted("{} work items have a watermark, the limit", kItemsMax);
  }
  Item& item = items_[{epoch, item_number}];
  item.done_below = std::max(item.done_below, done_below);
  item.finished |= finished;
  if (item.finished) {
    item.parts.clear();
  } else {
    item.parts.erase(item.parts.begin(), item.parts.lower_bound(item.done_below));
  }
  return absl::OkStatus();
}

std::vector<AppliedBatches::Watermark> AppliedBatches::watermarks() const {
  std::vector<Watermark> out;
  for (const auto& [key, item] : items_) {
    out.push_back({key.first, key.second, item.done_below, item.finished});
  }
  return out;
}

std::vector<AppliedBatches::Part> AppliedBatches::parts() const {
  std::vector<Part> out;
  for (const auto& [key, item] : items_) {
    for (const auto& [number, parts] : item.parts) {
      for (const auto& [part, outcome] : parts) {
        out.push_back({{key.first, key.second, number}, part, outcome});
      }
    }
  }
  return out;
}

size_t AppliedBatches::open_batches() const {
  size_t count = 0;
  for (const auto& [key, item] : items_) count += item.parts.size();
  return count;
}

}  // namespace starling
