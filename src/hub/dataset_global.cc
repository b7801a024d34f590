// The global shuffle: every hub loads some of the files and holds them; an item is a slice of one
// order of all samples, put together by whoever takes it from what all hubs hold.
//
// Files are leases of a queue of their own that are kept while the dataset lives, so those of a hub
// that dies are loaded by another.
#include <algorithm>

#include "hub/dataset.h"

namespace starling {
namespace {

constexpr Duration kRetry = milliseconds(50);
// How long the files of a hub that has not come wait for it before others load them.
constexpr Duration kSharePatience = seconds(10);
// A slice that gets nothing for so long is asked for again.
constexpr Duration kAskAgain = seconds(1);
constexpr Duration kExchangePatience = seconds(10);
constexpr size_t kExchangeBytes = 1 << 20;
constexpr uint64_t kSliceSamples = 1 << 16;

// Whole batches.
uint64_t slice_samples_of(const v1::StartSampleOption& option) {
  const uint64_t batch = batch_size_of(option);
  const uint64_t wanted = option.shuffle_samples() == 0 ? kSliceSamples : option.shuffle_samples();
  return (wanted + batch - 1) / batch * batch;
}

}  // namespace

std::string Dataset::share_key(const std::string& what, uint32_t file) const {
  return key_of(first_epoch(), fmt::format("{}{}", what, file));
}

Status Dataset::load_shares() {
  shares_ = std::move(items_);
  items_.clear();
  share_samples_.assign(shares_.size(), std::nullopt);
  shares_since_ = world_.clock->now();
  {
    MutexLock lock(mutex_);
    shuffle_.emplace(options_.start.seed(), slice_samples_of(options_.start));
  }
  STARLING_RETURN_IF_ERROR(fill_queue(load_queue(), 0, shares_));
  while (!is_stopping_) {
    STARLING_ASSIGN_OR_RETURN(const bool has_loaded, take_share());
    if (has_loaded) continue;
    STARLING_ASSIGN_OR_RETURN(const bool is_known, know_counts());
    if (is_known) break;
    pause(kRetry);
  }
  MutexLock lock(mutex_);
  for (uint32_t slice = 0; slice < shuffle_->slices(); ++slice) {
    v1::WorkItem& item = items_.emplace_back();
    item.set_item(slice);
    item.set_path(load_queue());
    item.set_hint_bytes(shuffle_->slice_samples(slice));
  }
  return absl::OkStatus();
}

StatusOr<bool> Dataset::take_share() {
  v1::TakeWorkOption option;
  option.set_queue(load_queue());
  const bool takes_any = options_.hubs == 1 || world_.clock->now() > shares_since_ + kSharePatience;
  if (!takes_any) {
    option.set_hub(options_.hub);
    option.set_hubs(options_.hubs);
  }
  const StatusOr<v1::TakeWorkReply> taken = world_.scheduler->take_work(option, soon());
  if (!taken.ok() && !may_pass(taken.status())) return taken.status();
  if (!taken.ok() || taken->leases().empty()) return false;
  for (const v1::WorkLease& lease : taken->leases()) {
    const uint32_t file = lease.work().item();
    STARLING_ASSIGN_OR_RETURN(const LoadedItem* item, load(lease.work()));
    uint64_t samples = 0;
    for (const auto& block : item->blocks) samples += block->samples();
    const uint64_t skipped = item->counts.records - samples;
    // Whoever finds how many samples a file has finds what is left out of it too.
    STARLING_RETURN_IF_ERROR(put_first(share_key("skip", file), skipped).status());
    STARLING_ASSIGN_OR_RETURN(const uint64_t known, put_first(share_key("load", file), samples));
    if (known != samples) {
      return data_loss("{}: the file has {} samples, it had {} before", lease.work().path(),
                       samples, known);
    }
    MutexLock lock(mutex_);
    shuffle_->hold(file, item->blocks);
    shares_held_.insert(file);
    dealer_.count_bytes(item->bytes_read);
  }
  return true;
}

StatusOr<bool> Dataset::know_counts() {
  std::vector<uint64_t> counts;
  for (uint32_t file = 0; file < shares_.size(); ++file) {
    if (!share_samples_[file].has_value()) {
      STARLING_ASSIGN_OR_RETURN(share_samples_[file], get_number(share_key("load", file)));
      if (!share_samples_[file].has_value()) return false;
      STARLING_ASSIGN_OR_RETURN(const auto skipped, get_number(share_key("skip", file)));
      shares_skipped_ += skipped.value_or(0);
    }
    counts.push_back(*share_samples_[file]);
  }
  MutexLock lock(mutex_);
  STARLING_RETURN_IF_ERROR(shuffle_->set_counts(counts));
  return true;
}

StatusOr<bool> Dataset::deal_slice(const ItemName& name, const v1::WorkLease& lease,
                                   BatchCutter& cutter, ItemCounts& counts) {
  STARLING_ASSIGN_OR_RETURN(const bool is_there, gather(name));
  if (!is_there) return false;
  SampleBlocks gathered;
  {
    MutexLock lock(mutex_);
    gathered = shuffle_->finish();
  }
  STARLING_ASSIGN_OR_RETURN(const SampleBlocks blocks, with_slots_shuffled(name, gathered));
  for (const auto& block : blocks) {
    counts.samples_read += block->samples();
    cutter.add(block);
  }
  // What rules left out of the files is in no slice; the first one of an epoch tells it.
  if (name.item == 0) {
    counts.samples_read += shares_skipped_;
    counts.samples_skipped = shares_skipped_;
  }
  cutter.end();
  note_memory(loaded_bytes_ + cutter.bytes());
  return deal(name, lease.done_below(), cutter, counts);
}

// False: the item is lost, or the dataset stops.
StatusOr<bool> Dataset::gather(const ItemName& name) {
  {
    MutexLock lock(mutex_);
    shuffle_->begin(name.epoch, name.item, format_->schema());
  }
  uint64_t missing = UINT64_MAX;
  while (true) {
    bool is_slow = false;
    {
      MutexLock lock(mutex_);
      shuffle_->take_own();
      if (shuffle_->is_whole()) return true;
      is_slow = shuffle_->missing() == missing;
      missing = shuffle_->missing();
    }
    // A hub may have died, and its files wait for somebody.
    if (is_slow) STARLING_RETURN_IF_ERROR(take_share().status());
    ask_for(name);
    const Deadline again = Deadline::in(*world_.clock, kAskAgain);
    MutexLock lock(mutex_);
    while (!shuffle_->is_whole()) {
      if (is_stopping_ || lost_.contains(name)) return false;
      if (!changed_.wait(mutex_, again)) break;
    }
  }
}

void Dataset::ask_for(const ItemName& name) {
  for (const uint32_t hub : world_.hubs->hubs()) {
    if (hub == world_.node) continue;
    Message request;
    v1::ExchangeOption* option = request.meta.mutable_exchange();
    option->set_dataset(options_.start.dataset());
    option->set_epoch(name.epoch);
    option->set_item(name.item);
    // What fails is asked for again.
    world_.hubs->call(hub, Method::kHubExchange, std::move(request),
                      Deadline::in(*world_.clock, kExchangePatience),
                      [](const StatusOr<Message>&) {});
  }
}

Message Dataset::exchange(const Message& request) {
  const v1::ExchangeOption& option = request.meta.exchange();
  const ItemName name{option.epoch(), option.item()};
  const uint32_t from = request.meta.header().role_id();
  MutexLock lock(mutex_);
  if (!shuffle_.has_value() || !shuffle_->is_known()) {
    return status_reply(unavailable("dataset {} is being loaded", option.dataset()));
  }
  if (!option.has_records_tensor() && !option.last()) {
    world_.lane->post([self = weak_from_this(), from, name] {
      const auto alive = self.lock();
      if (alive != nullptr && alive->sending_.insert({from, name}).second) {
        alive->send_slice(from, name, 0);
      }
    });
    return Message();
  }
  if (!option.has_records_tensor() || !shuffle_->is_gathering(name.epoch, name.item)) {
    return Message();
  }
  if (option.records_tensor() >= request.tensors.size()) {
    return status_reply(invalid_argument("Hub.Exchange: tensor {} of {}", option.records_tensor(),
                                         request.tensors.size()));
  }
  const Tensor& tensor = request.tensors[option.records_tensor()];
  if (const Status status = tensor.expect("records", DType::kUInt8, 1); !status.ok()) {
    return status_reply(status);
  }
  const StatusOr<uint64_t> taken = shuffle_->take(tensor.buffer().view());
  if (!taken.ok()) return status_reply(taken.status());
  received_ += *taken;
  if (*taken > 0) received_from_.insert(from);
  changed_.notify_all();
  return Message();
}

// One message after the other; the callback sends the next.
void Dataset::send_slice(uint32_t to, const ItemName& name, uint64_t at) {
  Message request;
  v1::ExchangeOption* option = request.meta.mutable_exchange();
  option->set_dataset(options_.start.dataset());
  option->set_epoch(name.epoch);
  option->set_item(name.item);
  GlobalShuffle::Records records;
  {
    MutexLock lock(mutex_);
    records = shuffle_->records(name.epoch, name.item, at, kExchangeBytes);
  }
  option->set_samples(records.samples);
  option->set_last(records.is_last);
  if (records.samples > 0) {
    option->set_records_tensor(0);
    request.tensors.push_back(Tensor::of<uint8_t>(
        {static_cast<int64_t>(records.bytes.size())},
        {reinterpret_cast<const uint8_t*>(records.bytes.data()), records.bytes.size()}));
  }
  world_.hubs->call(to, Method::kHubExchange, std::move(request),
                    Deadline::in(*world_.clock, kExchangePatience),
                    [self = weak_from_this(), to, name, at,
                     is_last = records.is_last](const StatusOr<Message>& reply) {
                      const auto alive = self.lock();
                      if (alive == nullptr) return;
                      if (reply.ok() && !is_last) return alive->send_slice(to, name, at);
                      alive->sending_.erase({to, name});
                    });
}

// The leases of files are kept as long as the dataset lives.
void Dataset::renew_shares() {
  const TimePoint now = world_.clock->now();
  if (is_renewing_shares_ || now < shares_renewed_ + renew_every_) return;
  shares_renewed_ = now;
  Message request;
  v1::RenewWorkOption* option = request.meta.mutable_renew_work();
  option->set_queue(load_queue());
  {
    MutexLock lock(mutex_);
    for (const uint32_t file : shares_held_) option->add_items()->set_item(file);
  }
  if (option->items().empty()) return;
  is_renewing_shares_ = true;
  world_.scheduler->call(Method::kSchedulerRenewWork, std::move(request),
                         Deadline::in(*world_.clock, kExchangePatience),
                         [self = weak_from_this()](const StatusOr<Message>& reply) {
                           const auto alive = self.lock();
                           if (alive == nullptr) return;
                           alive->is_renewing_shares_ = false;
                           if (!reply.ok()) return;
                           const auto& lost = reply->meta.renew_work_reply().lost();
                           alive->lose_shares({lost.begin(), lost.end()});
                         });
}

// Somebody else holds them.
void Dataset::lose_shares(const std::vector<uint32_t>& files) {
  MutexLock lock(mutex_);
  for (const uint32_t file : files) {
    shuffle_->drop(file);
    shares_held_.erase(file);
  }
}

std::pair<size_t, uint64_t> Dataset::exchanged() const {
  MutexLock lock(mutex_);
  return {received_from_.size(), received_};
}

}  // namespace starling
