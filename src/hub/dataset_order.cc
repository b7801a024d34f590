// The order of a synchronous epoch: batch k is the k-th in the order of items. Where an item begins
// is known when the one before has been read, by whichever hub; hubs tell each other through the
// scheduler's keys.
#include <algorithm>
#include <charconv>

#include "hub/dataset.h"

namespace starling {
namespace {

constexpr Duration kRetry = milliseconds(20);

}  // namespace

std::string Dataset::key_of(uint32_t epoch, const std::string& what) const {
  // A restored job begins its clocks anew.
  return fmt::format("hub/{}/{}/{}/{}", options_.generation, options_.start.dataset(), epoch, what);
}

StatusOr<std::optional<uint64_t>> Dataset::get_number(const std::string& key) {
  v1::GetOption option;
  option.set_key(key);
  while (true) {
    if (is_stopping_) return cancelled("the dataset stops");
    const StatusOr<v1::GetReply> reply = world_.scheduler->get(option, soon());
    if (!reply.ok() && !may_pass(reply.status())) return reply.status();
    if (!reply.ok()) continue;
    if (reply->values().empty()) return std::optional<uint64_t>();
    uint64_t number = 0;
    const std::string& text = reply->values(0).value();
    std::from_chars(text.data(), text.data() + text.size(), number);
    return std::optional<uint64_t>(number);
  }
}

Status Dataset::put_number(const std::string& key, uint64_t number) {
  v1::PutOption option;
  option.set_key(key);
  option.set_value(std::to_string(number));
  while (!is_stopping_) {
    Status status = world_.scheduler->put(option, soon()).status();
    if (status.ok() || !may_pass(status)) return status;
  }
  return cancelled("the dataset stops");
}

StatusOr<uint64_t> Dataset::put_first(const std::string& key, uint64_t number) {
  v1::PutOption option;
  option.set_key(key);
  option.set_value(std::to_string(number));
  option.set_if_revision(0);
  while (!is_stopping_) {
    const Status status = world_.scheduler->put(option, soon()).status();
    if (status.ok()) return number;
    if (status.code() != StatusCode::kAborted && !may_pass(status)) return status;
    STARLING_ASSIGN_OR_RETURN(const std::optional<uint64_t> known, get_number(key));
    if (known.has_value()) return *known;
  }
  return cancelled("the dataset stops");
}

StatusOr<uint64_t> Dataset::first_clock_of(uint32_t epoch) {
  if (epoch == first_epoch()) return from_.clock();
  STARLING_ASSIGN_OR_RETURN(const std::optional<uint64_t> known,
                            get_number(key_of(epoch, "clock")));
  if (known.has_value()) return *known;
  // The epoch before is over, so its length is known.
  STARLING_ASSIGN_OR_RETURN(const uint64_t before, first_clock_of(epoch - 1));
  STARLING_ASSIGN_OR_RETURN(const std::optional<uint64_t> end,
                            get_number(key_of(epoch - 1, "end")));
  STARLING_ASSIGN_OR_RETURN(const std::optional<uint64_t> from,
                            get_number(key_of(epoch - 1, "from")));
  const uint64_t batches = end.value_or(0) - from.value_or(0);
  uint64_t clock = 0;
  {
    // Ranks tick without data until a cut has its clock.
    MutexLock lock(mutex_);
    clock = std::max(dealer_.clock_behind(before, batches), dealer_.drain_clock().value_or(0));
  }
  return put_first(key_of(epoch, "clock"), clock);
}

Status Dataset::agree_on_next(uint32_t epoch) {
  {
    MutexLock lock(mutex_);
    if (!dealer_.is_epoch_dealt() || !dealer_.drain_clock().has_value()) return absl::OkStatus();
  }
  STARLING_ASSIGN_OR_RETURN(const uint64_t clock, first_clock_of(epoch + 1));
  MutexLock lock(mutex_);
  dealer_.set_next_clock(clock);
  return absl::OkStatus();
}

Status Dataset::begin_epoch(uint32_t epoch) {
  EpochStart start{.epoch = epoch};
  STARLING_ASSIGN_OR_RETURN(start.clock, first_clock_of(epoch));
  steps_before_ = steps_before_queues();
  uint64_t base = 0;
  bool is_known = true;  // where the items so far end
  uint32_t next = 0;
  for (const v1::Watermark& mark : options_.start.resume()) {
    if (mark.epoch() != epoch) continue;
    start.linear += mark.done_below();
    is_known = is_known && mark.finished() && mark.item() == next++;
    if (!is_known) continue;
    // Nobody reads it again.
    base += mark.done_below();
    STARLING_RETURN_IF_ERROR(put_number(key_of(epoch, std::to_string(mark.item())), base));
  }
  for (uint32_t before = first_epoch(); before < epoch; ++before) {
    STARLING_ASSIGN_OR_RETURN(const std::optional<uint64_t> end, get_number(key_of(before, "end")));
    steps_before_ += end.value_or(0);
  }
  STARLING_RETURN_IF_ERROR(put_number(key_of(epoch, "from"), start.linear));
  MutexLock lock(mutex_);
  dealer_.begin_epoch(start);
  return absl::OkStatus();
}

StatusOr<uint64_t> Dataset::find_base(const ItemName& name) {
  if (name.item == 0) return 0;
  while (true) {
    STARLING_ASSIGN_OR_RETURN(const std::optional<uint64_t> end,
                              get_number(key_of(name.epoch, std::to_string(name.item - 1))));
    if (end.has_value()) return *end;
    pause(kRetry);
  }
}

Status Dataset::find_epoch_end(uint32_t epoch) {
  uint64_t batches = 0;
  if (!items_.empty()) {
    STARLING_ASSIGN_OR_RETURN(const std::optional<uint64_t> end,
                              get_number(key_of(epoch, std::to_string(items_.size() - 1))));
    if (!end.has_value()) return absl::OkStatus();
    batches = *end;
  }
  STARLING_RETURN_IF_ERROR(put_number(key_of(epoch, "end"), batches));
  MutexLock lock(mutex_);
  dealer_.set_epoch_end(batches);
  return absl::OkStatus();
}

}  // namespace starling
